"""A managed ledger's ledgers at one moment, for readers: which there are, and how many entries each has by now."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Self

from offload_core.metadata import EntryPosition, ManagedLedgerInfo
from offload_hooks.ledger_stores import LedgerWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgersView:
    """Ledgers in the order of their entries.

    Attributes:
        ledger_ids: ascending.
        entry_counts: of each; of the one that is written it grows, see `entry_count`.
        writer: of the ledger that entries are appended to; None if there is none just now.
    """

    ledger_ids: tuple[int, ...]
    entry_counts: tuple[int, ...]
    writer: LedgerWriter | None

    @classmethod
    def of(cls, info: ManagedLedgerInfo, writer: LedgerWriter | None) -> Self:
        """What a record says, and who writes the last ledger."""
        ledgers = [ledger for ledger in info.in_order if not ledger.is_condemned]
        return cls(
            ledger_ids=tuple(ledger.ledger_id for ledger in ledgers),
            entry_counts=tuple(ledger.info.entries or 0 for ledger in ledgers),
            writer=writer,
        )

    def up_to(self, last: EntryPosition) -> LedgersView:
        """The same without what is behind a position, as it is now."""
        stop = bisect_right(self.ledger_ids, last.ledger_id)
        counts = [self.entry_count(place) for place in range(stop)]
        if self.has(last.ledger_id):
            counts[-1] = min(counts[-1], last.entry_id + 1)
        return LedgersView(ledger_ids=self.ledger_ids[:stop], entry_counts=tuple(counts), writer=None)

    def entry_count(self, place: int) -> int:
        """How many entries the ledger at this place has by now."""
        if self.writer is not None and self.writer.ledger_id == self.ledger_ids[place]:
            return self.writer.status.entry_count
        return self.entry_counts[place]

    def find(self, ledger_id: int) -> int:
        """The place of a ledger, or of the next one."""
        return bisect_left(self.ledger_ids, ledger_id)

    def has(self, ledger_id: int) -> bool:
        """Whether this ledger is one of them."""
        place = self.find(ledger_id)
        return place < len(self.ledger_ids) and self.ledger_ids[place] == ledger_id

    def last_position(self, before: EntryPosition | None = None) -> EntryPosition | None:
        """The last entry, or the last one before a position; None if there is none."""
        stop = len(self.ledger_ids) if before is None else bisect_right(self.ledger_ids, before.ledger_id)
        for place in reversed(range(stop)):
            ledger_id, count = self.ledger_ids[place], self.entry_count(place)
            if before is not None and before.ledger_id == ledger_id:
                count = min(count, before.entry_id)
            if count:
                return EntryPosition(ledger_id, count - 1)
        return None
