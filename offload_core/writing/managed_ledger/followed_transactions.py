"""Transactions of topics followed and settled by any process, and the offload filters that need them.

    FollowedTransactions   a transaction buffer: restored from the last snapshot, read on by batches, persisted again
                           if it is settled farther
    settle_transactions    does so for a managed ledger that need not be open here, over its sealed ledgers; what is in
                           the ledger that is written, its owner settles
    open_filter            its run over what is offloaded next

Entries are read hot or cold, as they are there. What a topic's owner and others do meanwhile does no harm: a snapshot
is right for its stable position for ever, and of two the farther one stays. A process may end between any two lines.
Source: docs/transactions.md, "The transaction buffer".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from offload_core.format.messages.entry import TransactionId, split_entry
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo, ReadPriority
from offload_core.reading.transaction_buffers import (
    BufferSnapshot,
    BufferState,
    SnapshotStore,
    TransactionBuffer,
)
from offload_core.writing.managed_ledger.environment import Environment, KnownWait
from offload_core.writing.managed_ledger.topic_reader import EntriesRead, LedgersView, TailCache, TopicReader
from offload_core.writing.offload_filters import FilterRun, has_unsettled_copies, settled_by_filters
from offload_hooks.errors import OffloadError
from offload_hooks.filters import SettledTransactions
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch

READ_AT_ONCE = 10_000
"""Most entries that are read at once; their payloads are bounded as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStatus:
    """The state of a topic's transactions, at one moment.

    Attributes:
        stable_position: the last position before the first entry of any open transaction; None if nothing is before it.
        persisted_position: the stable position of the last persisted snapshot; None if there is none.
        open_transactions: with the first entry of each, in the order of these.
        aborted_count: how many are known as aborted.
    """

    state: BufferState
    stable_position: EntryPosition | None
    persisted_position: EntryPosition | None
    open_transactions: Mapping[TransactionId, EntryPosition]
    aborted_count: int


class FollowedTransactions:
    """The transaction buffer of a managed ledger, as far as its entries were read. Not for several threads at once.

    Args:
        name: the managed ledger's.
        read: its entries from a position on, a batch of them.
        read_info: its record.

    Raises:
        MetadataError: the snapshot is damaged, with its path. Others: those of the metadata.

    Attributes:
        persisted: the last snapshot that is known to be persisted; None if there is none.
        new_entries: how many were read since it was persisted, or since this was made.
    """

    def __init__(
        self,
        snapshots: SnapshotStore,
        name: str,
        read: Callable[[EntryPosition], EntriesRead],
        read_info: Callable[[], ManagedLedgerInfo],
    ) -> None:
        self._snapshots = snapshots
        self._name = name
        self._read = read
        self._read_info = read_info
        self._settled: EntryPosition | None = None
        self._next = EntryPosition(0, 0)
        self.buffer = TransactionBuffer()
        self.new_entries = 0
        self.persisted = snapshots.read(name)
        if self.persisted is not None:
            self._restore(self.persisted)

    @property
    def is_used(self) -> bool:
        """True if there is a snapshot: without one there are no entries of transactions."""
        return self.buffer.state is not BufferState.NO_SNAPSHOT

    def use(self, last: EntryPosition | None) -> None:
        """Persist the first snapshot, if there is none: from now on, after `last`, there may be such entries."""
        if not self.is_used:
            self.persisted = self._snapshots.write(self._name, BufferSnapshot(stable_position=last))
            self._restore(self.persisted)

    def read_on(self, target: EntryPosition | None) -> None:
        """Add to the buffer all entries up to an existing position; nothing if it is not used.

        Raises:
            FormatError: an entry is not Pulsar's, or damaged; what was read before it was taken, by batches.
            StoreError: of where entries are read; those that were read were taken.
        """
        while self.is_used and target is not None and self._next <= target:
            read = self._read(self._next)
            for ledger_id, entries in read.batches:
                self._add(ledger_id, entries)
                self.new_entries += len(entries)
                self._next = EntryPosition(ledger_id, entries.stop_entry_id)
            if not read.batches:
                break
        if self._settled is not None and self._settled < self._next:
            self._end_settled(self._settled)
        if self.buffer.state is BufferState.INITIALIZING:
            self.buffer.become_ready()

    def _add(self, ledger_id: int, entries: EntryBatch) -> None:
        """Add entries; where a filter's settled ones end, what is open by then has ended."""
        settled = self._settled
        if settled is not None and settled < EntryPosition(ledger_id, entries.stop_entry_id - 1):
            count = settled.entry_id + 1 - entries.first_entry_id if ledger_id == settled.ledger_id else 0
            if count > 0:
                self.buffer.add(
                    ledger_id, EntryBatch(entries.first_entry_id, entries.data, entries.offsets[: count + 1])
                )
                entries = EntryBatch(settled.entry_id + 1, entries.data, entries.offsets[count:])
            self._end_settled(settled)
        self.buffer.add(ledger_id, entries)

    def _end_settled(self, settled: EntryPosition) -> None:
        self.buffer.end_before(settled)
        self._settled = None

    def persist(self) -> BufferSnapshot | None:
        """Persist the state, unless a later one is stored; return the stored one, None if it was deleted.

        What only ledgers had that the topic has no more is forgotten.
        """
        if self.buffer.aborted:
            ledgers = self._read_info().in_order
            if ledgers:
                self.buffer.forget_before(ledgers[0].ledger_id)
        self.persisted = self._snapshots.advance(self._name, self.buffer.snapshot())
        self.new_entries = 0
        return self.persisted

    def status(self, last: EntryPosition | None) -> TransactionStatus:
        """The state by what was read; `last` is the last entry that there is, for a topic without snapshot."""
        return TransactionStatus(
            state=self.buffer.state,
            stable_position=self.buffer.stable_position if self.is_used else last,
            persisted_position=None if self.persisted is None else self.persisted.stable_position,
            open_transactions=self.buffer.open_transactions,
            aborted_count=len(self.buffer.aborted),
        )

    def _restore(self, snapshot: BufferSnapshot) -> None:
        settled = settled_by_filters(self._read_info())
        # only of a topic that was reset is that farther: what a filter left of it lacks the markers
        self._settled = settled if settled is not None and snapshot.stop <= settled else None
        self.buffer = TransactionBuffer.restore(snapshot)
        self._next = snapshot.stop


def settle_transactions(
    environment: Environment, name: str, up_to: EntryPosition | None = None
) -> BufferSnapshot | None:
    """Settle a topic's transactions as far as its sealed ledgers allow; the snapshot that is persisted then.

    It ends before the first entry of a transaction that is open, or that ends in the ledger that is written.

    Args:
        environment: the process's.
        name: of the managed ledger.
        up_to: if it is settled up to here, nothing is read, and what cannot be read after it is no error; None for
            the end of the sealed ledgers.

    Returns:
        None if there is no snapshot: then no entry that was acknowledged before is of a transaction.

    Raises:
        UnknownTopicError: there is no such managed ledger.
        MetadataError, FormatError: the snapshot, or an entry after it, is damaged, with the place.
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
    """Report a topic's transactions by its snapshot and its sealed ledgers; nothing is written.

    Errors as `settle_transactions`.
    """
    with _followed(environment, name) as (last, followed):
        followed.read_on(last)
        return followed.status(last)


def begin_times_ms(
    environment: Environment, name: str, status: TransactionStatus
) -> dict[TransactionId, int]:
    """Publish times of the first entries of open transactions, in ms since 1970, UTC.

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
        return environment.records.require(name).info

    def find(ledger_id: int) -> LedgerRecord | None:
        ledger = read_info().ledger(ledger_id)
        return None if ledger is None or ledger.is_marked_for_deletion else ledger

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


def open_filter(
    environment: Environment, name: str, last: EntryPosition, info: ManagedLedgerInfo
) -> FilterRun | None:
    """The run of a managed ledger's filter over what is offloaded next, up to `last`; None if nothing is filtered.

    It may not take `last` (see `FilterRun.takes`): then that may not be offloaded yet.

    Args:
        info: the record as it is now; of many ledgers it takes long to read.

    Raises:
        OffloadError: of the filter, the metadata, and where entries are read to settle transactions.
    """
    return environment.filter_of(name).open(_Topic(environment, name, last, info))


class _Topic:
    """See `FilteredTopic`."""

    def __init__(
        self, environment: Environment, managed_ledger: str, last: EntryPosition, info: ManagedLedgerInfo
    ) -> None:
        self.name = topic_of_managed_ledger(managed_ledger).full
        self._environment = environment
        self._managed_ledger = managed_ledger
        self._last = last
        self._info = info

    def settle(self) -> SettledTransactions | None:
        """See `FilteredTopic`."""
        environment, name = self._environment, self._managed_ledger
        snapshot = environment.snapshots.read(name)
        if snapshot is None:
            return None
        waits_for = None
        if snapshot.stop <= self._last:
            sealed = LedgersView.of(self._info, None).last_position()
            known = environment.waits.get(name)
            if known is not None and (known.stable_position, known.sealed) == (
                snapshot.stable_position,
                sealed,
            ):
                waits_for = known.waits_for
            if waits_for is None:
                snapshot = settle_transactions(environment, name, self._last)
                if snapshot is None:
                    return None  # the topic is being deleted
                if snapshot.stop <= self._last:
                    waits_for = self._waits_for()
                    environment.waits[name] = KnownWait(
                        stable_position=snapshot.stable_position, sealed=sealed, waits_for=waits_for
                    )
        if waits_for is None:
            environment.waits.pop(name, None)
        return SettledTransactions(
            stop=(snapshot.stop.ledger_id, snapshot.stop.entry_id),
            aborted=frozenset(snapshot.aborted),
            waits_for=waits_for or "",
            markers_matter=has_unsettled_copies(self._info),
        )

    def _waits_for(self) -> str:
        status = look_at_transactions(self._environment, self._managed_ledger)
        found = next(iter(status.open_transactions.items()), None)
        return "its transactions" if found is None else f"transaction {found[0]}, open since entry {found[1]}"
