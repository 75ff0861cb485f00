"""Snapshots of a topic's transactions: when they are written, and what a new process goes on with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from managed_ledgers import NAME, Clock
from scenes.transactions import NEVER, ONE, PLAIN, abort, message, next_to, of

from offload_core.format.messages.transaction_id import TransactionId
from offload_core.metadata.policies import ReadPriority, RetentionPolicies
from offload_core.metadata.records import LedgerRecord
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.transaction_buffers import BufferSnapshot, BufferState, SnapshotStore
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import (
    Environment,
    RolloverPolicy,
    SnapshotPolicy,
    TransactionalTopic,
    delete_managed_ledger,
    open_managed_ledger,
)
from offload_hooks.errors import (
    StoreUnavailableError,
)
from offload_hooks.ledger_stores import LedgerReader
from offload_hooks.testing import FaultyMetadataStore, MemoryMetadataStore


@pytest.fixture
def metadata() -> FaultyMetadataStore:
    return FaultyMetadataStore(MemoryMetadataStore())


@pytest.fixture
def records(metadata: FaultyMetadataStore) -> ManagedLedgerRecords:
    return ManagedLedgerRecords(metadata)


@pytest.fixture
def snapshots(records: ManagedLedgerRecords) -> SnapshotStore:
    return SnapshotStore(records.store)


def puts(metadata: FaultyMetadataStore) -> int:
    """How many snapshots were written."""
    return sum(call.method == "put" and "/transaction-buffers/" in call.path for call in metadata.calls)


def test_a_topic_without_transactions_has_no_snapshot_and_is_not_read(
    anew: Callable[..., TransactionalTopic], metadata: FaultyMetadataStore, snapshots: SnapshotStore
) -> None:
    topic = anew(SnapshotPolicy(max_entries=1, interval_s=0))
    for _ in range(200):
        last = topic.add_entries([message()])
    status = topic.status()
    assert (status.state, status.stable_position) == (BufferState.NO_SNAPSHOT, last)
    assert status.persisted_position is None
    assert topic.decide(last, None) == "committed"
    assert topic.decide(last, TransactionId(*ONE)) == "undecided"
    assert topic.decide(next_to(last), None) == "undecided"
    assert topic.snapshot() is None
    assert not topic.snapshot_if_due()
    assert snapshots.read(NAME) is None
    assert anew().status().state is BufferState.NO_SNAPSHOT


def test_the_first_snapshot_is_there_before_the_first_entry_of_a_transaction(
    anew: Callable[..., TransactionalTopic], metadata: FaultyMetadataStore, snapshots: SnapshotStore
) -> None:
    topic = anew()
    plain = topic.add_entries([message()])
    transaction = topic.begin()
    for fault in ("unavailable", "unknown-before"):
        metadata.choose = lambda call, fault=fault: fault if "/transaction-buffers/" in call.path else None
        for call in (
            lambda: topic.add_entries([message(), message(transaction)]),
            lambda: topic.commit(transaction),
        ):
            with pytest.raises(StoreUnavailableError):
                call()
    assert topic.topic.last_position == plain
    topic.add_entries([message()])
    metadata.choose = lambda _: None
    topic.add_entries([message(transaction)])
    assert snapshots.read(NAME) == BufferSnapshot(stable_position=next_to(plain))
    assert tuple(topic.status().open_transactions) == (transaction,)


def test_snapshots_are_persisted_after_so_many_entries_and_so_much_time(
    anew: Callable[..., TransactionalTopic], metadata: FaultyMetadataStore, clock: Clock
) -> None:
    topic = anew(SnapshotPolicy(max_entries=100, interval_s=60))
    transaction = topic.begin()
    topic.add_entries([message(transaction)])
    topic.commit(transaction)
    assert puts(metadata) == 1
    for _ in range(1000):
        topic.add_entries([message()])
    assert 8 <= puts(metadata) <= 11
    before = puts(metadata)
    assert not topic.snapshot_if_due()
    topic.add_entries([message()])
    clock.pass_s(60)
    assert topic.snapshot_if_due()
    assert not topic.snapshot_if_due()
    clock.pass_s(600)
    assert not topic.snapshot_if_due(), "nothing is new"
    topic.add_entries([message()])
    assert puts(metadata) == before + 2
    assert topic.status().persisted_position == topic.topic.last_position


def test_a_due_snapshot_that_fails_fails_no_entry_and_comes_later(
    anew: Callable[..., TransactionalTopic],
    metadata: FaultyMetadataStore,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = anew(SnapshotPolicy(max_entries=10, interval_s=1000))
    topic.commit(topic.begin())
    metadata.choose = lambda call: "unavailable" if "/transaction-buffers/" in call.path else None
    before = len(metadata.calls)
    with caplog.at_level(logging.WARNING):
        for _ in range(80):
            last = topic.add_entries([message()])
    tries = [call for call in metadata.calls[before:] if "/transaction-buffers/" in call.path]
    assert 1 <= len(tries) <= 10, "it is not tried with each entry"
    assert "the transactions of acme/cold/persistent/orders are not followed up yet" in caplog.text
    assert topic.status().stable_position == last
    assert topic.status().persisted_position is None
    metadata.choose = lambda _: None
    for _ in range(10):
        topic.add_entries([message()])
    assert topic.status().persisted_position >= last


def test_a_snapshot_says_what_a_new_process_goes_on_with(
    anew: Callable[..., TransactionalTopic], snapshots: SnapshotStore
) -> None:
    topic = anew(rollover=RolloverPolicy(max_entries=3, min_age_s=0))
    held, dropped, later = topic.begin(), topic.begin(), topic.begin()
    first = topic.add_entries([message(dropped)])
    topic.abort(dropped)
    stable = topic.add_entries([message()])
    topic.add_entries([message(held), message(later)])
    topic.abort(later)
    written = topic.snapshot()
    assert written == snapshots.read(NAME) == topic.persisted
    assert written.stable_position == stable
    assert set(written.aborted) == {dropped, later}
    after = anew()
    assert after.status() == topic.status()
    assert after.decide(first, dropped) == "aborted"
    after.commit(held)
    assert after.status().stable_position == after.topic.last_position


def test_a_former_owner_does_not_put_a_snapshot_back(
    anew: Callable[..., TransactionalTopic], snapshots: SnapshotStore
) -> None:
    former = anew()
    former.add_entries([message(former.begin())])
    topic = anew()
    (transaction,) = topic.status().open_transactions
    topic.abort(transaction)
    written = topic.snapshot()
    former.snapshot()
    assert snapshots.read(NAME) == written


def test_aborted_transactions_go_with_their_ledgers(anew: Callable[..., TransactionalTopic]) -> None:
    topic = anew()
    old, new = topic.begin(), topic.begin()
    for transaction in (old, new):
        topic.add_entries([message(transaction)])
        topic.abort(transaction)
        topic.topic.roll()
    assert set(topic.snapshot().aborted) == {old, new}
    topic.topic.trim(
        RetentionPolicies(retentionTimeInMinutes=0, retentionSizeInMB=0),
        consumed_before=topic.topic.last_position,
    )
    assert set(topic.snapshot().aborted) == {new}
    assert set(anew().snapshot().aborted) == {new}


def test_a_topics_snapshot_is_deleted_with_it(
    anew: Callable[..., TransactionalTopic], environment: Environment, snapshots: SnapshotStore
) -> None:
    topic = anew()
    topic.commit(topic.begin())
    assert snapshots.read(NAME) is not None
    delete_managed_ledger(environment, NAME)
    assert snapshots.read(NAME) is None
    assert anew().status().state is BufferState.NO_SNAPSHOT


def test_a_topic_that_had_transactions_before_is_read_from_its_start_once_it_is_reset(
    environment: Environment, anew: Callable[..., TransactionalTopic], snapshots: SnapshotStore
) -> None:
    with open_managed_ledger(environment, NAME) as bare:
        first = bare.add_entries([of(ONE).pack(0), PLAIN.pack(1), of((0, 9)).pack(2), abort(ONE).pack(3)])
    snapshots.reset(NAME)
    topic = anew()
    assert topic.status().stable_position == next_to(first)
    assert topic.decide(first, TransactionId(*ONE)) == "aborted"


def test_what_is_not_in_memory_is_read_from_the_ledgers(
    environment: Environment, hot: FileLedgerStore
) -> None:
    """The hot copy first, whatever the topic's readers are told."""
    priorities: list[ReadPriority] = []

    def open_reader(record: LedgerRecord, priority: ReadPriority, _: str) -> LedgerReader:
        priorities.append(priority)
        return hot.open(record.ledger_id)

    environment = replace(
        environment,
        cache_bytes=0,
        open_reader=open_reader,
        priority_of=lambda _: ReadPriority.OFFLOADED_ONLY,
    )
    topic = TransactionalTopic(environment, open_managed_ledger(environment, NAME), NEVER)
    transaction = topic.begin()
    first = topic.add_entries([message(), message(transaction)])
    topic.topic.roll()
    topic.add_entries([message()])
    assert topic.status().stable_position == first
    assert set(priorities) == {ReadPriority.BOOKKEEPER_FIRST}
