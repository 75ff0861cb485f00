"""A topic's entries, given in order → which transactions are open or aborted, and up to where all is settled.

    NO_SNAPSHOT    nothing is persisted: no transaction was ever used, as far as is known
    INITIALIZING   made of a snapshot; entries behind its stable position are to be given again
    READY          all entries were given

Entries without a transaction cost the kernel's look at their metadata only. The rules are those of a broker: a
transaction is open from its first entry to its marker, and it ends once; what comes to it after its abort is aborted as
well. Source: docs/transactions.md, "The transaction buffer".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Literal, NamedTuple, Self

import numpy as np

from offload_core.format.messages.kernels.transactions import ABORT, COMMIT
from offload_core.format.messages.transaction_id import TransactionId
from offload_core.format.messages.transactions import TransactionFinder
from offload_core.metadata.records import EntryPosition
from offload_core.reading.transactions.snapshot import BufferSnapshot
from offload_hooks.errors import EntryOrderError
from offload_hooks.ledger_stores import EntryBatch

Decision = Literal["committed", "aborted", "undecided"]
"""What became of an entry: `committed` also if it is of no transaction."""

Event = tuple[int, int, int, int, int]
"""First entry, stop entry, type of marker or 0 for messages, most and least bits."""


class BufferState(Enum):
    """How far a buffer is."""

    NO_SNAPSHOT = "NoSnapshot"
    INITIALIZING = "Initializing"
    READY = "Ready"


class _Opened(NamedTuple):
    """Where a transaction begins, and the last position before it."""

    before: EntryPosition | None
    first: EntryPosition


class TransactionBuffer:
    """What is known of a topic's transactions. Not for several threads at once.

    Attributes:
        state: see the module.
        last_position: of the last entry that was given, or that the snapshot stands for; None for none.
    """

    def __init__(self) -> None:
        self.state = BufferState.NO_SNAPSHOT
        self.last_position: EntryPosition | None = None
        self._open: OrderedDict[TransactionId, _Opened] = OrderedDict()
        self._aborted: dict[TransactionId, EntryPosition] = {}

    @classmethod
    def restore(cls, snapshot: BufferSnapshot) -> Self:
        """A buffer as of a snapshot, `INITIALIZING`: the entries behind its stable position are to be given."""
        buffer = cls()
        buffer.state = BufferState.INITIALIZING
        buffer.last_position = snapshot.stable_position
        buffer._aborted.update(snapshot.aborted)
        return buffer

    def become_ready(self) -> None:
        """All entries that there are were given, and a snapshot is persisted."""
        self.state = BufferState.READY

    def add(self, ledger_id: int, entries: EntryBatch) -> None:
        """Take the next entries, behind all that were given; ids that are skipped are of no entries.

        A batch without entries says that there are none before its `stop_entry_id`.

        Raises:
            FormatError: an entry is not Pulsar's, or damaged; with its place. Nothing was taken.
            EntryOrderError: they are not behind the others.
        """
        if not len(entries):
            self._pass(ledger_id, entries.stop_entry_id)
            return
        first = EntryPosition(ledger_id, entries.first_entry_id)
        if self.last_position is not None and first <= self.last_position:
            raise EntryOrderError(
                "entries were given to a transaction buffer out of order",
                ledger_id=ledger_id,
                entry_id=entries.first_entry_id,
                expected=f"behind {self.last_position}",
            )
        for entry_id, stop, marker, *transaction in find_events(ledger_id, entries):
            before = EntryPosition(ledger_id, entry_id - 1) if entry_id else self.last_position
            opened = _Opened(before, EntryPosition(ledger_id, entry_id))
            self._take(TransactionId(*transaction), marker, opened, EntryPosition(ledger_id, stop - 1))
        self._pass(ledger_id, entries.stop_entry_id)

    @property
    def stable_position(self) -> EntryPosition | None:
        """The last position before the first entry of any open transaction; None if nothing is before it."""
        return next((each.before for each in self._open.values()), self.last_position)

    @property
    def open_transactions(self) -> Mapping[TransactionId, EntryPosition]:
        """Those that have entries and no marker, with the first entry of each, in the order of these."""
        return {transaction: each.first for transaction, each in self._open.items()}

    @property
    def aborted(self) -> Mapping[TransactionId, EntryPosition]:
        """Those that were aborted, and where the last is that is known of each: its marker, or an entry behind it."""
        return self._aborted

    def is_open(self, transaction: TransactionId) -> bool:
        """Whether it has entries and no marker."""
        return transaction in self._open

    def is_aborted(self, transaction: TransactionId) -> bool:
        """Whether it has a marker of its abort."""
        return transaction in self._aborted

    def decide(self, position: EntryPosition, transaction: TransactionId | None) -> Decision:
        """What became of an entry, by its position and its transaction (None for none).

        `undecided` behind the stable position, and while the buffer is not `READY`.
        """
        stable = self.stable_position
        if self.state is not BufferState.READY or stable is None or position > stable:
            return "undecided"
        return "aborted" if transaction is not None and transaction in self._aborted else "committed"

    def end_before(self, last: EntryPosition) -> None:
        """All transactions that began up to here have ended, by markers that were left out: such are not open."""
        for transaction in [each for each, opened in self._open.items() if opened.first <= last]:
            del self._open[transaction]

    def forget_before(self, ledger_id: int) -> None:
        """Forget aborted transactions that have nothing in this ledger or a later one: the topic has no others."""
        for transaction in [each for each, last in self._aborted.items() if last.ledger_id < ledger_id]:
            del self._aborted[transaction]

    def snapshot(self) -> BufferSnapshot:
        """What is to be persisted; the entries behind its stable position say the rest."""
        return BufferSnapshot(stable_position=self.stable_position, aborted=dict(self._aborted))

    def _pass(self, ledger_id: int, stop_entry_id: int) -> None:
        if stop_entry_id:
            self.last_position = EntryPosition(ledger_id, stop_entry_id - 1)

    def _take(self, transaction: TransactionId, marker: int, opened: _Opened, last: EntryPosition) -> None:
        known = self._aborted.get(transaction)
        if marker == COMMIT:
            self._open.pop(transaction, None)
            self._aborted.pop(transaction, None)
        elif marker == ABORT or (not marker and known is not None):
            self._open.pop(transaction, None)
            self._aborted[transaction] = last if known is None else max(known, last)
        elif not marker:
            self._open.setdefault(transaction, opened)


def find_events(ledger_id: int | None, entries: EntryBatch) -> Iterator[Event]:
    """What entries have to do with transactions, in their order; None for entries that are in no ledger yet.

    Errors as `TransactionBuffer.add`.
    """
    finder = TransactionFinder(ledger_id, verify_checksums=True)
    offsets = np.asarray(entries.offsets)
    entry_ids = np.arange(entries.first_entry_id, entries.stop_entry_id)
    finder.add(np.asarray(entries.data), None, entry_ids, offsets[:-1], np.diff(offsets))
    ranges, markers, _ = finder.tables()
    if not (len(ranges) or len(markers)):
        return iter(())
    events: list[Event] = [(first, stop, 0, most, least) for first, stop, most, least in ranges.tolist()]
    events += [(entry, entry + 1, kind, most, least) for entry, kind, most, least in markers.tolist()]
    return iter(sorted(events))
