"""Entries on their way from an append into the open segment of their topic.

    Arrivals        wakes the topic when enough was appended
    OffloadBuffer   keeps entries in memory between append and offload, within a budget that all topics share
    EntrySource     gives entries in order: from the buffer, else the tail cache, else the hot tier
    SegmentFeed     offers them to the segment, over the ends of ledgers, up to where it closes

An append never waits here: where the budget has no room, the entries are not kept, and are read elsewhere later.
"""

from __future__ import annotations

import enum
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import accumulate

from offload_core.metadata.records import EntryPosition, LedgerRecord
from offload_core.storage.tier import MemoryBudget
from offload_core.writing.managed_ledger.owned_record import OwnedRecord
from offload_core.writing.managed_ledger.streaming.segment_plan import following, stop_in, takes_segment
from offload_core.writing.managed_ledger.streaming.status import EntriesByOrigin
from offload_core.writing.managed_ledger.topic_reader import ENTRY_OVERHEAD_BYTES, LedgersView, TailCache
from offload_core.writing.offload import OfferResult
from offload_core.writing.offload.recorded_segments import RecordedSegment
from offload_hooks.errors import AttemptError, UnknownLedgerError
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerReader, LedgerStore


class Arrivals:
    """Bytes that came to a topic since its last turn.

    Args:
        give_turn: has the topic get one.
    """

    def __init__(self, give_turn: Callable[[], None]) -> None:
        self._give_turn = give_turn
        self._is_woken = self._is_armed = False
        self._fresh_bytes = self._wake_bytes = 0

    def wake(self) -> None:
        """Something may be to be done."""
        if not self._is_woken:
            self._is_woken = True
            self._give_turn()

    def add(self, size_bytes: int) -> None:
        """Count an appended entry, and wake if enough has come."""
        self._fresh_bytes += size_bytes + 1
        if self._fresh_bytes >= self._wake_bytes or not self._is_armed:
            self.wake()

    def begin_turn(self) -> None:
        """Begin the turn that was asked for."""
        self._is_woken = False

    def disarm(self) -> None:
        """Wake at the next entry, whatever its size."""
        self._is_armed = False

    def rest(self, wake_bytes: int) -> None:
        """Do not wake before a number of bytes has come."""
        self._fresh_bytes, self._wake_bytes, self._is_armed = 0, wake_bytes, True


_Kept = tuple[int, int, int, int, Sequence[bytes]]
"""Ledger, first entry, one past the last, bytes taken, payloads."""


class OffloadBuffer:
    """The buffer of one topic, until it is closed."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._put: list[_Kept] = []  # a heap
        self._in_order: deque[_Kept] = deque()  # those of it that follow one another
        self._closed = False
        self.used_bytes = 0

    def put(self, ledger_id: int, first_entry_id: int, payloads: Sequence[bytes]) -> bool:
        """Keep entries that follow one another; return True if there was room for them."""
        taken = sum(map(len, payloads)) + ENTRY_OVERHEAD_BYTES * len(payloads)
        if not self._budget.try_take(taken):
            return False
        with self._lock:
            if self._closed:
                self._budget.give_back(taken)
                return False
            heappush(self._put, (ledger_id, first_entry_id, first_entry_id + len(payloads), taken, payloads))
            self.used_bytes += taken
        return True

    def get(self, ledger_id: int, first_entry_id: int, stop: int, max_bytes: int) -> EntryBatch | None:
        """Entries of a ledger from `first_entry_id` on and before `stop`, about `max_bytes`; None if it is not here.

        What is given stays, until it is passed.
        """
        self.drop_before(ledger_id, first_entry_id)
        with self._lock:
            if self._in_order and self._in_order[0][:2] > (ledger_id, first_entry_id):
                for each in self._in_order:  # it was asked for something earlier again
                    heappush(self._put, each)
                self._in_order.clear()
            self._line_up(ledger_id, first_entry_id, max_bytes)
            payloads: list[bytes] = []
            size, begin = 0, None
            for _, first, _, _, kept in self._in_order:
                begin = first if begin is None else begin
                payloads += kept
                size += sum(map(len, kept))
                if size >= max_bytes:
                    break
        if begin is None:
            return None
        skipped = first_entry_id - begin
        payloads = payloads[skipped : skipped + stop - first_entry_id]
        offsets = array("q", accumulate(map(len, payloads), initial=0))
        return EntryBatch(first_entry_id, memoryview(b"".join(payloads)), memoryview(offsets))

    def drop_before(self, ledger_id: int, entry_id: int) -> None:
        """Drop all entries before this one."""
        with self._lock:
            while self._in_order and _stop(self._in_order[0]) <= (ledger_id, entry_id):
                self._give_back(self._in_order.popleft())
            while self._put and _stop(self._put[0]) <= (ledger_id, entry_id):
                self._give_back(heappop(self._put))

    def close(self) -> None:
        """Forget all, and keep nothing any more."""
        with self._lock:
            self._closed = True
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._put.clear()
            self._in_order.clear()
            self._budget.give_back(self.used_bytes)
            self.used_bytes = 0

    def _line_up(self, ledger_id: int, entry_id: int, max_bytes: int) -> None:
        """Move the entries from this one on to `_in_order`."""
        size = sum(taken for _, _, _, taken, _ in self._in_order)
        if self._in_order:
            entry_id = self._in_order[-1][2]
        while self._put and size < max_bytes:
            kept = self._put[0]
            if _stop(kept) <= (ledger_id, entry_id):
                self._give_back(heappop(self._put))
            elif kept[0] == ledger_id and kept[1] <= entry_id:
                self._in_order.append(heappop(self._put))
                size, entry_id = size + kept[3], kept[2]
            else:
                break

    def _give_back(self, kept: _Kept) -> None:
        self._budget.give_back(kept[3])
        self.used_bytes -= kept[3]


def _stop(kept: _Kept) -> tuple[int, int]:
    return kept[0], kept[2]


class EntrySource:
    """Read the entries of one topic in their order; used by one thread at a time.

    `counts` has how many of those that were taken came from where.
    """

    def __init__(self, buffer: OffloadBuffer, cache: TailCache, hot: LedgerStore) -> None:
        self._buffer = buffer
        self._cache = cache
        self._hot = hot
        self._reader: LedgerReader | None = None
        self._origin = "hot"
        self.counts = EntriesByOrigin()

    def read(self, ledger_id: int, first_entry_id: int, stop: int) -> EntryBatch:
        """Some acknowledged entries of a ledger, from `first_entry_id` on and before `stop`; at least one.

        Errors as `LedgerStore.open` and `LedgerReader.read`.
        """
        entries = self._buffer.get(ledger_id, first_entry_id, stop, DEFAULT_READ_BYTES)
        if entries is not None:
            self._origin = "buffer"
            return entries
        entries = self._cache.get(ledger_id, first_entry_id, stop - 1, DEFAULT_READ_BYTES)
        if entries is not None:
            self._origin = "cache"
            return entries
        if self._reader is not None and self._reader.ledger_id != ledger_id:
            self.rest()
        if self._reader is None:
            self._reader = self._hot.open(ledger_id)
        entries = self._reader.read(first_entry_id, stop - 1, DEFAULT_READ_BYTES)
        self._origin = "hot"
        return entries

    def pass_by(self, accepted: int, ledger_id: int, next_entry_id: int) -> None:
        """Count the entries that were accepted, and go on with the next one."""
        self._buffer.drop_before(ledger_id, next_entry_id)
        self.counts = replace(self.counts, **{self._origin: getattr(self.counts, self._origin) + accepted})

    def rest(self) -> None:
        """Release what reading holds."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


LOOKS = 8
"""Requests for memory before entries that were refused are read and offered again."""
STALLED_STEPS = 20
"""Steps in a row without memory after which the lack counts as lasting."""


class Fed(enum.Enum):
    """The result of a step of feeding."""

    MORE = "more can be fed at once"
    ALL = "nothing is left that is acknowledged, and that the filter decides of"
    FULL = "there is no memory just now"
    STALLED = "nor was there any"
    STARVED = "nor was there any for long: some segment is to be closed early"
    CLOSED = "the segment is closed"


class SegmentFeed:
    """Feeds the segments of one topic; used by one thread at a time."""

    def __init__(self, source: EntrySource, owned: OwnedRecord, view: Callable[[], LedgersView]) -> None:
        self._source = source
        self._owned = owned
        self._view = view
        self._refused_bytes: int | None = None
        self._looks = self._stalled = 0

    def step(self, segment: RecordedSegment, *, is_on: bool, close_after: EntryPosition | None) -> Fed:
        """Offer some entries, go on into the next ledger, or close the segment.

        Args:
            is_on: else a segment that is open ends with its ledger.
            close_after: the segment's last entry, if it does not close before.

        Raises:
            UnknownLedgerError: a ledger was deleted.
            OffloadError: of the hot tier and the record.
        """
        view, (ledger_id, next_id) = self._view(), (segment.next.ledger_id, segment.next.entry_id)
        ledger = self._owned.info.ledger(ledger_id)
        if ledger is None or not view.has(ledger_id):
            raise UnknownLedgerError("a ledger of the open segment was deleted", ledger_id=ledger_id)
        ended = ledger.info if ledger.info.is_closed and ledger.info.entries == next_id else None
        if close_after is not None and segment.next > close_after:
            segment.close(ended)
            return Fed.CLOSED
        stop = stop_in(ledger_id, view.entry_count(view.find(ledger_id)), segment.stop)
        if segment.end is not None and segment.end.ledger_id == ledger_id:
            stop = min(stop, segment.end.entry_id + 1)
        if next_id < stop:
            fed = self._offer(segment, ledger_id, next_id, stop)
            self._stalled = self._stalled % STALLED_STEPS + 1 if fed is Fed.STALLED else 0
            return Fed.STARVED if self._stalled == STALLED_STEPS else fed
        if ended is None:
            return Fed.ALL
        after = following(self._owned.read(), ledger_id)
        if segment.end is None and (not is_on or _is_border(after, segment)):
            segment.close(ended)
            return Fed.CLOSED
        if after is None:
            return Fed.ALL
        segment.extend(ended, after.ledger_id)
        return Fed.MORE

    def _offer(self, segment: RecordedSegment, ledger_id: int, first: int, stop: int) -> Fed:
        refused, self._looks = self._refused_bytes, self._looks + 1
        if refused is not None and self._looks < LOOKS and not segment.can_offer(refused):
            return Fed.STALLED
        entries = self._source.read(ledger_id, first, stop)
        offered = segment.offer(ledger_id, entries)
        self._refused_bytes, self._looks = None, 0
        self._source.pass_by(offered.accepted, ledger_id, first + offered.accepted)
        if offered.result is OfferResult.NOT_CONSECUTIVE:
            raise AttemptError("a segment was offered another entry than its next", ledger_id=ledger_id)
        if segment.is_closed:
            return Fed.CLOSED
        if offered.result is OfferResult.BUFFER_FULL:
            lengths = entries.offsets[offered.accepted : offered.accepted + 2]
            self._refused_bytes = int(lengths[1] - lengths[0])
            return Fed.FULL if offered.accepted else Fed.STALLED
        return Fed.MORE


def _is_border(after: LedgerRecord | None, segment: RecordedSegment) -> bool:
    """True if a segment cannot go on into the ledger that comes next."""
    return after is not None and not takes_segment(after, segment.uuid)
