"""Transactions of a managed ledger: begun, added to, ended, and opened again."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from managed_ledgers import NAME
from scenes.transactions import ONE, PLAIN, START, abort, commit, found_in, message, next_to, of

from offload_core.format.messages.transaction_id import TransactionId
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.transaction_buffers import BufferState, SnapshotStore
from offload_core.writing.managed_ledger import (
    RolloverPolicy,
    SnapshotPolicy,
    TransactionalTopic,
)
from offload_hooks.errors import (
    FormatError,
    LedgerFailedError,
    UnknownTransactionError,
)
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


# --- begun, added to, ended --------------------------------------------------------------------


def test_transactions_are_begun_added_to_committed_and_aborted(
    anew: Callable[..., TransactionalTopic],
) -> None:
    topic = anew()
    kept, dropped = topic.begin(), topic.begin()
    first = topic.add_entries([message(), message(kept), message(dropped), message()])
    status = topic.status()
    assert status.state is BufferState.READY
    assert status.stable_position == first
    assert tuple(status.open_transactions) == (kept, dropped)
    assert topic.abort(dropped) == next_to(first, 4)
    assert topic.status().stable_position == first
    assert topic.commit(kept) == next_to(first, 5)
    assert topic.status().stable_position == next_to(first, 5)
    assert topic.decide(next_to(first), kept) == "committed"
    assert topic.decide(next_to(first, 2), dropped) == "aborted"
    assert topic.decide(next_to(first, 3), None) == "committed"
    payloads = [bytes(payload) for _, payload in topic.topic.read_entries(START, 100)]
    _, markers, _, times = found_in(payloads, first.entry_id)
    assert [each[1:] for each in markers] == [[22, *dropped], [21, *kept]]
    assert times[1] == 1_700_000_000_000


def test_ids_of_transactions_are_nobody_elses(anew: Callable[..., TransactionalTopic]) -> None:
    topics = [anew(), anew()]
    assert len({topic.begin() for topic in topics for _ in range(100)}) == 200


def test_what_was_never_begun_or_has_ended_cannot_be_ended(anew: Callable[..., TransactionalTopic]) -> None:
    topic = anew()
    transaction = topic.begin()
    topic.add_entries([message(transaction)])
    assert tuple(topic.status().open_transactions) == (transaction,)
    topic.commit(transaction)
    before = topic.topic.last_position
    for unknown in (transaction, TransactionId(4, 4)):
        for end in (topic.commit, topic.abort):
            with pytest.raises(UnknownTransactionError, match=r"is open in acme/cold/persistent/orders"):
                end(unknown)
    assert topic.topic.last_position == before


@pytest.mark.parametrize("is_there", [True, False])
def test_an_end_of_unknown_outcome_can_be_asked_for_again_and_is_written_once(
    anew: Callable[..., TransactionalTopic], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Else a commit that is there would be followed by an abort, by which its entries would be dropped."""
    topic = anew()
    transaction = topic.begin()
    first = topic.add_entries([message(transaction)])
    add = topic.topic.add_entry

    def fail(payload: bytes) -> EntryPosition:
        if is_there:
            add(payload)
        raise LedgerFailedError("nobody knows")

    with monkeypatch.context() as patch:
        patch.setattr(topic.topic, "add_entry", fail)
        with pytest.raises(LedgerFailedError):
            topic.commit(transaction)
    if is_there:
        for again in (topic.commit, topic.abort):
            with pytest.raises(UnknownTransactionError):
                again(transaction)
    else:
        topic.commit(transaction)
    assert topic.decide(first, transaction) == "committed"


def test_an_unknown_transaction_does_not_have_a_topic_followed(
    anew: Callable[..., TransactionalTopic], snapshots: SnapshotStore
) -> None:
    topic = anew()
    topic.add_entries([message()])
    with pytest.raises(UnknownTransactionError):
        topic.commit(TransactionId(0, 1))
    assert snapshots.read(NAME) is None


def test_a_transaction_without_entries_can_be_ended(anew: Callable[..., TransactionalTopic]) -> None:
    topic = anew()
    topic.abort(topic.begin())
    assert topic.status().stable_position == topic.topic.last_position


def test_a_transaction_that_another_process_left_open_is_ended(
    anew: Callable[..., TransactionalTopic],
) -> None:
    left = anew()
    transaction = left.begin()
    left.add_entries([message(), message(transaction)])
    topic = anew()
    assert tuple(topic.status().open_transactions) == (transaction,)
    topic.abort(transaction)
    assert tuple(topic.status().open_transactions) == ()
    assert topic.decide(EntryPosition(0, 0), transaction) == "aborted"


def test_an_entry_that_is_not_pulsars_is_refused(anew: Callable[..., TransactionalTopic]) -> None:
    topic = anew()
    with pytest.raises(FormatError, match="entry 1"):
        topic.add_entries([message(), b"something else"])
    assert topic.topic.last_position is None


def test_entries_of_brokers_transactions_are_followed_as_well(
    anew: Callable[..., TransactionalTopic],
) -> None:
    topic = anew()
    happened = [of(ONE), PLAIN, abort(ONE), of((3, 3)), commit((3, 3))]
    first = topic.add_entries([event.pack(i) for i, event in enumerate(happened)])
    assert topic.decide(first, TransactionId(*ONE)) == "aborted"
    assert topic.status().stable_position == next_to(first, 4)


# --- many at once ------------------------------------------------------------------------------


def test_threads_begin_add_and_end_at_once(anew: Callable[..., TransactionalTopic]) -> None:
    rollover = RolloverPolicy(max_entries=40, min_age_s=0)
    topic = anew(SnapshotPolicy(max_entries=20, interval_s=1000), rollover=rollover)
    ended: list[tuple[TransactionId, bool, EntryPosition]] = []
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for number in range(25):
                transaction, commits = topic.begin(), (seed + number) % 2 == 0
                places = [topic.add_entries([message(transaction), message()]) for _ in range(2)]
                (topic.commit if commits else topic.abort)(transaction)
                ended.extend((transaction, commits, place) for place in places)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for each in (topic, anew()):
        assert tuple(each.status().open_transactions) == ()
        assert each.status().stable_position == topic.topic.last_position
        for transaction, commits, place in ended:
            assert each.decide(place, transaction) == ("committed" if commits else "aborted")
