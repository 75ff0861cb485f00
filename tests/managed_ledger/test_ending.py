"""Termination and deletion of topics: what is refused afterwards, what goes, how a deletion that was cut off ends."""

import itertools
from contextlib import suppress
from dataclasses import replace

import pytest
from managed_ledgers import NAME, FailingAudit

from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.managed_ledger import delete_managed_ledger, open_managed_ledger
from offload_core.writing.policy_store import PolicyStore
from offload_hooks.errors import (
    LedgerClosedError,
    OffloadError,
    OptionError,
    OwnershipLostError,
    StoreError,
    StoreUnavailableError,
    TopicDeletedError,
    TopicTerminatedError,
    UnknownTopicError,
)
from offload_hooks.testing import FaultyMetadataStore, MemoryMetadataStore

START = EntryPosition(0, 0)


# --- termination -------------------------------------------------------------------------------


@pytest.mark.parametrize("rolled", [False, True])
def test_nothing_is_added_to_a_terminated_topic_which_is_read_as_before(opened, recorded, rolled):
    topic = opened()
    topic.add_entry(b"a")
    last = topic.add_entry(b"b")
    if rolled:
        topic.roll()
    assert topic.terminated_at is None
    assert topic.terminate() == topic.terminate() == topic.terminated_at == last
    assert recorded().terminated_at == last
    assert all(ledger.info.is_closed for ledger in recorded().ledgers)
    for each in (topic, opened()):
        with pytest.raises(TopicTerminatedError, match=f"its last position, {last}"):
            each.add_entry(b"c")
        with pytest.raises(TopicTerminatedError):
            each.add_entries([b"c"])
        assert [bytes(payload) for _, payload in each.read_entries(START, 9)] == [b"a", b"b"]
    assert len(recorded().ledgers) == 1


def test_a_topic_without_entries_is_terminated(opened):
    topic = opened()
    assert topic.terminate() == EntryPosition(-1, -1)
    with pytest.raises(TopicTerminatedError):
        opened().add_entry(b"a")


def test_whoever_owned_a_topic_before_does_not_terminate_it(opened, recorded):
    former, owner = opened(), opened()
    with pytest.raises(OwnershipLostError):
        former.terminate()
    assert owner.add_entry(b"a").entry_id == 0


# --- deletion ----------------------------------------------------------------------------------


@pytest.fixture
def offloaded(opened, environment, recorded):
    """A topic of a cold ledger, one in both tiers, a hot one, and one that is written."""
    topic = opened()
    for i in range(3):
        position = topic.add_entry(b"%d" % i)
        topic.roll()
        if i < 2:
            environment.offloads.offload(NAME, position.ledger_id)
    environment.offloads.delete_hot_copy(NAME, recorded().in_order[0].ledger_id, 0)
    topic.add_entry(b"3")
    return topic


def test_a_topic_is_deleted_with_all_its_copies(
    offloaded, environment, records, recorded, hot, audit, objects
):
    ids = [ledger.ledger_id for ledger in recorded().in_order]
    stray, other = environment.hot.create(NAME).ledger_id, environment.hot.create("another").ledger_id
    offloaded.delete()
    assert records.read(NAME) is None
    assert (objects(), hot.ledger_ids()) == ([], [other])
    cold_ids = [ledger_id for ledger_id, copy in audit.copies() if copy == "cold"]
    assert cold_ids == ids[:2]
    assert {ledger_id for ledger_id, copy in audit.copies() if copy == "hot"} == {*ids, stray}
    assert {each.why for each in audit.deletions} == {"its topic is deleted"}
    with pytest.raises(LedgerClosedError):
        offloaded.add_entry(b"x")
    assert not delete_managed_ledger(environment, NAME)


def test_a_topic_that_another_has_open_is_taken_from_it(offloaded, environment, records, hot, objects):
    assert delete_managed_ledger(environment, NAME)
    for call in (lambda: offloaded.add_entry(b"x"), offloaded.roll, offloaded.terminate):
        with pytest.raises(OwnershipLostError, match="deleted"):
            call()
    assert (records.read(NAME), objects(), hot.ledger_ids()) == (None, [], [])


def test_a_deleted_topic_is_made_anew_without_what_it_had(offloaded, environment, opened):
    last = offloaded.last_position
    offloaded.delete()
    topic = opened()
    assert topic.last_position is None
    assert topic.add_entry(b"x") > last
    assert delete_managed_ledger(environment, NAME)
    with pytest.raises(OwnershipLostError):
        topic.roll()


def test_what_was_in_memory_of_a_deleted_topic_is_not_read(opened):
    topic = opened()
    topic.add_entry(b"0")
    assert len(topic.read_entries(EntryPosition(0, 0), 10)) == 1
    topic.delete()
    assert len(topic.read_entries(EntryPosition(0, 0), 10)) == 0


@pytest.mark.parametrize("k", range(1, 7))
def test_a_deletion_that_was_cut_off_is_ended_before_the_topic_is_opened(
    offloaded, environment, opened, records, hot, k, objects
):
    with pytest.raises(StoreUnavailableError):
        delete_managed_ledger(replace(environment, audit=FailingAudit(k)), NAME)
    for create in (True, False):
        with pytest.raises(TopicDeletedError, match="is being deleted"):
            opened(create=create)
    with pytest.raises(OwnershipLostError):
        offloaded.roll()
    assert delete_managed_ledger(environment, NAME)
    assert (records.read(NAME), objects(), hot.ledger_ids()) == (None, [], [])
    with pytest.raises(UnknownTopicError):
        opened(create=False)


def test_an_offload_of_a_topic_that_is_deleted_meanwhile_leaves_nothing(
    offloaded, environment, recorded, hot, objects
):
    third = recorded().in_order[2].ledger_id
    deleted = []

    def delete(progress):
        if not deleted:
            deleted.append(delete_managed_ledger(environment, NAME))

    with pytest.raises(OffloadError):
        environment.offloads.offload(NAME, third, listener=delete)
    assert deleted == [True]
    assert (objects(), hot.ledger_ids()) == ([], [])


def test_a_topic_that_is_made_anew_survives_who_ends_the_deletion_of_the_one_before(
    offloaded, environment, opened, records, hot
):
    """One that deletes is stopped before it looks for leftovers; another ends it, and the topic is made anew."""
    anew = []

    class Stopped:
        def __getattr__(self, name):
            return getattr(environment.hot, name)

        def of(self, name):
            delete_managed_ledger(environment, NAME)
            anew.append(opened())
            anew[0].add_entry(b"new")
            return environment.hot.of(name)

    assert delete_managed_ledger(replace(environment, hot=Stopped()), NAME)
    anew[0].add_entry(b"newer")
    assert [bytes(payload) for _, payload in opened().read_entries(START, 9)] == [b"new", b"newer"]


def test_a_topic_whose_tier_is_not_configured_stays_marked(offloaded, environment, opened, records, objects):
    with pytest.raises(OptionError):
        delete_managed_ledger(replace(environment, offloads=None), NAME)
    assert len(objects()) == 4
    with pytest.raises(TopicDeletedError):
        opened()
    assert delete_managed_ledger(environment, NAME)
    assert (records.read(NAME), objects()) == (None, [])


TOPIC = topic_of_managed_ledger(NAME)


@pytest.mark.parametrize("fault", ["unavailable", "unknown-before", "unknown-after"])
def test_whichever_call_of_the_metadata_fails(environment, fault):
    for number in itertools.count():
        store = FaultyMetadataStore(MemoryMetadataStore())
        policies = PolicyStore(store)
        changed = replace(
            environment,
            records=ManagedLedgerRecords(store),
            forget=lambda name, policies=policies: policies.forget_topic(topic_of_managed_ledger(name)),
        )
        open_managed_ledger(changed, NAME).close()
        policies.change_topic(TOPIC, lambda level: level.with_fields(max_threads=3))
        failing = len(store.calls) + 1 + number
        store.choose = lambda call, failing=failing: fault if call.number == failing else None
        with suppress(StoreError):
            delete_managed_ledger(changed, NAME)
        is_over = len(store.calls) < failing
        store.choose = lambda _: None
        delete_managed_ledger(changed, NAME)
        assert list(store.children("/admin/topic-policies/acme/cold/persistent")) == []
        assert list(store.children("/managed-ledgers/acme/cold/persistent")) == []
        if is_over:
            break
    assert number >= 7
