"""Streams one topic: its entries to segment after segment, in turns that a `StreamingPool` gives.

    no segment     what is left unfinished is resumed; else one is assigned when enough waits, or for long enough
    open           entries are fed to it, over as many ledgers as come, until it closes
    closed         its last blocks are on their way; then it is recorded as complete, and the next one may begin

A turn goes as far as it can without waiting. A failure ends it, and the next comes after a pause, longer each time; by
then the record says what is to be resumed. Decision 0027.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from offload_core.managed_ledger.audit_log import Deletion
from offload_core.managed_ledger.environment import Environment
from offload_core.managed_ledger.owned_record import OwnedRecord
from offload_core.managed_ledger.streaming.buffer import OffloadBuffer
from offload_core.managed_ledger.streaming.entry_source import EntrySource
from offload_core.managed_ledger.streaming.feed import Fed, SegmentFeed
from offload_core.managed_ledger.streaming.history import planned_end
from offload_core.managed_ledger.streaming.plan import (
    can_be_whole,
    has_attempt,
    is_left,
    next_begin,
    pending_bytes,
)
from offload_core.managed_ledger.streaming.pool import StreamingPool
from offload_core.managed_ledger.streaming.retry_pause import RetryPause
from offload_core.managed_ledger.streaming.settings import StreamingSettings
from offload_core.managed_ledger.streaming.status import StreamingState, StreamingStatus
from offload_core.managed_ledger.streaming.waiters import SegmentWaiters
from offload_core.managed_ledger.tail_cache import TailCache
from offload_core.managed_ledger.view import LedgersView
from offload_core.metadata import EntryPosition, ManagedLedgerInfo
from offload_core.metadata.segment_record import unfinished_segment
from offload_core.offload.recorded_segments import RecordedSegment
from offload_hooks.errors import (
    AttemptError,
    OffloadError,
    OffloadStoppedError,
    OwnershipLostError,
    StoreError,
    UnknownLedgerError,
)

MOST_STEPS = 32
"""Of one turn: batches of a MiB, then other topics have theirs."""
STALLED_TURNS = 20
"""So often in a row there was no memory: then some segment is closed early."""

_log = logging.getLogger(__name__)


class TopicStreaming:
    """The streaming of a managed ledger that is open here, on or off.

    Args:
        view: the ledgers as they are now.
        moved: told of each ledger whose copies are others now.
        is_offloading: whether a ledger-based offload of the topic runs.
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
    ) -> None:
        self._pool = pool
        self._owned = owned
        self._view = view
        self._moved = moved
        self._is_offloading = is_offloading
        self._audit = environment.audit
        self._now_ms = environment.now_ms
        self._segments = pool.segments_of(owned, environment.records, self._announce, environment.now_ms)
        self._buffer = OffloadBuffer(pool.buffer_budget)
        self._hot = environment.hot.store
        self._source = EntrySource(self._buffer, cache, self._hot)
        self._feed = SegmentFeed(self._source, owned, view)
        self._turning = threading.Lock()
        self._settings: StreamingSettings | None = None
        self._bounds = StreamingSettings.within(pool.budget.limit_bytes)
        self._segment: RecordedSegment | None = None
        self._close_behind: EntryPosition | None = None
        self._since_ms: int | None = None
        self._closes_early = False
        self._stalled = 0
        self._waiters = SegmentWaiters()
        self._status = StreamingStatus()
        self._pause = RetryPause()
        self._is_closed = self._is_overdue = False
        # of appends, under no lock: a turn too many does no harm
        self._finishes = self._is_woken = self._is_armed = False
        self._fresh_bytes = self._wake_bytes = 0

    # --- from other threads --------------------------------------------------------------------

    @property
    def settings(self) -> StreamingSettings | None:
        """By which the topic is streamed; None if it is not."""
        return self._settings

    @property
    def has_left(self) -> bool:
        """See `ManagedLedger.has_left_segments`."""
        return not self._is_active and is_left(self._owned.info)

    def set(self, settings: StreamingSettings | None) -> None:
        """Switch on, with these bounds, or off; it does nothing yet. Sizes hold from the next segment on."""
        self._settings = settings
        if settings is not None:
            self._bounds = settings
        self._finishes = True  # the next turn sees whether there is anything to be finished
        self.wake()

    def offer(self, position: EntryPosition, payloads: Sequence[bytes]) -> None:
        """Take entries that were acknowledged, if there is room for them; it waits for nobody."""
        if not self._is_active:
            return
        if not self._pause.failures:
            self._buffer.put(position.ledger_id, position.entry_id, payloads)
        self._fresh_bytes += sum(map(len, payloads)) + 1
        if self._fresh_bytes >= self._wake_bytes or not self._is_armed:
            self.wake()

    def wake(self) -> None:
        """Something may be to be done."""
        if not self._is_woken:
            self._is_woken = True
            self._pool.wake(self)

    def close_early(self) -> None:
        """See `Streamed`."""
        self._closes_early = True
        self.wake()

    def complete(self, timeout_s: float | None) -> None:
        """See `ManagedLedger.complete_segment`."""
        target = self._view().last_position()
        if target is None:
            return
        done = self._waiters.add(target)
        if self._is_closed:
            self._waiters.tell(self._stopped())
        self._finishes, self._pause.until_ms = True, None
        self.wake()
        if not self._pool.wait(done, timeout_s):
            raise OffloadStoppedError(
                f"the segment of {self._owned.name} is not complete yet", hint="Its offload goes on."
            )
        done.result()

    @property
    def status(self) -> StreamingStatus:
        """See `ManagedLedger.streaming_status`."""
        segment, status = self._segment, self._status
        state: StreamingState = "idle" if self._is_active else "off"
        if self._is_closed:
            state = "ended"
        elif self._pause.until_ms is not None:
            state = "waiting"
        elif segment is not None:
            state = "closing" if segment.is_closed else "open"
        return replace(
            status,
            state=state,
            segment=None if segment is None else segment.uuid,
            begin=None if segment is None else segment.begin,
            next_position=None if segment is None else segment.next,
            buffered_bytes=self._buffer.used_bytes,
            failures_in_a_row=self._pause.failures,
            next_try_ms=self._pause.until_ms,
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
            self._end(self._stopped())
            self._turning.release()
        if segment is not None:
            self._pool.wait(segment.outcome, timeout_s)  # until what it left in the tier is deleted

    # --- turns ---------------------------------------------------------------------------------

    def turn(self) -> None:
        """See `Streamed`."""
        if not self._turning.acquire(blocking=False):
            return  # it is being closed
        try:
            self._is_woken = False
            if self._is_active and not self._is_closed:
                self._go_on()
        except OwnershipLostError as error:
            _log.info("%s is not streamed here any more: %s", self._owned.name, error)
            self._is_closed = True
            self._end(error)
        except (AttemptError, UnknownLedgerError) as error:
            self._leave()  # another has abandoned it, or its entries went: the record says what is to be resumed
            self._note_failure(error)
        except OffloadError as error:
            self._note_failure(error)
        except Exception as error:
            _log.exception("the streaming of %s has a fault of its own", self._owned.name)
            self._note_failure(StoreError(f"streaming failed by a fault of its own: {type(error).__name__}"))
        finally:
            self._source.rest()
            if self._is_overdue:
                self._end(self._stopped())
            self._turning.release()

    def _go_on(self) -> None:
        if not self._pause.is_over(self._now_ms()):
            self._pool.wake_at(self, self._pause.until_ms or 0)
            return
        for _ in range(MOST_STEPS):
            if self._is_closed or not self._step():
                return
        self.wake()

    def _step(self) -> bool:
        """Do the next thing; whether there may be another one to do at once."""
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
        info = self._owned.read()
        old = unfinished_segment(info)
        if old is not None:
            if can_be_whole(info, old):
                self._start(self._segments.resume(old, self._bounds.of_segments))
            else:
                self._segments.forget(old)
            return True
        begin = next_begin(info, is_on=self._settings is not None)
        self._finishes, self._is_armed = begin is not None, False  # what comes behind the next look wakes
        self._waiters.tell_done(begin)
        waiting = 0 if begin is None else self._pending(info, begin)
        if begin is None or not waiting:
            self._since_ms = None
            if not self._is_active:
                self._buffer.clear()
            return False
        self._since_ms = self._since_ms or self._now_ms()
        if waiting < self._bounds.feed_bytes and not self._is_due(begin):
            self._rest(waiting)
            return False
        ledger = info.ledger(begin.ledger_id)
        if ledger is not None and has_attempt(ledger):
            self._segments.clear(ledger)
        end = planned_end(info, begin, self._bounds.max_segment_bytes, self._hot) if self._settings else None
        self._start(self._segments.assign(begin, self._bounds.of_segments, end))
        return True

    def _start(self, segment: RecordedSegment) -> None:
        self._segment = segment
        self._close_behind, self._closes_early = None, False
        self._since_ms = self._now_ms() if self._since_ms is None else self._since_ms
        self._pool.note_open(self, is_open=True)
        segment.outcome.add_done_callback(lambda _: self.wake())

    def _feed_on(self, segment: RecordedSegment) -> bool:
        """Feed the open segment, if enough waits, or it is to close."""
        if self._close_behind is None and self._is_due(segment.begin):
            self._close_behind = segment.end or self._view().last_position()
        waiting = self._pending(self._owned.info, segment.next)
        if self._close_behind is None and waiting < self._bounds.feed_bytes:
            self._rest(waiting)
            return False
        fed = self._feed.step(segment, is_on=self._settings is not None, close_behind=self._close_behind)
        self._stalled = self._stalled + 1 if fed is Fed.STALLED else 0
        if self._stalled == STALLED_TURNS:
            self._pool.relieve()
            self._stalled = 0
        if fed in (Fed.FULL, Fed.STALLED):
            self.wake()
        elif fed is Fed.CLOSED:
            self._pool.note_open(self, is_open=False)
            return segment.has_ended
        elif fed is Fed.ALL:
            self._rest(waiting)
        return fed is Fed.MORE

    def _settle(self, segment: RecordedSegment) -> None:
        """Record how a segment ended."""
        failure = segment.failure
        if failure is not None:
            self._leave()
            raise failure
        done = segment.complete()
        self._segment, self._since_ms = None, None
        self._pool.note_open(self, is_open=False)
        status = self._status
        self._status = replace(status, completed=status.completed + 1, last_end=done.end)
        self._pause.failures = 0
        for ledger_id in done.end_entry_ids:
            self._moved(ledger_id)

    def _leave(self) -> None:
        """Give the segment up; it stays recorded, for who resumes it. What nobody else would find is deleted."""
        segment, self._segment = self._segment, None
        self._pool.note_open(self, is_open=False)
        if segment is not None:
            segment.give_up()
            self._segments.delete_lost(segment)

    def _end(self, error: OffloadError) -> None:
        """Give back all that there is, and tell those who wait."""
        self._buffer.close()
        self._leave()
        self._waiters.tell(error)

    # --- what is due ---------------------------------------------------------------------------

    @property
    def _is_active(self) -> bool:
        """Whether it is switched on, or there is something to be finished."""
        return self._settings is not None or self._finishes

    def _is_due(self, begin: EntryPosition) -> bool:
        """Whether a segment that begins there is to close with what there is."""
        has_end = self._segment is not None and self._segment.end is not None
        if self._waiters or self._closes_early or has_end:
            return True
        if self._since_ms is not None:
            self._since_ms = min(self._since_ms, now_ms := self._now_ms())  # a clock may be put back
            if now_ms >= self._since_ms + self._bounds.max_age_ms:
                return True
        if self._settings is not None:
            return False
        ledger = self._owned.info.ledger(begin.ledger_id)
        return ledger is not None and ledger.info.is_closed

    def _pending(self, info: ManagedLedgerInfo, begin: EntryPosition) -> int:
        return pending_bytes(info, self._view(), begin, self._bounds.feed_bytes)

    def _rest(self, waiting: int) -> None:
        """Nothing is to be done before more comes, or a time does."""
        self._fresh_bytes, self._wake_bytes, self._is_armed = 0, self._bounds.feed_bytes - waiting, True
        due = [] if self._segment is None else [self._segment.lease_due_ms]
        if self._since_ms is not None:
            due.append(self._since_ms + self._bounds.max_age_ms)
        self._pool.wake_at(self, min(due))

    # --- telling -------------------------------------------------------------------------------

    def _note_failure(self, error: OffloadError) -> None:
        wait_s = self._pause.begin(self._now_ms())
        self._status = replace(self._status, last_error=error)
        _log.warning(
            "streaming of %s failed, and is tried again in %g s: %s", self._owned.name, wait_s, error
        )
        self._pool.wake_at(self, self._pause.until_ms or 0)
        self._buffer.clear()
        self._waiters.tell(error)

    def _stopped(self) -> OffloadStoppedError:
        return OffloadStoppedError(f"the streaming of {self._owned.name} was stopped")

    def _announce(self, ledger_id: int, uuid: UUID, why: str) -> None:
        self._audit.record(
            Deletion(managed_ledger=self._owned.name, ledger_id=ledger_id, copy="cold", why=why, uuid=uuid)
        )
