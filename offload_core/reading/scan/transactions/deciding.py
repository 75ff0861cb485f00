"""Decide the entries of a task's transactions while they are read.

Nothing is done before a topic's first entry of a transaction. From then on entries are held until the ends of their
transactions have come; each byte of the task is fetched once. After the task's last entry its neighbours are
read on, in small steps, and before its first one back, for what came to a transaction after its abort.
Source: docs/transactions.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Protocol

import numpy as np

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.messages.kernels.entry_fields import COMMITTED, OPEN
from offload_core.reading.scan.extents import extents_around
from offload_core.reading.scan.tasks import Neighbours, Place, ReadOptions, ScanExtent, ScanTask
from offload_core.reading.scan.transactions.outcomes import (
    NO_RANGES,
    States,
    Table,
    clip,
    name_transactions,
    outcomes,
)
from offload_core.reading.scan.transactions.pieces import STEP_BYTES, Piece, PieceReader, piece_of
from offload_core.reading.scan.windows import ExtentEntries
from offload_core.storage.tier import Tier
from offload_hooks.errors import UnresolvedTransactionError

HELD_BYTES = 64 << 20
"""The most bytes of entries that wait for the ends of their transactions; what comes after is fetched twice."""


class Ends(Protocol):
    """Where the reads of topics end, for a reader that goes through all tasks in order."""

    def of(self, topic: str | None) -> Place | None:
        """The position before which a topic's read ends; None if nothing is open."""
        ...

    def set(self, topic: str | None, unsettled: Table) -> None:
        """End a topic's read before the first of these ranges."""
        ...


class HeldEntries(Iterator[ExtentEntries]):
    """The entries of a task in order, which can be looked at ahead of their turn.

    Args:
        source: the entries; their arrays may be used again for the next ones.

    Attributes:
        keeps: entries stay as they are while later ones are looked at.
    """

    def __init__(self, source: Iterator[ExtentEntries]) -> None:
        self._source = source
        self._held: deque[ExtentEntries] = deque()
        self._bytes = 0
        self.keeps = False

    def __next__(self) -> ExtentEntries:
        if not self._held:
            item = next(self._source)
            return item.kept() if self.keeps else item
        item = self._held.popleft()
        self._bytes -= _bytes_of(item)
        return item

    def ahead(self) -> ExtentEntries | None:
        """The next entries that were not looked at, which are held; None at the end, or if too many are."""
        item = None if self._bytes > HELD_BYTES else next(self._source, None)
        if item is not None:
            item = item.kept()
            self._held.append(item)
            self._bytes += _bytes_of(item)
        return item


def _bytes_of(item: ExtentEntries) -> int:
    return 0 if item.entries is None else int(item.entries.lengths.sum())


class TopicTransactions:
    """The transactions of one topic of a task, from its first entry of one on.

    Args:
        held: the entries of the task that come after those that are decided.
        ends: where topics end; None if tasks are read apart from one another.
        extent: the one in which the first entry of a transaction was met.
    """

    def __init__(
        self,
        tier: Tier,
        task: ScanTask,
        options: ReadOptions,
        held: HeldEntries,
        ends: Ends | None,
        extent: ScanExtent,
    ) -> None:
        self._tier = tier
        self._options = options
        self._held = held
        self._ends = ends
        self._met = extent
        self.topic, self._label = extent.topic, extent.label
        self._hides_open = options.isolation == "committed"
        self.cut = task.cuts.get(self.topic)
        if self._hides_open and ends is not None:
            self.cut = ends.of(self.topic)
        self._extents = [each for each in task.extents if each.topic == self.topic]
        self._neighbours = task.neighbours.get(self.topic, Neighbours())
        self._reader = PieceReader(tier=tier, verify_checksums=options.verify_checksums)
        self._surveyed: deque[tuple[ExtentEntries, Piece]] = deque()
        self._markers, self._passed = NO_RANGES, [NO_RANGES]
        self._last: Place = (0, 0)
        self._is_past = False
        self._after: Iterator[Piece] | None = None
        self._after_at, self._left, self._after_ms = self._last, 0, 0
        self._reached = False
        self._before: Iterator[Piece] | None = None
        self._markers_before = NO_RANGES

    def decide(self, item: ExtentEntries) -> tuple[LocatedEntries, States] | None:
        """The entries with their states; fewer, or None for none, if the topic's read ends there.

        Raises:
            FormatError, StoreError: of what is read ahead or back.
            UnresolvedTransactionError: an entry's transaction is open, or its end too far away, and it was not planned
                so.
        """
        piece, entries = self._piece_of(item), self._before_cut(item)
        if entries is None:
            return None
        ranges = piece.ranges if self.cut is None else clip(piece.ranges, (0, 0), self.cut)
        states = self._states(ranges, piece.last_ms or 0)
        unsettled = ranges[states == OPEN]
        if len(unsettled) and self._hides_open:
            self._end_before(unsettled)
            entries = self._before_cut(item)
            if entries is None:
                return None
        self._passed.append(piece.markers)
        here = self._markers[:, :2]
        place = np.array([item.extent.ledger_id, entries.entry_ids[-1]])
        later = (here[:, 0] > place[0]) | ((here[:, 0] == place[0]) & (here[:, 1] > place[1]))
        self._markers = self._markers[later]
        return entries, _spread(ranges, states, entries)

    # --- markers and states -------------------------------------------------------------------------

    def _piece_of(self, item: ExtentEntries) -> Piece:
        if self._surveyed and self._surveyed[0][0] is item:
            return self._surveyed.popleft()[1]
        return self._survey(item)

    def _survey(self, item: ExtentEntries) -> Piece:
        assert item.entries is not None
        piece = piece_of(item.extent, [item.entries], 0, verify_checksums=self._options.verify_checksums)
        self._add(piece)
        self._last = piece.stop
        if self._after is not None and self._after_at < self._last:
            self._is_past, self._after = False, None  # the task has come to what was read ahead of it
        return piece

    def _add(self, piece: Piece) -> None:
        if len(piece.markers):
            self._markers = np.concatenate([self._markers, piece.markers])

    def _states(self, ranges: Table, last_ms: int) -> States:
        states = outcomes(ranges, self._markers)
        latest_ms = last_ms + self._options.transaction_timeout_ms
        while len(unknown := np.flatnonzero(states == OPEN)) and self._look_ahead(latest_ms):
            states[unknown] = outcomes(ranges[unknown], self._markers)
        while len(unknown := np.flatnonzero(states == OPEN)):
            earlier = np.concatenate([self._markers_before, *self._passed])
            self._passed = [np.concatenate(self._passed)]
            states[unknown] = outcomes(ranges[unknown], np.concatenate([earlier, self._markers]))
            if not (states == OPEN).any() or not self._look_back():
                break
        return states

    def _look_ahead(self, latest_ms: int) -> bool:
        """Read on; False if there is nothing more, or nothing near enough: in bytes, or published up to `latest_ms`."""
        while not self._is_past:
            item = self._held.ahead()
            if item is None or item.extent.topic != self.topic:
                self._is_past = True
            elif item.entries is not None:
                self._surveyed.append((item, self._survey(item)))
                return True
        if self._after is None:
            self._after, self._after_at = self._reader.forwards(self._extents_after()), self._last
            self._left, self._after_ms = self._options.transaction_search_bytes, 0
        if self._left <= 0 and self._after_ms > latest_ms:
            return False
        piece = next(self._after, None)
        if piece is None:
            self._reached = self._neighbours.reaches_end
            return False
        self._after_at = piece.stop
        self._left -= piece.data_bytes
        self._after_ms = max(self._after_ms, piece.first_ms or 0)
        self._add(piece)
        return True

    def _extents_after(self) -> Iterator[LedgerExtent]:
        """What comes after the last entry that was looked at: of the task, if too much was held, and after it."""
        begin = self._last
        for each in chain(self._extents, self._neighbours.after):
            if each.ledger_id < begin[0]:
                continue
            for extent in extents_around(self._tier, each):
                part = extent.between(begin[1] if extent.ledger_id == begin[0] else 0, None)
                if part is not None:
                    yield part

    def _look_back(self) -> bool:
        """Read back; False if there is nothing more that is near enough."""
        if self._before is None:
            self._before = self._pieces_before()
        piece = next(self._before, None)
        if piece is None:
            return False
        self._markers_before = np.concatenate([piece.markers, self._markers_before])
        return True

    def _pieces_before(self) -> Iterator[Piece]:
        left = self._options.transaction_search_bytes
        # Of the task itself only filtered objects may have had a marker that was not looked at.
        own = (each for each in self._extents if each.ledger_id <= self._met.ledger_id)
        extents = (
            extent
            for each, is_own in [
                *((each, True) for each in reversed(list(own))),
                *((each, False) for each in reversed(self._neighbours.before)),
            ]
            for extent in reversed(extents_around(self._tier, each))
            if extent.marks.is_settled or not is_own
        )
        for piece in self._reader.backwards(extents, first_bytes=STEP_BYTES):
            yield piece
            left -= piece.data_bytes
            if left <= 0:
                return

    # --- where it ends -------------------------------------------------------------------------

    def _before_cut(self, item: ExtentEntries) -> LocatedEntries | None:
        entries, cut, ledger_id = item.entries, self.cut, item.extent.ledger_id
        assert entries is not None
        if cut is None or ledger_id < cut[0]:
            return entries
        count = 0 if ledger_id > cut[0] else int(np.searchsorted(entries.entry_ids, cut[1]))
        array, base, *columns = entries
        return LocatedEntries(array, base, *(each[:count] for each in columns)) if count else None

    def _end_before(self, unsettled: Table) -> None:
        """End the topic's read before an entry whose transaction is open, if its tasks are read in order."""
        if self._ends is not None and self._reached:
            self._ends.set(self.topic, unsettled)
            self.cut = self._ends.of(self.topic)
            return
        ledger_id, entry_id = unsettled[0, :2].tolist()
        raise UnresolvedTransactionError(
            f"a transaction of {self._label} does not end near its entries",
            ledger_id=ledger_id,
            entry_id=entry_id,
            found=name_transactions(unsettled)[1],
            hint="Its marker may be in a ledger that is lost. A larger {transaction_search_bytes} and "
            "{transaction_timeout_ms} search farther for it; {stop} before it, or {isolation=uncommitted}, do without.",
        )


def _spread(ranges: Table, states: States, entries: LocatedEntries) -> States:
    """The state of each entry, by those of ranges."""
    of_entries = np.full(len(entries.entry_ids), COMMITTED, dtype=np.int8)
    firsts, stops = np.searchsorted(entries.entry_ids, ranges[:, 1:3]).T
    counts = stops - firsts
    begins = np.cumsum(counts) - counts
    of_entries[np.repeat(firsts - begins, counts) + np.arange(counts.sum())] = np.repeat(states, counts)
    return of_entries
