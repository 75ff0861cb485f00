"""Streams one topic: its entries to segment after segment, in turns that a `StreamingPool` gives.

    no segment     an unfinished one is resumed; else one is assigned when enough waits, or for long enough
    open           entries are fed to it, over as many ledgers as come, until it closes
    closed         its last blocks are uploaded; then it is recorded as complete, and the next one may begin

A turn goes as far as it can without waiting. A failure ends it, and the next comes after a pause, longer each time; by
then the record states what is to be resumed.

The topic's filter decides up to where entries may be offloaded; what it does not decide of yet waits, as if it had not
come. It is asked where more could be offloaded than it has decided of, and by hand; where it holds entries back, it is
asked again after a pause. Decisions 0027 and 0034.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo
from offload_core.metadata.records.segments import Segment, unfinished_segment
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.owned_record import OwnedRecord
from offload_core.writing.managed_ledger.streaming.feed import (
    Arrivals,
    EntrySource,
    Fed,
    OffloadBuffer,
    SegmentFeed,
)
from offload_core.writing.managed_ledger.streaming.pool import StreamingPool
from offload_core.writing.managed_ledger.streaming.segment_plan import (
    SegmentDue,
    can_be_whole,
    has_attempt,
    is_left,
    next_begin,
    planned_end,
)
from offload_core.writing.managed_ledger.streaming.status import (
    SegmentCompletion,
    SegmentWaiters,
    StreamingState,
    StreamingStatus,
)
from offload_core.writing.managed_ledger.topic_reader import LedgersView, TailCache
from offload_core.writing.offload import OffloadedSegment
from offload_core.writing.offload.recorded_segments import RecordedSegment, StreamingSettings
from offload_core.writing.offload.segment_offloader import SegmentFilter
from offload_core.writing.offload_filters import FilterRun
from offload_hooks.errors import (
    AttemptError,
    OffloadError,
    OffloadStoppedError,
    OwnershipLostError,
    StoreError,
    UnknownLedgerError,
)

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0


class RetryPause:
    """`failures` in a row, and `until_ms` (since 1970, UTC) the next try waits; None if it does not."""

    def __init__(self) -> None:
        self.failures = 0
        self.until_ms: int | None = None

    def begin(self, now_ms: int) -> float:
        """Begin the pause after a failure; return its seconds."""
        wait_s = min(FIRST_RETRY_S * 2.0 ** min(self.failures, 30), LONGEST_RETRY_S)
        self.failures += 1
        self.until_ms = now_ms + int(wait_s * 1000)
        return wait_s

    def is_over(self, now_ms: int) -> bool:
        """True if the next attempt may begin; then there is no pause any more. One that is too long is of a clock that
        was put back since."""
        if self.until_ms is not None and now_ms < self.until_ms <= now_ms + LONGEST_RETRY_S * 1000:
            return False
        self.until_ms = None
        return True


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
        """Have the filter asked when it is due next, pause or not; by any thread."""
        self.is_asked = True

    def look(self, view: LedgersView) -> bool:
        """Ask the filter, unless there is a pause; return True if it was asked. Errors as `open_filter`."""
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
        """End of the present pause, in ms since 1970, UTC; None if there is none."""
        return None if self._pause.is_over(self._now_ms()) else self._pause.until_ms

    @property
    def is_stuck(self) -> bool:
        """True if it has held the same entries up for several times."""
        return self._pause.failures >= STUCK_LOOKS

    def holds(self, first: EntryPosition, last: EntryPosition) -> bool:
        """True if it holds up all from `first` to `last`, if that is anything."""
        return self.waits_for is not None and self.stop is not None and self.stop <= first <= last

    def new_filter(self) -> SegmentFilter | None:
        """The filter of a new segment, as it was when it was asked last; None for none."""
        return None if self._run is None else SegmentFilter(self._run, self.stop)

    def continues(self, segment_filter: SegmentFilter | None) -> bool:
        """Extend a segment's filter up to the present decision; False if the filter has changed."""
        if self._run is None or segment_filter is None or not segment_filter.is_as(self._run):
            return self._run is None and segment_filter is None
        segment_filter.go_on(self._run, self.stop)
        return True


_log = logging.getLogger(__name__)


class StreamingOutcomes:
    """Status of the managed ledger of this name. `pause` is the one after the newest failure."""

    def __init__(self, name: str, now_ms: Callable[[], int]) -> None:
        self._name = name
        self._now_ms = now_ms
        self._status = StreamingStatus()
        self.pause = RetryPause()

    def fail(self, error: OffloadError) -> int:
        """Note a failure; return the time of the next attempt, in ms since 1970, UTC."""
        wait_s = self.pause.begin(self._now_ms())
        self._status = replace(self._status, last_error=error)
        _log.warning("streaming of %s failed, and is tried again in %g s: %s", self._name, wait_s, error)
        return self.pause.until_ms or 0

    def complete(self, segment: OffloadedSegment) -> None:
        """A segment was completed."""
        self._status = replace(self._status, completed=self._status.completed + 1, last_end=segment.end)
        self.pause.failures = 0

    def stopped(self) -> OffloadStoppedError:
        """The error for callers that wait for more."""
        return OffloadStoppedError(f"the streaming of {self._name} was stopped")

    def status(self, segment: RecordedSegment | None, *, is_active: bool, has_ended: bool) -> StreamingStatus:
        """The state, with the open segment."""
        state: StreamingState = "idle" if is_active else "off"
        if has_ended:
            state = "ended"
        elif self.pause.until_ms is not None:
            state = "waiting"
        elif segment is not None:
            state = "closing" if segment.is_closed else "open"
        return replace(
            self._status,
            state=state,
            segment=None if segment is None else segment.uuid,
            begin=None if segment is None else segment.begin,
            next_position=None if segment is None else segment.next,
            failures_in_a_row=self.pause.failures,
            next_try_ms=self.pause.until_ms,
        )


MOST_STEPS = 32
"""Bytes of one turn: batches of a MiB, then other topics have theirs."""
_NEVER_BYTES = 1 << 62


class TopicStreaming:
    """The streaming of a managed ledger that is open here, on or off.

    Args:
        view: the ledgers as they are now.
        moved: called with each ledger whose copies are others now.
        is_offloading: whether a ledger-based offload of the topic runs.
        open_run: asks the topic's filter.
    """

    def __init__(
        self,
        pool: StreamingPool,
        environment: Environment,
        owned: OwnedRecord,
        view: Callable[[], LedgersView],
        cache: TailCache,
        moved: Callable[[int], None],
        is_offloading: Callable[[], bool],
        open_run: OpenRun,
    ) -> None:
        self._pool = pool
        self._owned = owned
        self._view = view
        self._moved = moved
        self._is_offloading = is_offloading
        self._now_ms = environment.now_ms
        self._outcomes = StreamingOutcomes(owned.name, environment.now_ms)
        self._segments = pool.segments_of(owned, environment.records, environment.audit, environment.now_ms)
        self._buffer = OffloadBuffer(pool.buffer_budget)
        self._hot = environment.hot.store
        self._source = EntrySource(self._buffer, cache, self._hot)
        self._feed = SegmentFeed(self._source, owned, view)
        self._looks = FilterLooks(open_run, environment.now_ms)
        self._turning = threading.Lock()
        bounds = StreamingSettings.within(pool.budget.limit_bytes)
        self._waiters = SegmentWaiters()
        self._due = SegmentDue(owned, view, self._waiters, bounds, environment.now_ms)
        self._segment: RecordedSegment | None = None
        self._close_after: EntryPosition | None = None
        self._arrivals = Arrivals(lambda: pool.wake(self))
        self._is_closed = self._is_overdue = self._finishes = False

    # --- from other threads --------------------------------------------------------------------

    @property
    def settings(self) -> StreamingSettings | None:
        """By which the topic is streamed; None if it is not."""
        return self._due.settings

    @property
    def has_left(self) -> bool:
        """See `ManagedLedger.has_left_segments`."""
        return not self._is_active and is_left(self._owned.info)

    def set(self, settings: StreamingSettings | None) -> None:
        """Switch on, with these bounds, or off; it does nothing yet. Sizes hold from the next segment on."""
        self._due.set(settings)
        self._finishes = True  # the next turn sees whether there is anything to be finished
        self.wake()

    def offer(self, position: EntryPosition, payloads: Sequence[bytes]) -> None:
        """Take entries that were acknowledged, if there is room for them; it returns at once."""
        if not self._is_active:
            return
        if not self._outcomes.pause.failures and not self._looks.is_stuck:
            self._buffer.put(position.ledger_id, position.entry_id, payloads)
        self._arrivals.add(sum(map(len, payloads)))

    def wake(self) -> None:
        """Something may be to be done."""
        self._arrivals.wake()

    def close_early(self) -> None:
        """See `Streamed`."""
        self._due.closes_early = True
        self.wake()

    def complete(self, timeout_s: float | None) -> SegmentCompletion:
        """See `ManagedLedger.complete_segment`."""
        target = self._view().last_position()
        if target is None:
            return SegmentCompletion(end=None)
        self._looks.ask()  # before a waiter can get its last answer
        done = self._waiters.add(target)
        if self._is_closed:
            self._waiters.fail(self._outcomes.stopped())
        self._finishes, self._outcomes.pause.until_ms = True, None
        self.wake()
        if not self._pool.wait(done, timeout_s):
            raise OffloadStoppedError(
                f"the segment of {self._owned.name} is not complete yet", hint="Its offload goes on."
            )
        return done.result()

    @property
    def status(self) -> StreamingStatus:
        """See `ManagedLedger.streaming_status`."""
        found = self._outcomes.status(self._segment, is_active=self._is_active, has_ended=self._is_closed)
        return replace(
            found,
            stop=self._looks.stop,
            waits_for=self._looks.waits_for,
            waiting_since_ms=self._due.since_ms,
            buffered_bytes=self._buffer.used_bytes,
            read_from=self._source.counts,
        )

    def close(self, timeout_s: float) -> None:
        """Stream no more. A segment that is closed already is waited for, so long at most; others stay recorded."""
        self._is_closed = True
        if not self._turning.acquire(timeout=timeout_s):
            _log.warning("a turn of the streaming of %s did not end in %g s", self._owned.name, timeout_s)
            self._is_overdue = True
            if not self._turning.acquire(blocking=False):
                return  # it gives all back when it ends
        segment = self._segment
        try:
            if segment is not None and segment.is_closed:
                self._pool.wait(segment.outcome, timeout_s)
                if segment.has_ended:
                    self._settle(segment)
        except Exception as error:  # of a driver, perhaps; whatever it is, the topic is closed
            _log.warning("the last segment of %s is not complete: %s", self._owned.name, error)
        finally:
            self._end(self._outcomes.stopped())
            self._turning.release()
        if segment is not None:
            self._pool.wait(segment.outcome, timeout_s)  # until what it left in the tier is deleted

    # --- turns ---------------------------------------------------------------------------------

    def turn(self) -> None:
        """See `Streamed`."""
        if not self._turning.acquire(blocking=False):
            return  # it is being closed
        try:
            self._arrivals.begin_turn()
            if self._is_active and not self._is_closed:
                self._go_on()
        except OwnershipLostError as error:
            _log.info("%s is not streamed here any more: %s", self._owned.name, error)
            self._is_closed = True
            self._end(error)
        except (AttemptError, UnknownLedgerError) as error:
            self._leave()  # another has abandoned it, or its entries went: the record has what is to be resumed
            self._note_failure(error)
        except OffloadError as error:
            self._note_failure(error)
        except Exception as error:
            _log.exception("the streaming of %s has a fault of its own", self._owned.name)
            self._note_failure(StoreError(f"streaming failed by a fault of its own: {type(error).__name__}"))
        finally:
            self._source.rest()
            if self._is_overdue:
                self._end(self._outcomes.stopped())
            self._turning.release()

    def _go_on(self) -> None:
        if not self._outcomes.pause.is_over(self._now_ms()):
            self._pool.wake_at(self, self._outcomes.pause.until_ms or 0)
            return
        for _ in range(MOST_STEPS):
            if self._is_closed or not self._step():
                return
        self.wake()

    def _step(self) -> bool:
        """Do the next step; return True if there may be another one to do at once."""
        segment = self._segment
        if segment is None:
            return self._begin()
        if segment.has_ended:
            self._settle(segment)
            return True
        segment.renew_lease()
        if segment.is_closed:
            self._pool.wake_at(self, segment.lease_due_ms)
            return False
        return self._feed_on(segment)

    def _begin(self) -> bool:
        """Resume or assign a segment, if one is due."""
        if self._is_offloading():
            return False  # at its end there is a turn
        due, info = self._due, self._owned.read()
        old = unfinished_segment(info)
        if old is not None:
            return self._resume(info, old)
        begin = next_begin(info, is_on=due.is_on)
        self._finishes = begin is not None
        self._arrivals.disarm()  # what comes after the next look wakes
        self._waiters.complete_before(begin)
        waiting = 0 if begin is None else due.pending(info, begin)
        if begin is None or not waiting:
            due.since_ms = None
            if not self._is_active:
                self._buffer.clear()
            return False
        due.note_waiting(begin)
        if due.is_enough(waiting) or due.is_due(begin):
            self._looks.look(self._view())
            waiting = due.pending(info, begin, self._looks.stop)
        if not waiting:
            return self._hold(begin)
        if not (due.is_enough(waiting) or due.is_due(begin, self._looks.stop)):
            return self._rest(waiting)
        ledger = info.ledger(begin.ledger_id)
        if ledger is not None and has_attempt(ledger):
            self._segments.clear(ledger)
        segment_filter, end = self._looks.new_filter(), None
        if due.is_on and segment_filter is None:  # else it is unknown how much is left of entries
            end = planned_end(info, begin, due.bounds.max_segment_bytes, self._hot)
        self._start(self._segments.assign(begin, due.bounds, end, segment_filter))
        return True

    def _resume(self, info: ManagedLedgerInfo, old: Segment) -> bool:
        """Resume a segment, or forget it if its entries went."""
        due = self._due
        if not can_be_whole(info, old):
            self._segments.forget(old)
            return True
        self._looks.look(self._view())
        if due.pending(info, old.begin) and not due.pending(info, old.begin, self._looks.stop):
            return self._hold(old.begin)
        self._start(self._segments.resume(old, due.bounds, self._looks.new_filter()))
        return True

    def _start(self, segment: RecordedSegment) -> None:
        self._segment = segment
        self._close_after, self._due.closes_early = None, segment.end is not None
        self._due.note_waiting(segment.begin)
        self._pool.note_open(self, is_open=True)
        segment.outcome.add_done_callback(lambda _: self.wake())

    def _feed_on(self, segment: RecordedSegment) -> bool:
        """Feed the open segment, if enough waits, or it is to close."""
        due = self._due
        if due.wants_look(segment, self._close_after, self._looks.is_asked) and not self._look_on(segment):
            return False
        if self._close_after is None and due.is_due(segment.begin, segment.stop):
            last = segment.end or self._view().last_position(segment.stop)
            if last is None or last < segment.begin:
                return self._hold(segment.begin)
            self._close_after = last
        waiting = due.pending(self._owned.info, segment.next, segment.stop)
        if waiting:
            due.note_waiting(segment.next)
        elif self._close_after is not None and self._looks.holds(segment.next, self._close_after):
            return self._hold(segment.begin)
        if self._close_after is None and not due.is_enough(waiting):
            return self._rest(waiting)
        fed = self._feed.step(segment, is_on=due.is_on, close_after=self._close_after)
        if fed is Fed.STARVED:
            self._pool.relieve()
        if fed in (Fed.FULL, Fed.STALLED, Fed.STARVED):
            self.wake()
        elif fed is Fed.CLOSED:
            self._pool.note_open(self, is_open=False)
            return segment.has_ended
        return self._rest(waiting) if fed is Fed.ALL else fed is Fed.MORE

    def _look_on(self, segment: RecordedSegment) -> bool:
        """Ask the filter; return True if the open segment can go on by its answer."""
        if not self._looks.look(self._view()) or self._looks.continues(segment.filter):
            return True
        _log.info("the filter of %s was changed: its open segment is begun anew", self._owned.name)
        self._leave()
        if segment.has_ended:  # else there is a turn when it has
            self.wake()
        return False

    def _hold(self, begin: EntryPosition) -> bool:
        """Wait, because nothing from this position on may be offloaded yet; return False."""
        self._due.hold()
        if not self._looks.is_asked:
            end = self._view().last_position(begin)
            self._waiters.complete_all(SegmentCompletion(end=end, waits_for=self._looks.waits_for))
        return self._rest(0)

    def _settle(self, segment: RecordedSegment) -> None:
        """Record how a segment ended."""
        failure = segment.failure
        if failure is not None:
            self._leave()
            raise failure
        done = segment.complete()
        self._segment = self._due.since_ms = None
        self._end_segment()
        self._outcomes.complete(done)
        for ledger_id in done.end_entry_ids:
            self._moved(ledger_id)

    def _end_segment(self) -> None:
        self._due.closes_early = False
        self._pool.note_open(self, is_open=False)

    def _leave(self) -> None:
        """Abandon the segment; it stays recorded, to be resumed. Objects that no record names are deleted."""
        segment, self._segment = self._segment, None
        self._end_segment()
        if segment is not None:
            segment.give_up()
            self._segments.delete_lost(segment)

    def _end(self, error: OffloadError) -> None:
        """Release all resources, and fail all waiters."""
        self._buffer.close()
        self._leave()
        self._waiters.fail(error)

    # --- what is due ---------------------------------------------------------------------------

    @property
    def _is_active(self) -> bool:
        """True if it is switched on, or there is something to be finished."""
        return self._due.is_on or self._finishes

    def _rest(self, waiting: int) -> bool:
        """Wait until more comes, or a time does; return False."""
        wake_bytes = self._due.bounds.feed_bytes - waiting
        times = [] if self._due.since_ms is None else [self._due.since_ms + self._due.bounds.max_age_ms]
        if self._segment is not None:
            times.append(self._segment.lease_due_ms)
        if self._looks.next_look_ms is not None:
            times.append(self._looks.next_look_ms)
            wake_bytes = _NEVER_BYTES  # whatever comes must wait for that
        if self._looks.is_stuck:
            self._buffer.clear()
        self._arrivals.rest(wake_bytes)
        if times:
            self._pool.wake_at(self, min(times))
        return False

    def _note_failure(self, error: OffloadError) -> None:
        self._pool.wake_at(self, self._outcomes.fail(error))
        self._buffer.clear()
        self._waiters.fail(error)
