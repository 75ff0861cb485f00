"""Up to where a topic's entries may be offloaded, as its filter says when it is asked: now and then, not at each step.

asked        where more could be offloaded than it has decided of, and by hand
held         it does not decide of all that is acknowledged: it is asked again after a pause, longer each time that
             it says the same
stuck        held for several times: what is behind its stop is not kept in memory any more
"""

from __future__ import annotations

from collections.abc import Callable

from offload_core.filters import FilterRun
from offload_core.managed_ledger.streaming.retry_pause import RetryPause
from offload_core.managed_ledger.view import LedgersView
from offload_core.metadata import EntryPosition
from offload_core.offload.segment_filter import SegmentFilter

OpenRun = Callable[[EntryPosition], FilterRun | None]
"""The run of a topic's filter over what is offloaded next, up to this entry; see `open_filter`."""

STUCK_LOOKS = 3


class FilterLooks:
    """Asks the filter of one topic; used by one thread at a time, but for `ask`.

    Attributes:
        stop: the first position that must not be offloaded yet; None if nothing is filtered.
        waits_for: in words, what the entries from `stop` on wait for; None if there are none.
    """

    def __init__(self, open_run: OpenRun, now_ms: Callable[[], int]) -> None:
        self._open_run = open_run
        self._now_ms = now_ms
        self._run: FilterRun | None = None
        self._pause = RetryPause()
        self.stop: EntryPosition | None = None
        self.waits_for: str | None = None
        self.is_asked = False

    def ask(self) -> None:
        """Have it be asked at once when the next look is due, pause or not; by any thread."""
        self.is_asked = True

    def look(self, view: LedgersView) -> bool:
        """Ask the filter, unless there is a pause; whether it was asked. Errors as `open_filter`."""
        last = view.last_position()
        if last is None or not (self.is_asked or self._pause.is_over(self._now_ms())):
            return False
        self.is_asked = False
        run, before, end = self._open_run(last), self.stop, EntryPosition(last.ledger_id, last.entry_id + 1)
        self._run = run
        if run is None:
            self.stop = None
        else:  # of what comes later it is asked later, also if it has no bound: by then it may have one
            self.stop = end if run.stop is None else min(run.stop, end)
        if self.stop != before:
            self._pause.failures = 0
        if run is None or self.stop == end:
            self.waits_for = self._pause.until_ms = None
            self._pause.failures = 0
        else:
            self.waits_for = run.waits_for
            self._pause.begin(self._now_ms())
        return True

    @property
    def next_look_ms(self) -> int | None:
        """When the pause is over that it has now, in ms since 1970, UTC; None if it has none."""
        return None if self._pause.is_over(self._now_ms()) else self._pause.until_ms

    @property
    def is_stuck(self) -> bool:
        """Whether it has held the same entries up for several times."""
        return self._pause.failures >= STUCK_LOOKS

    def holds(self, first: EntryPosition, last: EntryPosition) -> bool:
        """Whether it holds up all from `first` to `last`, if that is anything."""
        return self.waits_for is not None and self.stop is not None and self.stop <= first <= last

    def new_filter(self) -> SegmentFilter | None:
        """The filter of a new segment, as it was when it was asked last; None for none."""
        return None if self._run is None else SegmentFilter(self._run, self.stop)

    def continues(self, segment_filter: SegmentFilter | None) -> bool:
        """Let a segment's filter go on as far as it does now; false if it is another one now."""
        if self._run is None or segment_filter is None or not segment_filter.is_as(self._run):
            return self._run is None and segment_filter is None
        segment_filter.go_on(self._run, self.stop)
        return True
