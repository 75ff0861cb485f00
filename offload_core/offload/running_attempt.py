"""An offload attempt while this process is at it: its lease, renewed in the background until it has ended.

Whoever else wants the ledger sees by the lease that the attempt is alive, and leaves it alone. A lease that was not
renewed is over, and one whose process has ended counts no more; then the attempt may be taken over. Its maker finds
that out at the next renewal, or at the latest when it is to be recorded as complete.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Protocol, Self
from uuid import UUID

from offload_core.metadata import DriverMetadata, LedgerRecord, ManagedLedgerInfo, ManagedLedgerRecords
from offload_core.metadata.attempt_lease import AttemptLease, lease_of
from offload_core.metadata.offload_attempt import renew_attempt
from offload_core.offload.processes import has_ended, this_process
from offload_hooks.errors import (
    AttemptError,
    LiveAttemptError,
    OffloadError,
    OptionError,
    UnknownTopicError,
)

DEFAULT_LEASE_S = 60.0
"""How long a lease is; it is renewed three times in that time."""

LONGEST_LEASE_S = 600.0
"""A lease that goes further from now was written by another clock, and is not believed."""


class Renewal(Protocol):
    """A step that records another lease of an attempt."""

    def __call__(self, info: ManagedLedgerInfo, /, *, lease: AttemptLease) -> ManagedLedgerInfo:
        """The record with that lease; `AttemptError` if the attempt is over."""


_log = logging.getLogger(__name__)

_running: set[UUID] = set()
"""The attempts that this process is at."""


class RunningAttempt:
    """An attempt at a ledger, as a context: in it, the attempt is this process's. Leaving it waits for a renewal.

    Args:
        lease_s: how long others are to believe that it goes on, after each renewal.
        now_ms: the time, in ms since 1970, UTC.
        renew: the step that records another lease; None for that of an offload attempt.
    """

    def __init__(
        self,
        records: ManagedLedgerRecords,
        name: str,
        ledger_id: int,
        uuid: UUID,
        *,
        lease_s: float,
        now_ms: Callable[[], int],
        renew: Renewal | None = None,
    ) -> None:
        self._records = records
        self._name = name
        self._ledger_id = ledger_id
        self._uuid = uuid
        self._lease_s = lease_s
        self._now_ms = now_ms
        self._renewal = renew or partial(renew_attempt, ledger_id=ledger_id, uuid=uuid)
        self._lost: OffloadError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="offload-lease", daemon=True)

    def __enter__(self) -> Self:
        _running.add(self._uuid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        _running.discard(self._uuid)

    def lease(self) -> AttemptLease:
        """A lease from now on."""
        return lease_from(self._now_ms(), self._lease_s)

    def keep_lease(self) -> None:
        """Renew it from now on; the attempt is recorded."""
        self._thread.start()

    def check(self) -> None:
        """Refuse to go on with an attempt that is known to be taken over; `AttemptError`, `UnknownTopicError`."""
        if self._lost is not None:
            raise self._lost

    def _renew(self) -> None:
        while not self._ended.wait(self._lease_s / 3):
            try:
                self._records.update(self._name, partial(self._renewal, lease=self.lease()))
            except (AttemptError, UnknownTopicError) as error:
                self._lost = error
                return
            except OffloadError as error:
                _log.warning(
                    "the lease of attempt %s at ledger %d of %s is not renewed: %s",
                    self._uuid,
                    self._ledger_id,
                    self._name,
                    error,
                )


def check_not_alive(ledger: LedgerRecord | None, now_ms: int, *, but: UUID | None = None) -> None:
    """Refuse to touch an attempt at a whole ledger that somebody is at, if it is not `but`; see `check_over`."""
    context = None if ledger is None else ledger.context
    if ledger is None or context is None or context.complete or context.uuid in (None, but):
        return
    assert context.uuid is not None
    check_over(context.uuid, context.driver, now_ms, ledger.ledger_id)


def check_over(uuid: UUID, driver: DriverMetadata | None, now_ms: int, ledger_id: int) -> None:
    """Refuse to touch an attempt that is not complete, if somebody is at it.

    Args:
        driver: what is recorded of the attempt, its lease among it.
        ledger_id: its ledger, or its segment's first.

    Raises:
        LiveAttemptError: its lease is not over, and its process is not known to have ended.
    """
    lease = lease_of(driver)
    if lease is None:
        return
    left_s = (lease.until_ms - now_ms) / 1000
    is_here = lease.holder == this_process()
    is_at_it = uuid in _running if is_here else not has_ended(lease.holder)
    if 0 < left_s <= LONGEST_LEASE_S and is_at_it:
        raise LiveAttemptError(
            f"{'this process' if is_here else 'another process'} offloads the ledger at the moment",
            ledger_id=ledger_id,
            found=f"attempt {uuid} of process {lease.holder.process}",
            hint=f"It can be taken over in {left_s:.0f} s, if it does not go on.",
        )


def check_lease_length(lease_s: float) -> None:
    """Refuse a lease that nobody would believe (`OptionError`)."""
    if not 0 < lease_s <= LONGEST_LEASE_S:
        raise OptionError("a lease is longer than 0 s, and 600 s at most", found=lease_s)


def lease_from(now_ms: int, lease_s: float) -> AttemptLease:
    """A lease of this process from now on."""
    return AttemptLease(holder=this_process(), until_ms=now_ms + int(lease_s * 1000))


@contextmanager
def at_attempt(uuid: UUID) -> Iterator[None]:
    """In the block, or until it is left, the attempt is this process's."""
    _running.add(uuid)
    try:
        yield
    finally:
        _running.discard(uuid)
