"""Plan the segments of a topic: where the next one begins, how far it can go, when it closes.

A segment begins directly after what is offloaded of a ledger, in the oldest ledger that is not offloaded as a whole. It
goes on into the next ledger, unless that has a copy of its own, or streaming was switched off: then it ends with its
ledger.

A segment of sealed ledgers ends with the entry whose payload reaches the size that is set. The ledgers' sizes are in
the record; within the last ledger the entry is found by binary search, if the hot tier knows sizes. PIP-76 plans
history so, before it is offloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from uuid import UUID

from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.segments import (
    Segment,
    offered_stop,
    share_of,
    shares_of,
    unfinished_segment,
)
from offload_core.writing.managed_ledger.owned_record import OwnedRecord
from offload_core.writing.managed_ledger.streaming.status import SegmentWaiters
from offload_core.writing.managed_ledger.topic_reader import LedgersView
from offload_core.writing.offload.recorded_segments import RecordedSegment, StreamingSettings
from offload_hooks.ledger_stores import LedgerStore, SizedLedgerReader


def next_begin(info: ManagedLedgerInfo, *, is_on: bool) -> EntryPosition | None:
    """Return the begin of the next segment, all segments being complete; None if there is no ledger for it.

    Switched off, only a ledger that is partly in segments is continued.
    """
    for ledger in info.in_order:
        stop = offered_stop(ledger)
        if (
            ledger.is_marked_for_deletion
            or has_whole_copy(ledger)
            or (ledger.info.is_closed and stop >= (ledger.info.entries or 0))
        ):
            continue
        if is_on or shares_of(ledger):
            return EntryPosition(ledger.ledger_id, stop)
    return None


def is_left(info: ManagedLedgerInfo) -> bool:
    """True if segments have something to finish, also where streaming is off."""
    return unfinished_segment(info) is not None or next_begin(info, is_on=False) is not None


def has_whole_copy(ledger: LedgerRecord) -> bool:
    """True if segments have nothing to do with a ledger: it is offloaded as a whole, or to be deleted."""
    context = ledger.context
    return context is not None and not context.segments and (context.complete or context.bookkeeper_deleted)


def has_attempt(ledger: LedgerRecord) -> bool:
    """True if an offload of the whole ledger is under way, or was left."""
    context = ledger.context
    return (
        context is not None
        and context.uuid is not None
        and not context.segments
        and not has_whole_copy(ledger)
    )


def following(info: ManagedLedgerInfo, ledger_id: int) -> LedgerRecord | None:
    """The next ledger that has or may get entries; None if there is none yet."""
    return next(all_following(info, ledger_id), None)


def all_following(info: ManagedLedgerInfo, ledger_id: int) -> Iterator[LedgerRecord]:
    """The ledgers after one that have or may get entries, in their order."""
    return (
        ledger
        for ledger in info.in_order
        if ledger.ledger_id > ledger_id and not (ledger.info.is_closed and not ledger.info.entries)
    )


def takes_segment(ledger: LedgerRecord, uuid: UUID | None = None) -> bool:
    """True if a segment of the ledger before may go on into this one, or, if it is this one, has."""
    context = ledger.context
    if context is None or (uuid is not None and share_of(ledger, uuid) is not None):
        return True
    return context.uuid is None and ledger.has_hot_copy


def stop_in(ledger_id: int, stop: int, bound: EntryPosition | None) -> int:
    """A ledger's entries before `stop` end there, or at a bound that lies before it."""
    if bound is None or ledger_id < bound.ledger_id:
        return stop
    return min(stop, bound.entry_id) if ledger_id == bound.ledger_id else 0


def can_be_whole(info: ManagedLedgerInfo, segment: Segment) -> bool:
    """True if the entries of an unfinished segment exist: of a ledger that was cut, they may have gone."""
    known = (position for position in (segment.begin, segment.end) if position is not None)
    return all(_may_have(info.ledger(position.ledger_id), position) for position in known)


def _may_have(ledger: LedgerRecord | None, position: EntryPosition) -> bool:
    """True if a ledger has an entry, or may get it; one that was deleted need not."""
    return ledger is None or not ledger.info.is_closed or position.entry_id < (ledger.info.entries or 0)


def pending_bytes(
    info: ManagedLedgerInfo,
    view: LedgersView,
    begin: EntryPosition,
    enough: int,
    stop: EntryPosition | None = None,
) -> int:
    """About how many bytes of payloads are acknowledged from a position on, before `stop`; 0 only if there is no entry.

    No more is counted than enough.
    """
    found = 0
    for place in range(view.find(begin.ledger_id), len(view.ledger_ids)):
        ledger_id, count = view.ledger_ids[place], view.entry_count(place)
        first = begin.entry_id if ledger_id == begin.ledger_id else 0
        end = stop_in(ledger_id, count, stop)
        if first >= end:
            continue
        writer = view.writer
        if writer is not None and writer.ledger_id == ledger_id:
            size = writer.status.size_bytes
        else:
            ledger = info.ledger(ledger_id)
            size = 0 if ledger is None else ledger.info.size or 0
        found += max(1, size * (end - first) // count)
        if found >= enough:
            break
    return found


def planned_end(
    info: ManagedLedgerInfo, begin: EntryPosition, max_bytes: int, hot: LedgerStore
) -> EntryPosition | None:
    """The last entry of a segment that begins there; None if the sealed ledgers have no more than it may.

    None too if the hot tier does not know sizes. Errors as `LedgerStore.open` and `LedgerReader.read`.
    """
    begins_in, left, first = info.ledger(begin.ledger_id), max_bytes, begin.entry_id
    if begins_in is None:
        return None
    for ledger in (begins_in, *all_following(info, begin.ledger_id)):
        if not ledger.info.is_closed or (ledger is not begins_in and not takes_segment(ledger)):
            return None
        size = ledger.info.size or 0
        if first or size >= left:
            with closing(hot.open(ledger.ledger_id)) as reader:
                if not isinstance(reader, SizedLedgerReader):
                    return None
                before = reader.size_before(first) if first else 0
                if size - before >= left:
                    return EntryPosition(
                        ledger.ledger_id, _reaching(reader, first, ledger.info.entries or 0, before + left)
                    )
                left -= size - before
        else:
            left -= size
        first = 0
    return None


def _reaching(reader: SizedLedgerReader, first: int, stop: int, size: int) -> int:
    """The first entry from `first` on with which a number of bytes is reached; the last one if none."""
    low, high = first, stop - 1
    while low < high:
        middle = (low + high) // 2
        if reader.size_before(middle + 1) >= size:
            high = middle
        else:
            low = middle + 1
    return low


class SegmentDue:
    """The rules by which a topic's segments begin and close, see the module.

    Args:
        bounds: of its segments until `set` gives others.

    Attributes:
        settings: by which it is streamed; None if it is not.
        bounds: of its segments, also where it is not streamed any more.
        since_ms: since when entries wait, in ms since 1970, UTC; None if none do.
        closes_early: the open segment is to close with what there is: it has an end, or its memory is needed.
    """

    def __init__(
        self,
        owned: OwnedRecord,
        view: Callable[[], LedgersView],
        waiters: SegmentWaiters,
        bounds: StreamingSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self._owned = owned
        self._view = view
        self._waiters = waiters
        self._now_ms = now_ms
        self.bounds = bounds
        self.settings: StreamingSettings | None = None
        self.since_ms: int | None = None
        self.closes_early = False
        self._is_known = False  # since when entries wait

    def set(self, settings: StreamingSettings | None) -> None:
        """Stream the topic by these from now on; None stops that."""
        self.settings = settings
        if settings is not None:
            self.bounds = settings

    @property
    def is_on(self) -> bool:
        """True if it is streamed."""
        return self.settings is not None

    def note_waiting(self, begin: EntryPosition) -> None:
        """Entries from a position on wait from now on, if they did not before.

        What waits when the topic is opened does so since its ledger was sealed at least: a topic that is opened again
        and again would have no segment closed by age.
        """
        if self.since_ms is None:
            ledger = None if self._is_known else self._owned.info.ledger(begin.ledger_id)
            sealed_ms = None if ledger is None or not ledger.info.is_closed else ledger.info.timestamp_ms
            now_ms = self._now_ms()
            self.since_ms = min(now_ms, sealed_ms or now_ms)
        self._is_known = True

    def hold(self) -> None:
        """Nothing that waits may go yet: it waits from when it may."""
        self.since_ms, self._is_known = None, True

    def pending(
        self, info: ManagedLedgerInfo, begin: EntryPosition, stop: EntryPosition | None = None
    ) -> int:
        """About how much is acknowledged from a position on, before `stop`; no more is counted than a feed has."""
        return pending_bytes(info, self._view(), begin, self.bounds.feed_bytes, stop)

    def is_enough(self, pending: int) -> bool:
        """True if the pending bytes are enough to be fed at once."""
        return pending >= self.bounds.feed_bytes

    def is_due(self, begin: EntryPosition, stop: EntryPosition | None = None) -> bool:
        """True if a segment that begins there is to close with what there is, before `stop`."""
        if self.closes_early or self._waiters:
            return True
        if self.since_ms is not None:
            self.since_ms = min(self.since_ms, now_ms := self._now_ms())  # a clock may be put back
            if now_ms >= self.since_ms + self.bounds.max_age_ms:
                return True
        if self.is_on:
            return False
        ledger = self._owned.info.ledger(begin.ledger_id)
        if ledger is None or not ledger.info.is_closed:
            return False
        entries = ledger.info.entries or 0
        return stop_in(ledger.ledger_id, entries, stop) == entries

    def wants_look(self, segment: RecordedSegment, close_after: EntryPosition | None, is_asked: bool) -> bool:
        """True if an open segment's filter is to be asked: more could be fed, or closed with, than it has decided of.

        Args:
            close_after: the segment's last entry, if known.
            is_asked: the filter is to be asked where it can be.
        """
        if segment.filter is None:
            return False
        info = self._owned.info
        waiting, settled = (self.pending(info, segment.next, stop) for stop in (None, segment.stop))
        if close_after is not None:
            return waiting > 0 and not settled
        if not self.is_enough(waiting) and not self.is_due(segment.begin):
            return False
        return is_asked or (settled < waiting and not self.is_enough(settled))
