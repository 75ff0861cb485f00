"""One owner: opening takes a topic from whoever has it, repairs what it left, and deletes what was never recorded."""

import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager, suppress

import managed_ledgers
import pytest
from ledger_files import all_entries
from managed_ledgers import NAME, environment_in

from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores.managed_ledger_records import is_claim, placeholder, release_claim
from offload_core.writing.managed_ledger import open_managed_ledger
from offload_core.writing.managed_ledger.owned_record import OWNER_PROPERTY, claim_record, get_property
from offload_hooks.errors import (
    DataLossError,
    InvalidKeyError,
    LedgerClosedError,
    LedgerFencedError,
    OwnershipLostError,
    StoreError,
    UnknownTopicError,
)


def entries_of(environment, info):
    found = []
    for ledger in info.in_order:
        with closing(environment.hot.store.open(ledger.ledger_id)) as reader:
            found += all_entries(reader)
    return found


def test_a_placeholder_is_no_topic_and_a_new_one_takes_its_place(opened, environment, recorded):
    environment.records.write(NAME, placeholder(1), None)  # of a collection that goes on, or was killed
    with pytest.raises(UnknownTopicError):
        opened(create=False)
    assert is_claim(recorded())
    opened().close()
    assert not recorded().ledgers
    assert not release_claim(environment.records, NAME, before_ms=2)
    topic = opened(create=False)
    topic.terminate()
    topic.close()
    assert not is_claim(recorded())
    assert opened(create=False).terminated_at is not None


def test_a_name_that_leads_elsewhere_is_refused(environment):
    with pytest.raises(InvalidKeyError):
        open_managed_ledger(environment, "acme/cold/persistent/../../x")


def test_opening_keeps_what_was_added_and_goes_on_behind_it(opened, environment, recorded):
    killed = opened()
    first = killed.add_entry(b"a")
    topic = opened()
    assert topic.last_position == first
    (ledger,) = recorded().ledgers
    assert (ledger.info.entries, ledger.info.size) == (1, 1)
    assert topic.add_entry(b"b") > first
    assert entries_of(environment, recorded()) == [b"a", b"b"]


def test_whoever_owned_a_topic_before_can_change_nothing_more(opened, environment, recorded):
    former = opened()
    former.add_entry(b"a")
    owner = opened()
    position = owner.add_entry(b"b")
    before = recorded()
    for call in (
        lambda: former.add_entry(b"c"),
        lambda: former.add_entries([b"c"]),
        former.roll,
        former.close,
    ):
        with pytest.raises(OwnershipLostError, match="another has opened the managed ledger acme/cold"):
            call()
    assert recorded() == before
    assert owner.last_position == position
    assert entries_of(environment, recorded()) == [b"a", b"b"]


def test_an_idle_former_owner_leaves_no_ledger(opened, environment, recorded, hot):
    former = opened()
    opened()
    with pytest.raises(OwnershipLostError):
        former.add_entry(b"a")
    assert (recorded().ledgers, hot.ledger_ids()) == ((), [])


def test_an_owner_whose_ledger_alone_was_taken_goes_on_in_another(opened, environment, hot, recorded):
    topic = opened()
    first = topic.add_entry(b"a")
    hot.recover(first.ledger_id)
    assert topic.add_entry(b"b").ledger_id > first.ledger_id
    assert entries_of(environment, recorded()) == [b"a", b"b"]


def test_an_empty_last_ledger_is_dropped(opened, environment, recorded, hot):
    topic = opened()
    writer = topic._appender._begin()
    assert recorded().ledgers[0].ledger_id == writer.ledger_id
    opened()
    assert (recorded().ledgers, hot.ledger_ids()) == ((), [])
    with pytest.raises(LedgerFencedError):
        writer.append(b"late")


def test_ledgers_that_were_never_recorded_are_deleted_and_those_of_others_stay(opened, environment, hot):
    mine, other = environment.hot.create(NAME), environment.hot.create(f"{NAME}-partition-1")
    nobodys = hot.create({})
    opened()
    assert hot.ledger_ids() == [other.ledger_id, nobodys.ledger_id]
    with pytest.raises(LedgerFencedError):
        mine.append(b"a")


def test_a_ledger_of_a_later_owner_is_never_taken_for_a_leftover(opened, environment, monkeypatch, recorded):
    """One that opens is stopped behind its mark, another opens and appends, and the first goes on."""
    later = []

    def then_another_opens(records, name, create, **given):
        owned = claim_record(records, name, create, **given)
        if not later:
            later.append(None)
            later[0] = opened()
            later[0].add_entry(b"a")
        return owned

    monkeypatch.setattr("offload_core.writing.managed_ledger.managed_ledger.claim_record", then_another_opens)
    former = opened()
    with pytest.raises(OwnershipLostError):
        former.add_entry(b"b")
    later[0].add_entry(b"c")
    assert entries_of(environment, recorded()) == [b"a", b"c"]


def test_a_last_ledger_that_is_gone_is_an_error_unless_its_loss_is_accepted(opened, hot, recorded):
    killed = opened()
    first = killed.add_entry(b"a")
    hot.delete(first.ledger_id)
    for _ in range(2):
        with pytest.raises(DataLossError) as caught:
            opened()
        assert caught.value.ledger_id == first.ledger_id
        assert get_property(recorded(), OWNER_PROPERTY) is None
    assert opened(accept_loss=True).last_position is None
    assert recorded().ledgers == ()


def test_owners_have_marks_of_their_own_and_other_properties_stay(opened, records, recorded):
    records.write(NAME, ManagedLedgerInfo(properties=(("a", "b"),)), None)
    marks = set()
    for _ in range(3):
        with opened():
            assert recorded().properties[0] == ("a", "b")
            marks.add(get_property(recorded(), OWNER_PROPERTY))
    assert None not in marks
    assert len(marks) == 3


def test_closing_takes_the_owners_mark_away_and_only_its_own(opened, recorded):
    topic = opened()
    position = topic.add_entry(b"a")
    topic.close()
    topic.close()
    assert recorded().properties == ()
    assert recorded().ledgers[0].info.is_closed
    assert topic.read_info() == recorded(), "it can be asked on"
    with pytest.raises(LedgerClosedError):
        topic.add_entry(b"b")
    owner = opened()
    assert topic.read_info().properties == recorded().properties
    topic.close()
    assert get_property(recorded(), OWNER_PROPERTY) is not None
    assert owner.add_entry(b"b") > position
    former, _ = owner, opened()
    with suppress(OwnershipLostError):
        former.close()
    assert get_property(recorded(), OWNER_PROPERTY) is not None


def test_a_mark_that_cannot_be_taken_away_does_not_fail_the_closing(
    opened, environment, recorded, monkeypatch
):
    topic = opened()
    topic.add_entry(b"a")
    topic.roll()

    def fail(*_):
        raise StoreError("the metadata is away")

    with monkeypatch.context() as away:
        away.setattr(environment.records, "update", fail)
        topic.close()
    assert get_property(recorded(), OWNER_PROPERTY) is not None
    assert entries_of(environment, opened().read_info()) == [b"a"]


def test_a_topic_is_left_to_its_owner_where_that_is_wanted(opened, recorded):
    owner = opened()
    mark = get_property(recorded(), OWNER_PROPERTY)
    with pytest.raises(OwnershipLostError, match="another has the managed ledger"):
        opened(only_free=True)
    assert get_property(recorded(), OWNER_PROPERTY) == mark
    owner.add_entry(b"a")
    owner.close()
    with opened(only_free=True) as next_owner:
        next_owner.add_entry(b"b")


# --- other processes ---------------------------------------------------------------------------


class Owner:
    """A process that owns the topic, and adds what it is told to."""

    def __init__(self, process):
        self.process = process
        assert self._line() == "ready"

    def add(self, text):
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self._line()

    def _line(self):
        return self.process.stdout.readline().strip()


@contextmanager
def another_owner(folder):
    command = [sys.executable, managed_ledgers.__file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Owner(process)
        finally:
            process.kill()


@pytest.mark.nightly
def test_a_topic_is_taken_from_another_process_and_back(tmp_path):
    environment = environment_in(tmp_path)
    with another_owner(tmp_path) as first:
        assert first.add("one").endswith(":0")
        with another_owner(tmp_path) as second:
            assert second.add("two").endswith(":0")
            assert first.add("three") == "OwnershipLostError"
            assert first.add("roll") == "OwnershipLostError"
            os.kill(second.process.pid, signal.SIGSTOP)
            topic = open_managed_ledger(environment, NAME)
            topic.add_entry(b"four\n")
            os.kill(second.process.pid, signal.SIGCONT)
            assert second.add("five") == "OwnershipLostError"
    topic.close()
    info = environment.records.read(NAME).info
    assert entries_of(environment, info) == [b"one\n", b"two\n", b"four\n"]
    environment.hot.store.close()


def test_what_a_killed_process_added_is_there(tmp_path):
    with another_owner(tmp_path) as owner:
        positions = [owner.add(str(i)) for i in range(5)]
        owner.process.kill()
        owner.process.wait()
    environment = environment_in(tmp_path)
    topic = open_managed_ledger(environment, NAME)
    assert str(topic.last_position) == positions[-1]
    topic.close()
    assert entries_of(environment, environment.records.read(NAME).info) == [b"%d\n" % i for i in range(5)]
    environment.hot.store.close()
