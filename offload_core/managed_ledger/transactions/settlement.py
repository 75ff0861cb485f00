"""Settles the transactions of a managed ledger that need not be open here: a command's, a service's.

    snapshot → entries of the ledgers that are sealed, behind its stable position → snapshot that is farther

Entries are read hot or cold, as they are there, by batches. What the topic's owner and others do meanwhile does no
harm: a snapshot is right for its stable position for ever, and of two the farther one stays. What is in the ledger that
is written, its owner settles. Source: docs/transactions.md, "The transaction buffer".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from offload_core.managed_ledger.environment import Environment
from offload_core.managed_ledger.reading import EntriesRead, TopicReader
from offload_core.managed_ledger.tail_cache import TailCache
from offload_core.managed_ledger.transactions.followed_transactions import (
    READ_AT_ONCE,
    FollowedTransactions,
    TransactionStatus,
)
from offload_core.managed_ledger.view import LedgersView
from offload_core.messages.entry import split_entry
from offload_core.metadata import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.policies import ReadPriority
from offload_core.transactions import BufferSnapshot, TransactionId
from offload_hooks.errors import OffloadError, UnknownTopicError
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES


def settle_transactions(
    environment: Environment, name: str, up_to: EntryPosition | None = None
) -> BufferSnapshot | None:
    """Settle a topic's transactions as far as its sealed ledgers tell; the snapshot that is persisted then.

    It ends before the first entry of a transaction that is open, or that ends in the ledger that is written.

    Args:
        up_to: if it is settled up to here, nothing is read, and what cannot be read behind it is no error; None for
            the end of the sealed ledgers.

    Returns:
        None if there is no snapshot: then no entry that was acknowledged before is of a transaction.

    Raises:
        UnknownTopicError: there is no such managed ledger.
        MetadataError, FormatError: the snapshot, or an entry behind it, is damaged, with the place.
        StoreError: of the metadata, or of where entries are read; it can be called again. What was read is persisted.
    """
    snapshots = environment.snapshots
    if up_to is not None:
        known = snapshots.read(name)
        if known is None or _is_settled(known, up_to):
            return known
    with _followed(environment, name) as (last, followed):
        try:
            followed.read_on(last)
        except OffloadError:
            snapshot = followed.persist()  # it is right for where it is: what was read need not be read again
            if snapshot is None or up_to is None or not _is_settled(snapshot, up_to):
                raise
            return snapshot
        return followed.persist() if followed.is_used else None


def look_at_transactions(environment: Environment, name: str) -> TransactionStatus:
    """How a topic's transactions stand by its snapshot and its sealed ledgers; nothing is written.

    Errors as `settle_transactions`.
    """
    with _followed(environment, name) as (last, followed):
        followed.read_on(last)
        return followed.status(last)


def begin_times_ms(
    environment: Environment, name: str, status: TransactionStatus
) -> dict[TransactionId, int]:
    """When the first entry of each open transaction was published, in ms since 1970, UTC.

    Of those in ledgers that are sealed. Errors as `settle_transactions`.
    """
    times = {}
    with _opened(environment, name) as topic:
        for transaction, position in status.open_transactions.items():
            for found, payload in topic.read(position, 1):
                if found == position:
                    times[transaction] = split_entry(bytes(payload)).metadata.publish_time
    return times


@dataclass(frozen=True, slots=True)
class _SealedTopic:
    """The sealed ledgers of a managed ledger, as its record had them when it was opened."""

    view: LedgersView
    reader: TopicReader
    read_info: Callable[[], ManagedLedgerInfo]

    def read(self, position: EntryPosition, max_entries: int = READ_AT_ONCE) -> EntriesRead:
        return self.reader.read(
            self.view, position, max_entries, DEFAULT_READ_BYTES, ReadPriority.BOOKKEEPER_FIRST
        )


@contextmanager
def _opened(environment: Environment, name: str) -> Iterator[_SealedTopic]:
    def read_info() -> ManagedLedgerInfo:
        known = environment.records.read(name)
        if known is None:
            raise UnknownTopicError("there is no record of this managed ledger", found=name)
        return known.info

    def find(ledger_id: int) -> LedgerRecord | None:
        ledger = read_info().ledger(ledger_id)
        return None if ledger is None or ledger.is_condemned else ledger

    reader = TopicReader(name, find, environment.open_ledger, TailCache(0))
    try:
        yield _SealedTopic(LedgersView.of(read_info(), None), reader, read_info)
    finally:
        reader.readers.close()


@contextmanager
def _followed(
    environment: Environment, name: str
) -> Iterator[tuple[EntryPosition | None, FollowedTransactions]]:
    """The last entry of a topic's sealed ledgers, and its transaction buffer, which is to read on up to there."""
    with _opened(environment, name) as topic:
        # the record was read before the snapshot: if there is none, those ledgers have no entries of transactions
        snapshots = environment.snapshots
        followed = FollowedTransactions(snapshots, name, topic.read, topic.read_info)
        yield topic.view.last_position(), followed


def _is_settled(snapshot: BufferSnapshot, up_to: EntryPosition) -> bool:
    return up_to < snapshot.stop
