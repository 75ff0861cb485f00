"""When a topic's next segment is begun, and when the open one closes: how much waits, and since when.

What waits is acknowledged and not offloaded; of a topic with a filter, that part counts which is before a stop.
"""

from __future__ import annotations

from collections.abc import Callable

from offload_core.managed_ledger.owned_record import OwnedRecord
from offload_core.managed_ledger.streaming.plan import pending_bytes, stop_in
from offload_core.managed_ledger.streaming.settings import StreamingSettings
from offload_core.managed_ledger.streaming.waiters import SegmentWaiters
from offload_core.managed_ledger.view import LedgersView
from offload_core.metadata import EntryPosition, ManagedLedgerInfo
from offload_core.offload.recorded_segments import RecordedSegment


class SegmentDue:
    """Tells it of one topic, see the module.

    Args:
        bounds: of its segments until `set` has said others.

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

    def set(self, settings: StreamingSettings | None) -> None:
        """It is streamed by these from now on; None: not any more."""
        self.settings = settings
        if settings is not None:
            self.bounds = settings

    @property
    def is_on(self) -> bool:
        """Whether it is streamed."""
        return self.settings is not None

    def note_waiting(self) -> None:
        """Entries wait from now on, if they did not before."""
        if self.since_ms is None:
            self.since_ms = self._now_ms()

    def pending(
        self, info: ManagedLedgerInfo, begin: EntryPosition, stop: EntryPosition | None = None
    ) -> int:
        """About how much is acknowledged from a position on, before `stop`; no more is counted than a feed has."""
        return pending_bytes(info, self._view(), begin, self.bounds.feed_bytes, stop)

    def is_enough(self, pending: int) -> bool:
        """Whether so much is fed at once."""
        return pending >= self.bounds.feed_bytes

    def is_due(self, begin: EntryPosition, stop: EntryPosition | None = None) -> bool:
        """Whether a segment that begins there is to close with what there is, before `stop`."""
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

    def wants_look(
        self, segment: RecordedSegment, close_behind: EntryPosition | None, is_asked: bool
    ) -> bool:
        """Whether an open segment's filter is to be asked: more could be fed, or closed with, than it has decided of.

        Args:
            close_behind: where the segment closes, if that is known.
            is_asked: somebody wants it to be asked where it can be.
        """
        if segment.filter is None:
            return False
        info = self._owned.info
        waiting, settled = (self.pending(info, segment.next, stop) for stop in (None, segment.stop))
        if close_behind is not None:
            return waiting > 0 and not settled
        if not self.is_enough(waiting) and not self.is_due(segment.begin):
            return False
        return is_asked or (settled < waiting and not self.is_enough(settled))
