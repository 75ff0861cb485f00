"""Adding entries: positions, rollover by every bound, producers at once, and what a failing store leaves."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from ledger_files import all_entries
from managed_ledgers import NAME

from offload_core.metadata.records import EntryPosition
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import Environment, HotLedgers, RolloverPolicy, open_managed_ledger
from offload_hooks.errors import LedgerClosedError, LedgerFailedError, OptionError, StoreUnavailableError
from offload_hooks.testing import FaultyMetadataStore, MemoryMetadataStore


def stored(hot, recorded):
    """All entries by position, as the record and the hot tier have them."""
    found = {}
    for ledger in recorded().in_order:
        with closing(hot.open(ledger.ledger_id)) as reader:
            entries = all_entries(reader)
        assert not ledger.info.is_closed or ledger.info.entries == len(entries)
        assert not ledger.info.is_closed or ledger.info.size == sum(map(len, entries))
        found |= {EntryPosition(ledger.ledger_id, i): entry for i, entry in enumerate(entries)}
    return found


def test_positions_ascend_over_ledgers_and_the_record_says_what_each_has(opened, hot, recorded, clock):
    with opened() as topic:
        assert topic.last_position is None
        first = topic.add_entry(b"one")
        assert topic.add_entries([b"two", b"three"]) == EntryPosition(first.ledger_id, 1)
        assert topic.last_position == EntryPosition(first.ledger_id, 2)
        assert topic.roll()
        assert not topic.roll(), "there is no ledger to be sealed"
        assert topic.last_position == EntryPosition(first.ledger_id, 2)
        fourth = topic.add_entry(b"four")
        assert (fourth > first, fourth.entry_id) == (True, 0)
        assert [ledger.info.is_closed for ledger in recorded().ledgers] == [True, False]
    info = recorded()
    assert [ledger.info.timestamp_ms for ledger in info.ledgers] == [clock.now_ms] * 2
    assert list(stored(hot, recorded).values()) == [b"one", b"two", b"three", b"four"]
    assert [hot.open(ledger.ledger_id).status().sealed for ledger in info.ledgers] == [True, True]


@pytest.mark.parametrize(
    ("policy", "in_each"),
    [({"max_entries": 3}, [3, 3, 1]), ({"max_bytes": 40}, [4, 3]), ({"max_entries": 7}, [7])],
)
def test_a_full_ledger_is_followed_by_another(opened, hot, recorded, policy, in_each):
    with opened(rollover=RolloverPolicy(min_age_s=0, **policy)) as topic:
        for i in range(7):
            topic.add_entry(b"%010d" % i)
    assert [ledger.info.entries for ledger in recorded().in_order] == in_each
    assert list(stored(hot, recorded).values()) == [b"%010d" % i for i in range(7)]


def test_a_young_ledger_is_never_full(opened, recorded, clock):
    with opened(rollover=RolloverPolicy(min_age_s=60, max_entries=1)) as topic:
        topic.add_entry(b"a")
        topic.add_entry(b"b")
        clock.pass_s(60)
        topic.add_entry(b"c")
    assert [ledger.info.entries for ledger in recorded().in_order] == [2, 1]


def test_an_idle_ledger_is_sealed_when_it_is_old_and_an_empty_topic_stays_without(opened, recorded, clock):
    with opened(rollover=RolloverPolicy(max_age_s=100, min_age_s=0)) as topic:
        assert not topic.roll_if_due()
        topic.add_entry(b"a")
        clock.pass_s(99)
        assert not topic.roll_if_due()
        clock.pass_s(1)
        assert topic.roll_if_due()
        clock.pass_s(1000)
        assert not topic.roll_if_due()
        (ledger,) = recorded().ledgers
        assert ledger.info.is_closed


@pytest.mark.parametrize("bad", [{"max_entries": 0}, {"max_bytes": 0}, {"max_age_s": -1}, {"min_age_s": -1}])
def test_a_rollover_policy_that_makes_no_sense_is_refused(bad):
    with pytest.raises(OptionError, match=next(iter(bad))):
        RolloverPolicy(**bad)


def test_producers_at_once_lose_nothing_and_keep_their_own_order(opened, hot, recorded):
    def produce(who):
        added = []
        for i in range(0, 120, 3):
            added.append((topic.add_entry(b"%d:%d" % (who, i)), i))
            first = topic.add_entries([b"%d:%d" % (who, i + 1), b"%d:%d" % (who, i + 2)])
            added += [(EntryPosition(first.ledger_id, first.entry_id + j), i + 1 + j) for j in range(2)]
        return added

    with opened(rollover=RolloverPolicy(max_entries=50, min_age_s=0)) as topic, ThreadPoolExecutor(6) as pool:
        added = list(pool.map(produce, range(6)))
    found = stored(hot, recorded)
    assert len(found) == 6 * 120
    assert len(recorded().ledgers) > 5
    for who, entries in enumerate(added):
        assert [position for position, _ in entries] == sorted(position for position, _ in entries)
        assert all(found[position] == b"%d:%d" % (who, i) for position, i in entries)


def test_what_cannot_be_appended_is_refused_and_the_topic_goes_on(opened):
    with opened() as topic:
        for bad in ([], ["text"]):
            with pytest.raises(OptionError):
                topic.add_entries(bad)
        assert topic.add_entry(b"a").entry_id == 0


def test_nothing_is_added_to_a_closed_topic(opened, recorded):
    topic = opened()
    topic.add_entry(b"a")
    topic.close()
    topic.close()
    before = recorded()
    for call in (lambda: topic.add_entry(b"b"), lambda: topic.add_entries([b"b"]), topic.roll):
        with pytest.raises(LedgerClosedError, match="the managed ledger acme/cold/persistent/orders"):
            call()
    assert recorded() == before


def test_a_store_that_is_closed_is_no_rollover(opened, hot):
    topic = opened()
    topic.add_entry(b"a")
    hot.close()
    with pytest.raises(LedgerClosedError, match="store"):
        topic.add_entry(b"b")


# --- a disk that fails -------------------------------------------------------------------------


def failing_once(monkeypatch, name, after=0):
    """The call of `os` of this name, which fails once after so many that succeed."""
    real, count = getattr(os, name), iter(range(1 << 20))

    def call(*given):
        if next(count) == after:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*given)

    monkeypatch.setattr(os, name, call)


def test_an_entry_that_is_known_not_to_be_there_is_added_to_a_new_ledger(opened, hot, recorded, monkeypatch):
    with opened() as topic:
        first = topic.add_entry(b"a")
        failing_once(monkeypatch, "pwritev")
        second = topic.add_entry(b"b")
        assert second.ledger_id > first.ledger_id
    assert stored(hot, recorded) == {first: b"a", second: b"b"}


def test_an_entry_that_may_be_there_is_an_error_that_says_where(environment, recorded, tmp_path, monkeypatch):
    hot = FileLedgerStore(tmp_path / "durable", sync="always")
    with closing(hot), open_managed_ledger(replace(environment, hot=HotLedgers(hot)), NAME) as topic:
        first = topic.add_entry(b"a")
        failing_once(monkeypatch, "fdatasync")
        with pytest.raises(LedgerFailedError, match="it is not known whose is there") as caught:
            topic.add_entry(b"b")
        assert caught.value.ledger_id == first.ledger_id
        assert caught.value.found == "entries 1 to 1, which were not acknowledged"
        third = topic.add_entry(b"c")
        assert third.ledger_id > first.ledger_id
        assert list(stored(hot, recorded).values()) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("fault", ["unavailable", "unknown-before", "unknown-after"])
@pytest.mark.parametrize("when", ["begin", "end"])
def test_a_topic_whose_rollover_failed_is_appended_to_again(hot, clock, fault, when):
    store, faults = FaultyMetadataStore(MemoryMetadataStore()), iter([fault])
    environment = Environment(records=ManagedLedgerRecords(store), hot=HotLedgers(hot), now_ms=clock)
    topic = open_managed_ledger(environment, NAME, rollover=RolloverPolicy(max_entries=1, min_age_s=0))
    added = [] if when == "begin" else [topic.add_entry(b"0")]
    store.choose = lambda call: next(faults, None) if call.method == "put" else None
    try:
        added.append(topic.add_entry(b"1"))
    except StoreUnavailableError:
        added.append(topic.add_entry(b"1"))
    added.append(topic.add_entry(b"2"))
    topic.close()
    info = environment.records.read(NAME).info
    assert list(stored(hot, lambda: info)) == added
    assert hot.ledger_ids() == [ledger.ledger_id for ledger in info.in_order]
