"""Entries of a topic's transactions that were committed, aborted, or are open, in a range of positions.

Ranges of entries are joined with the markers after them: the first marker of its transaction after an entry decides.
Without one the entry is open, unless the transaction was aborted before it: what a producer sends to it then is
aborted, too. The pass goes over the range, on after it while a transaction has no marker yet, and back by a bounded
number of bytes for transactions that were aborted before it. Of objects that a filter has cleaned only markers count:
all entries that remain in them were committed. The reference implementation is in `tests/support`. Source:
docs/transactions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count, islice

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.messages.kernels.entry_fields import ABORTED, COMMITTED, OPEN
from offload_core.format.messages.kernels.transaction_ranges import ABORT, COMMIT
from offload_core.metadata.catalogue import Ledger, Topic, concurrently
from offload_core.reading.scan.extents import read_ledger
from offload_core.reading.scan.tasks import EntryRanges
from offload_core.reading.scan.transactions.summaries import (
    MOST_WORKERS,
    SummaryMemory,
    SummaryStore,
    SurveyedExtent,
    survey,
)
from offload_core.storage.tier import Tier

Table = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def outcomes(ranges: Table, markers: Table) -> npt.NDArray[np.int8]:
    """The state of each range: `COMMITTED`, `ABORTED` or `OPEN`.

    Args:
        ranges: int64; part, first entry, most and least bits of the transaction, a row each. No marker of its
            transaction lies inside of a range.
        markers: int64; part, entry, most and least bits, type. Types other than commit and abort decide nothing.
    """
    deciding = markers[np.isin(markers[:, 4], (COMMIT, ABORT))]
    events = np.concatenate([ranges[:, :4], deciding[:, :4]])
    order = np.lexsort((events[:, 1], events[:, 0], events[:, 3], events[:, 2]))
    is_marker = order >= len(ranges)
    is_abort = np.append(np.zeros(len(ranges), dtype=np.bool_), deciding[:, 4] == ABORT)[order]
    transaction = _numbered(events[order, 2:4])
    places = np.arange(len(order))
    before = np.maximum.accumulate(np.where(is_marker, places, -1))
    after = np.minimum.accumulate(np.where(is_marker, places, len(order))[::-1])[::-1]
    states = np.full(len(order), OPEN, dtype=np.int8)
    has_before, has_after = _of_same(transaction, before), _of_same(transaction, after)
    states[has_before] = np.where(is_abort[before[has_before]], ABORTED, OPEN)
    states[has_after] = np.where(is_abort[after[has_after]], ABORTED, COMMITTED)
    found = np.empty(len(ranges), dtype=np.int8)
    found[order[~is_marker]] = states[~is_marker]
    return found


def _numbered(ids: Table) -> Table:
    """Sorted rows as numbers: the same for the same row."""
    if len(ids) == 0:
        return np.empty(0, dtype=np.int64)
    changes = (ids[1:] != ids[:-1]).any(axis=1)
    return np.append(0, np.cumsum(changes))


def _of_same(transaction: Table, nearest: Table) -> Flags:
    """True where the event at `nearest` exists and is of the same transaction."""
    there: Flags = (nearest >= 0) & (nearest < len(nearest))
    there[there] = transaction[nearest[there]] == transaction[there]
    return there


Place = tuple[int, int]
"""Ledger and entry."""

END = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicExtents:
    """The extents of a topic whose transactions are looked up.

    Attributes:
        known: ledgers whose index has been read since the topic was listed, by id.
        whole: extents are whole, as stored summaries are; otherwise they are the blocks that are needed.
    """

    tier: Tier
    topic: Topic
    known: Mapping[int, Ledger]
    whole: bool

    def since(self, start: Place, stop: Place) -> Iterator[SurveyedExtent]:
        """Extents from a position on, in order; what comes after `stop` is in extents of its own."""
        for ledger in self._ledgers(start[0], stop[0]):
            begin = start[1] if ledger.ledger_id == start[0] else 0
            for extent in ledger.extents:
                end = END if extent.stop_entry_id is None else extent.stop_entry_id
                if extent.blocks and end > begin:
                    whole = _whole(ledger, extent, max(begin, extent.first_entry_id), end)
                    yield from self._split(whole, begin, stop)

    def before(self, start: Place) -> Iterator[SurveyedExtent]:
        """Extents before a position, the nearest first, block by block unless they are whole."""
        for ledger in reversed(self.topic.ledgers):
            if ledger.ledger_id > start[0] or (ledger.ledger_id == start[0] and not start[1]):
                continue
            read = read_ledger(self.tier, self.known.get(ledger.ledger_id, ledger))
            stop = start[1] if ledger.ledger_id == start[0] else END
            for extent in reversed(read.extents):
                end = stop if extent.stop_entry_id is None else min(stop, extent.stop_entry_id)
                if not extent.blocks or end <= extent.first_entry_id:
                    continue
                whole = _whole(read, extent, extent.first_entry_id, end)
                if self.whole:
                    yield whole
                    continue
                for number in reversed(range(int(np.searchsorted(extent.blocks.first_entry_ids, end)))):
                    yield whole.with_blocks(extent.blocks[number : number + 1])

    def _ledgers(self, first_ledger: int, last_ledger: int) -> Iterator[Ledger]:
        """The ledgers from one on, with their indexes; those after the last are read a few at a time."""
        from_there = [
            self.known.get(ledger.ledger_id, ledger)
            for ledger in self.topic.ledgers
            if ledger.ledger_id >= first_ledger
        ]
        begin, count = 0, sum(ledger.ledger_id <= last_ledger for ledger in from_there)
        while begin < len(from_there):
            some = from_there[begin : begin + max(count, MOST_WORKERS)]
            yield from concurrently(partial(read_ledger, self.tier), some)
            begin, count = begin + len(some), 0

    def _split(self, whole: SurveyedExtent, begin: int, stop: Place) -> Iterator[SurveyedExtent]:
        """Split off the blocks that are needed, those after the stop apart, unless extents must be whole."""
        if self.whole:
            yield whole
            return
        blocks = whole.extent.blocks
        blocks = blocks[max(int(np.searchsorted(blocks.first_entry_ids, begin, side="right")) - 1, 0) :]
        here = len(blocks)
        if whole.extent.ledger_id >= stop[0]:
            below = stop[1] if whole.extent.ledger_id == stop[0] else 0
            here = int(np.searchsorted(blocks.first_entry_ids, below))
        for some in (blocks[:here], blocks[here:]):
            if some:
                yield whole.with_blocks(some)


def _whole(ledger: Ledger, extent: LedgerExtent, begin: int, end: int) -> SurveyedExtent:
    return SurveyedExtent(
        extent=replace(extent, begin_entry_id=None, stop_entry_id=None),
        object_bytes=ledger.stored(extent).data_bytes or 0,
        begin=begin,
        end=end,
    )


LOOK_BACK_BYTES = 128 << 20
"""Stored bytes before a range in which an abort is searched for; up to a ledger more where parts are whole."""

_NAMED = 10
"""Most open transactions that are named."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The entries that were aborted, and those that are open, by data object and ledger.

    Attributes:
        unsettled: ledger, first entry, and transaction (most and least bits) of the ranges of entries that are open.
    """

    aborted: Mapping[tuple[str, int], EntryRanges]
    open: Mapping[tuple[str, int], EntryRanges]
    unsettled: Sequence[tuple[int, int, int, int]] = ()

    @property
    def first_open(self) -> Place | None:
        """The position of the first open entry."""
        return self.unsettled[0][:2] if self.unsettled else None

    def name_open(self) -> tuple[int, str]:
        """The number of open transactions, and the first of them with their positions."""
        firsts: dict[tuple[int, int], str] = {}
        for ledger_id, entry_id, *transaction in self.unsettled:
            firsts.setdefault((transaction[0], transaction[1]), f"{ledger_id}:{entry_id}")
        named = [f"({most},{least}) at {place}" for (most, least), place in firsts.items()]
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        return len(named), ", ".join(named[:_NAMED]) + more


NOTHING = Outcome(aborted={}, open={})

Numbered = tuple[int, SurveyedExtent]
"""An extent and its number: in the order of the topic, from 0 on, and negative before the range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLook:
    """Find outcomes of topics' transactions.

    Attributes:
        kept: the store of summaries; None for none.
        memory: the summaries of this process; None for none.
    """

    tier: Tier
    verify_checksums: bool
    kept: SummaryStore | None = None
    memory: SummaryMemory | None = None

    def look(self, topic: Topic, known: Mapping[int, Ledger], start: Place, stop: Place) -> Outcome:
        """Find the outcome of the transactions of a topic's entries from `start` up to `stop`.

        `known` are ledgers whose index has been read since the topic was listed, by id.

        Raises:
            FormatError, StoreError: of the objects that are read.
        """
        parts = _TopicExtents(tier=self.tier, topic=topic, known=known, whole=self.kept is not None)
        after: Iterator[Numbered] = enumerate(parts.since(start, stop))
        within: list[Numbered] = []
        for each in after:
            if each[1].first >= stop:
                after = chain([each], after)
                break
            within.append(each)
        ranges, markers = self._survey([each for each in within if not each[1].markers_only])
        ledger_ids = np.array([each.extent.ledger_id for _, each in within], dtype=np.int64)
        in_ledger = ledger_ids[ranges[:, 0]]
        ranges = ranges[(in_ledger < stop[0]) | ((in_ledger == stop[0]) & (ranges[:, 1] < stop[1]))]
        states = outcomes(ranges[:, [0, 1, 3, 4]], markers)
        if len(unknown := np.flatnonzero(states == OPEN)):
            first = ranges[unknown[0], 0]
            filtered = [each for each in within if each[1].markers_only]
            later = [each for each in filtered if each[0] > first]
            earlier = filtered[: len(filtered) - len(later)]
            before = zip(count(-1, -1), parts.before(start), strict=False)
            self._settle_after(chain(later, after), ranges, states)
            self._settle_before(chain(reversed(earlier), before), ranges, markers, states)
        return _judge([each for _, each in within], ranges, states)

    def _settle_after(self, after: Iterator[Numbered], ranges: Table, states: npt.NDArray[np.int8]) -> None:
        """Settle open ranges by markers after the range, as far as there are any."""
        while len(unknown := np.flatnonzero(states == OPEN)):
            following = list(islice(after, MOST_WORKERS))
            if not following:
                break
            _, later = self._survey(following)
            states[unknown] = outcomes(ranges[unknown][:, [0, 1, 3, 4]], later)

    def _settle_before(
        self, before: Iterator[Numbered], ranges: Table, markers: Table, states: npt.NDArray[np.int8]
    ) -> None:
        """Settle open ranges of transactions that were aborted before the range."""
        left, together = LOOK_BACK_BYTES, [markers]
        while left > 0 and len(unknown := np.flatnonzero(states == OPEN)):
            nearest: list[Numbered] = []
            for each in islice(before, MOST_WORKERS):
                nearest.append(each)
                left -= each[1].extent.data_bytes
                if left <= 0:
                    break
            if not nearest:
                break
            _, earlier = self._survey(nearest[::-1])
            together.insert(0, earlier)
            states[unknown] = outcomes(ranges[unknown][:, [0, 1, 3, 4]], np.concatenate(together))

    def _survey(self, parts: Sequence[Numbered]) -> tuple[Table, Table]:
        """Ranges (part, first, stop, most, least) and markers (part, entry, most, least, type) of parts."""
        summaries = survey(
            self.tier,
            [each for _, each in parts],
            kept=self.kept,
            memory=self.memory,
            verify_checksums=self.verify_checksums,
        )
        ranges, markers = [np.empty((0, 5), dtype=np.int64)], [np.empty((0, 5), dtype=np.int64)]
        for (number, surveyed), summary in zip(parts, summaries, strict=True):
            clipped, its_markers = surveyed.clip(summary)
            ranges.append(np.insert(clipped, 0, number, axis=1))
            markers.append(np.insert(its_markers[:, [0, 2, 3, 1]], 0, number, axis=1))
        return np.concatenate(ranges), np.concatenate(markers)


def _judge(parts: Sequence[SurveyedExtent], ranges: Table, states: npt.NDArray[np.int8]) -> Outcome:
    by_state: dict[int, dict[tuple[str, int], EntryRanges]] = {ABORTED: {}, OPEN: {}}
    for state, found in by_state.items():
        of_state = ranges[states == state]
        numbers, begins = np.unique(of_state[:, 0], return_index=True)
        for i, bounds in zip(numbers.tolist(), np.split(of_state[:, 1:3], begins[1:]), strict=False):
            extent = parts[i].extent
            found[(extent.data_key, extent.ledger_id)] = EntryRanges.of(bounds)
    unsettled = [
        (parts[part].extent.ledger_id, first, most, least)
        for part, first, _, most, least in ranges[states == OPEN].tolist()
    ]
    return Outcome(aborted=by_state[ABORTED], open=by_state[OPEN], unsettled=unsettled)
