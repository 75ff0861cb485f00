"""A transaction buffer that follows a topic's entries: made of a snapshot, read on, and persisted again.

    restored     the last snapshot, and the entries behind its stable position
    read on      by batches, as far as there are entries
    persisted    if it is settled farther than what is there

It is the same for a topic's owner, who reads up to what was acknowledged last, and for anybody else, who reads the
ledgers that are sealed. A process may end between any two lines: a snapshot is right wherever the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offload_core.filters.recorded import settled_by_filters
from offload_core.managed_ledger.reading import EntriesRead
from offload_core.metadata import EntryPosition, ManagedLedgerInfo
from offload_core.transactions import (
    BufferSnapshot,
    BufferState,
    SnapshotStore,
    TransactionBuffer,
    TransactionId,
)

READ_AT_ONCE = 10_000
"""How many entries are read at once, at most; their payloads are bounded besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStatus:
    """How the transactions of a topic stand, at one moment.

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
        """Whether there is a snapshot: without one there are no entries of transactions."""
        return self.buffer.state is not BufferState.NO_SNAPSHOT

    def use(self, last: EntryPosition | None) -> None:
        """Persist the first snapshot, if there is none: from now on, behind `last`, there may be such entries."""
        if not self.is_used:
            self.persisted = self._snapshots.write(self._name, BufferSnapshot(stable_position=last))
            self._restore(self.persisted)

    def read_on(self, target: EntryPosition | None) -> None:
        """Give the buffer all entries up to a position that there is; nothing if it is not used.

        Raises:
            FormatError: an entry is not Pulsar's, or damaged; what was read before it was taken, by batches.
            StoreError: of where entries are read; those that were read were taken.
        """
        while self.is_used and target is not None and self._next <= target:
            read = self._read(self._next)
            for ledger_id, entries in read.batches:
                self.buffer.add(ledger_id, entries)
                self.new_entries += len(entries)
                self._next = EntryPosition(ledger_id, entries.stop_entry_id)
            if not read.batches:
                break
        if self._settled is not None:
            self.buffer.end_before(self._settled)
        if self.buffer.state is BufferState.INITIALIZING:
            self.buffer.become_ready()

    def persist(self) -> BufferSnapshot | None:
        """Persist what was read, unless somebody has come farther; what is persisted then, None if it was deleted.

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
        """How it stands, by what was read; `last` is the last entry that there is, for a topic without snapshot."""
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
