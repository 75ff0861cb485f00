"""Transactions of topics that are not open here are settled: by their snapshot, and their ledgers that are sealed."""

from dataclasses import replace

import pytest
from crash_points import Points
from managed_ledgers import NAME, Audit, Clock
from scenes.transactions import NEVER, ONE, PLAIN, Model, TransactionalStores, abort, message, next_to, of

from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition
from offload_core.reading.transaction_buffers import BufferSnapshot, BufferState, SnapshotStore
from offload_core.writing.managed_ledger import (
    RolloverPolicy,
    TransactionalTopic,
    begin_times_ms,
    look_at_transactions,
    settle_transactions,
)
from offload_hooks.errors import FormatError, UnknownTopicError

ROLLED = RolloverPolicy(max_entries=3, min_age_s=0)


@pytest.fixture
def snapshots(records):
    return SnapshotStore(records.store)


@pytest.fixture
def topic(environment, opened):
    """The topic with its transactions, in the hands of another process, of ledgers with three entries."""
    return TransactionalTopic(environment, opened(rollover=ROLLED), NEVER)


def settle(environment, up_to=None):
    settled = settle_transactions(environment, NAME, up_to)
    return settled.stable_position


def test_a_topic_without_transactions_is_settled_and_not_read(environment, opened, snapshots):
    with opened() as plain:
        last = plain.add_entries([b"anything", b"else"])
    assert settle_transactions(environment, NAME) is None
    assert settle_transactions(environment, NAME, last) is None
    assert snapshots.read(NAME) is None
    status = look_at_transactions(environment, NAME)
    assert (status.state, status.stable_position) == (BufferState.NO_SNAPSHOT, next_to(last))
    assert (status.persisted_position, status.aborted_count) == (None, 0)


def test_an_unknown_topic_is_an_error(environment):
    for call in (settle_transactions, look_at_transactions):
        with pytest.raises(UnknownTopicError):
            call(environment, NAME)


def test_it_is_settled_to_the_end_of_its_sealed_ledgers(environment, topic, snapshots):
    kept, dropped = topic.begin(), topic.begin()
    topic.add_entries([message(kept), message(dropped)])
    topic.commit(kept)
    sealed = topic.abort(dropped)
    topic.add_entries([message(), message(), message()])  # these are in the ledger that is written
    written = topic.topic.last_position
    topic.topic.roll()
    last = topic.topic.last_position
    topic.add_entries([message()])
    assert last == written
    assert settle(environment) == last
    found = snapshots.read(NAME)
    assert found == BufferSnapshot(stable_position=last, aborted={dropped: sealed})
    assert found == settle_transactions(environment, NAME)


def test_an_open_transactions_first_entry_holds_it_back(environment, topic):
    held = topic.begin()
    before = topic.add_entries([message(), message(held)])
    topic.topic.roll()
    topic.add_entries([message(), message(), message()])
    topic.topic.roll()
    assert settle(environment) == before
    status = look_at_transactions(environment, NAME)
    assert status.open_transactions == {held: next_to(before)}
    topic.commit(held)
    assert settle(environment) == before, "its end is in the ledger that is written"
    topic.topic.roll()
    assert settle(environment) == topic.topic.last_position
    assert topic.snapshot() == settle_transactions(environment, NAME)


def test_what_is_settled_that_far_is_not_read(environment, topic, hot):
    opened = []

    def open_reader(record, _, __):
        opened.append(record.ledger_id)
        return hot.open(record.ledger_id)

    counted = replace(environment, open_reader=open_reader)
    topic.commit(topic.begin())
    topic.topic.roll()
    first = settle(counted)
    assert first == topic.topic.last_position
    assert opened == [first.ledger_id]
    topic.add_entries([message(), message(), message()])
    topic.topic.roll()
    last = topic.topic.last_position
    opened.clear()
    assert settle(counted, first) == first
    assert opened == []
    assert settle(counted, last) == last
    assert opened == [last.ledger_id], "nothing is read twice"


def test_what_the_owner_knows_besides_stays(environment, topic, snapshots):
    """Where neither is farther, the one that is there is not touched."""
    topic.add_entries([message(topic.begin())])
    topic.topic.roll()
    topic.abort(topic.begin())  # in the ledger that is written
    known = topic.snapshot()
    assert settle_transactions(environment, NAME) == known == snapshots.read(NAME)


def test_looking_writes_nothing(environment, topic, snapshots):
    topic.abort(topic.begin())
    topic.topic.roll()
    before = snapshots.read(NAME)
    status = look_at_transactions(environment, NAME)
    assert (status.state, status.aborted_count) == (BufferState.READY, 1)
    assert status.stable_position == topic.topic.last_position
    assert status.persisted_position == before.stable_position is None
    assert snapshots.read(NAME) == before


def test_cold_ledgers_are_read_where_their_hot_copies_are_gone(environment, topic, tiered, snapshots):
    dropped = topic.begin()
    first = topic.add_entries([message(dropped), message(), message(dropped)])
    topic.abort(dropped)
    topic.topic.roll()
    topic.topic.offload_prefix(EntryPosition(1 << 40, 0))
    assert len(topic.topic.delete_hot_copies(0)) == 2
    assert settle(tiered) == topic.topic.last_position
    assert set(snapshots.read(NAME).aborted) == {dropped}
    snapshots.reset(NAME)
    assert settle(tiered) == topic.topic.last_position
    assert first.ledger_id < topic.topic.last_position.ledger_id


def test_a_topic_of_a_broker_is_read_from_its_first_entry_once_it_is_reset(environment, opened, snapshots):
    happened = [of(ONE), PLAIN, of((0, 9)), abort(ONE)]
    with opened() as bare:
        first = bare.add_entries([event.pack(i) for i, event in enumerate(happened)])
    assert settle_transactions(environment, NAME) is None
    snapshots.reset(NAME)
    assert settle(environment) == next_to(first)
    status = look_at_transactions(environment, NAME)
    assert status.open_transactions == {(0, 9): next_to(first, 2)}
    times = begin_times_ms(environment, NAME, status)
    assert times == {(0, 9): 1_700_000_000_002}


def test_what_is_before_an_entry_that_cannot_be_read_is_settled_and_kept(environment, opened, snapshots):
    with opened(rollover=ROLLED) as bare:
        bare.add_entries([PLAIN.pack(0)] * 3)
        good = bare.last_position
        bare.add_entries([b"something else"])
    snapshots.reset(NAME)
    assert settle(environment, good) == good
    with pytest.raises(FormatError) as caught:
        settle_transactions(environment, NAME)
    assert (caught.value.ledger_id, caught.value.entry_id) == (good.ledger_id + 1, 0)
    assert snapshots.read(NAME) == BufferSnapshot(stable_position=good)


def test_aborted_transactions_of_ledgers_that_are_gone_are_forgotten(environment, topic, snapshots):
    old, new = topic.begin(), topic.begin()
    for transaction in (old, new):
        topic.add_entries([message(transaction)])
        topic.abort(transaction)
        topic.topic.roll()
    settle(environment)
    assert set(snapshots.read(NAME).aborted) == {old, new}
    topic.add_entries([message(), message(), message()])
    topic.topic.roll()
    topic.topic.trim(RetentionPolicies(), consumed_before=EntryPosition(1, 0))
    settle(environment)
    assert set(snapshots.read(NAME).aborted) == {new}


def test_a_topic_that_is_deleted_meanwhile_gets_no_snapshot(environment, topic, snapshots, hot):
    topic.abort(topic.begin())
    topic.topic.roll()

    def open_reader(record, _, __):
        snapshots.delete(NAME)
        return hot.open(record.ledger_id)

    assert settle_transactions(replace(environment, open_reader=open_reader), NAME) is None
    assert snapshots.read(NAME) is None
    assert topic.snapshot() is None
    assert snapshots.read(NAME) is None


# --- wherever it ends --------------------------------------------------------------------------


def test_wherever_it_ends_the_snapshot_is_right(crash_matrix):
    """Also that of the next call, which settles all."""
    before = {}

    def scene(folder):
        world = TransactionalStores()
        world.live(Points())
        before[id(world)] = world.snapshot()
        return world

    def check(world, where):
        assert not world.snapshot().is_behind(before[id(world)]), where
        world.check(where)

    def check_done(world, where):
        assert world.snapshot().stable_position == Model.of(world.entries()).stable, where

    calls = crash_matrix(
        scene,
        lambda world, points: settle_transactions(world.environment(points), NAME),
        check=check,
        check_done=check_done,
        every=10,
    )
    assert len(calls) > 5


def test_settled_by_two_it_goes_on_with_the_farther(environment, topic, snapshots):
    """One that reads slowly, while the owner persists what is behind."""
    topic.abort(topic.begin())
    topic.topic.roll()
    owners = []

    def open_reader(record, _, __):
        topic.add_entries([message(), message()])
        owners.append(topic.snapshot())
        return environment.hot.store.open(record.ledger_id)

    slow = replace(environment, open_reader=open_reader, audit=Audit(), now_ms=Clock())
    assert settle_transactions(slow, NAME) == owners[0] == snapshots.read(NAME)
    assert owners[0].stable_position == topic.topic.last_position
