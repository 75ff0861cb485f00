"""What came of the streaming of a topic: segments that were completed, failures and the pause after them, deletions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from offload_core.audit import AuditLog, Deletion
from offload_core.managed_ledger.streaming.retry_pause import RetryPause
from offload_core.managed_ledger.streaming.status import StreamingState, StreamingStatus
from offload_core.offload import OffloadedSegment
from offload_core.offload.recorded_segments import RecordedSegment
from offload_hooks.errors import OffloadError, OffloadStoppedError

_log = logging.getLogger(__name__)


class StreamingOutcomes:
    """Of the managed ledger of this name. `pause` is the one after the newest failure."""

    def __init__(self, name: str, audit: AuditLog, now_ms: Callable[[], int]) -> None:
        self._name = name
        self._audit = audit
        self._now_ms = now_ms
        self._status = StreamingStatus()
        self.pause = RetryPause()

    def fail(self, error: OffloadError) -> int:
        """It failed; when the next try is, in ms since 1970, UTC."""
        wait_s = self.pause.begin(self._now_ms())
        self._status = replace(self._status, last_error=error)
        _log.warning("streaming of %s failed, and is tried again in %g s: %s", self._name, wait_s, error)
        return self.pause.until_ms or 0

    def complete(self, segment: OffloadedSegment) -> None:
        """A segment was completed."""
        self._status = replace(self._status, completed=self._status.completed + 1, last_end=segment.end)
        self.pause.failures = 0

    def announce(self, ledger_id: int, uuid: UUID, why: str) -> None:
        """Objects of an attempt are about to be deleted."""
        self._audit.record(
            Deletion(managed_ledger=self._name, ledger_id=ledger_id, copy="cold", why=why, uuid=uuid)
        )

    def stopped(self) -> OffloadStoppedError:
        """The error of those who wait for more."""
        return OffloadStoppedError(f"the streaming of {self._name} was stopped")

    def status(self, segment: RecordedSegment | None, *, is_active: bool, has_ended: bool) -> StreamingStatus:
        """How it stands, with what is open."""
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
