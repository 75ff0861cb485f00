"""The offloads of one managed ledger: its sealed ledgers to a tier, and their hot copies deleted afterwards.

Ledgers are offloaded up to a position, one by one, the oldest first, once for all callers. A caller that asks while an
offload runs joins it: it goes on as far as the farthest of them wants, and all get its result. One that is stopped ends
before its next ledger, or its next block.

`TopicOffloads` can be used beside the topic's owner, in another process too: it changes the record by compare-and-set,
and only where an offload does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.writing.audit import AuditLog, Change, Deletion
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.followed_transactions import open_filter
from offload_core.writing.offload import OffloadProgress
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_hooks.errors import OffloadError, OffloadStoppedError, OptionError, StoreError, placed

STOP_TIMEOUT_S = 10.0
"""Seconds that closing waits for an offload to stop, which ends with the blocks that are on their way."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadStatus:
    """The state of a managed ledger's offload, or of the last one that ended.

    Attributes:
        target: up to where it goes.
        offloaded: the ledgers that it has offloaded.
        progress: of the ledger that is under way; None between two of them.
        first_unoffloaded: of an offload that succeeded: its result.
        waiting: ledgers that it left out, since the topic's filter does not decide of them yet, and why.
        error: of one that failed: why.
    """

    state: Literal["not run", "running", "success", "error"] = "not run"
    target: EntryPosition | None = None
    offloaded: tuple[int, ...] = ()
    progress: OffloadProgress | None = None
    first_unoffloaded: EntryPosition | None = None
    waiting: Mapping[int, str] = field(default_factory=dict)
    error: OffloadError | None = None


@dataclass(slots=True, eq=False)
class _RunningOffload:
    target: EntryPosition
    is_stopped: bool = False
    result: Future[EntryPosition] = field(default_factory=Future)


def no_tier(topic: object) -> OptionError:
    """Why a topic cannot be offloaded at all."""
    return OptionError(
        f"no tier is configured to which {topic} could be offloaded",
        hint="Set an offload driver in its policies, or the namespace's, or the broker's.",
    )


def first_unoffloaded(info: ManagedLedgerInfo) -> EntryPosition:
    """The first position that is in no complete cold copy; if all are, one past the last entry."""
    end = EntryPosition(0, 0)
    for ledger in info.in_order:
        if ledger.is_marked_for_deletion:
            continue
        end = EntryPosition(ledger.ledger_id, ledger.offloaded_stop or 0)
        if not ledger.info.is_closed or end.entry_id < (ledger.info.entries or 0):
            return end
    return end


def _waiting(due: Sequence[LedgerRecord], waits_for: str) -> dict[int, str]:
    """Why each of these is not offloaded: the first waits, and the others for that one."""
    first = due[0].ledger_id
    return {
        ledger.ledger_id: f"waits for {waits_for}" if ledger is due[0] else f"ledger {first} comes before it"
        for ledger in due
    }


def is_due(ledger: LedgerRecord, target: EntryPosition) -> bool:
    """Return whether a ledger is sealed, wholly before a position, and in no tier yet."""
    entries = ledger.info.entries
    if not ledger.info.is_closed or not entries or ledger.has_complete_copy or ledger.is_marked_for_deletion:
        return False
    has_segments = ledger.context is not None and bool(ledger.context.segments)
    return not has_segments and EntryPosition(ledger.ledger_id, entries - 1) < target


class _DueError(Exception):
    """A hot copy is about to be deleted: nothing was changed yet."""


class _StopAtDue:
    """An `AuditLog` that ends a deletion before anything is changed."""

    def record(self, _: Deletion | Change) -> None:
        raise _DueError


class TopicOffloads:
    """Offloads of the managed ledger of this name, by many threads at once; see `topic_offloads`.

    Args:
        read: the record as it is now.
        moved: called with each ledger whose copies are others now.

    Attributes:
        offload_status: see `ManagedLedger.offload_status`; replaced as a whole.
    """

    def __init__(
        self,
        environment: Environment,
        name: str,
        read: Callable[[], ManagedLedgerInfo],
        moved: Callable[[int], None],
    ) -> None:
        self.name = name
        self.read_info = read
        self._environment = environment
        self._moved = moved
        self._lock = threading.Lock()
        self._run: _RunningOffload | None = None
        self._is_closed = False
        self.offload_status = OffloadStatus()

    @property
    def is_unfinished(self) -> bool:
        """False: an attempt that was left is begun anew when its ledger is due."""
        return False

    def offload_prefix(self, position: EntryPosition) -> EntryPosition:
        """See `ManagedLedger.offload_prefix`."""
        offloads = self._configured()
        with self._lock:
            run = self._run
            joins = run is not None
            if run is None:
                if self._is_closed:
                    raise self._stopped()
                run = self._run = _RunningOffload(position)
                self.offload_status = OffloadStatus(state="running", target=position)
            elif run.target < position:
                run.target = position
                self.offload_status = replace(self.offload_status, target=position)
        if joins:
            return run.result.result()
        try:
            first_unoffloaded = self._offload(run, offloads)
        except BaseException as error:
            known = (
                error
                if isinstance(error, OffloadError)
                else StoreError(f"an offload of {self.name} was interrupted")
            )
            with self._lock:
                self._run = None
                self.offload_status = replace(self.offload_status, state="error", progress=None, error=known)
            run.result.set_exception(known)
            raise
        run.result.set_result(first_unoffloaded)
        return first_unoffloaded

    def stop_offload(self) -> None:
        """Stop a running offload at its next ledger or block; all callers get the error."""
        with self._lock:
            if self._run is not None:
                self._run.is_stopped = True

    def close(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop, begin none any more, and wait so long at most until the one that runs has ended."""
        with self._lock:
            self._is_closed = True
            run = self._run
        self.stop_offload()
        if run is not None and not wait([run.result], timeout_s).done:
            _log.warning("an offload of %s did not end in %g s, and is left to itself", self.name, timeout_s)

    def delete_hot_copies(self, lag_s: float) -> list[int]:
        """See `ManagedLedger.delete_hot_copies`."""
        return self._delete_hot_copies(lag_s, self._environment.audit)

    def due_hot_copies(self, lag_s: float) -> list[int]:
        """The ledgers whose hot copies `delete_hot_copies` would delete, after the same checks; errors as of that."""
        return self._delete_hot_copies(lag_s, _StopAtDue())

    def _delete_hot_copies(self, lag_s: float, audit: AuditLog) -> list[int]:
        offloads = self._configured()
        complete = [ledger.ledger_id for ledger in self.read_info().in_order if ledger.has_complete_copy]
        if not complete:
            return []  # the usual case of a round of upkeep, and the hot tier's listing is slow
        is_hot = set(self._environment.hot.of(self.name)).__contains__
        found: list[int] = []
        failures: list[OffloadError] = []
        for ledger_id in filter(is_hot, complete):
            try:
                if offloads.delete_hot_copy(self.name, ledger_id, int(lag_s * 1000), audit=audit):
                    found.append(ledger_id)
                    self._moved(ledger_id)
            except _DueError:
                found.append(ledger_id)
            except OffloadError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return found

    def _configured(self) -> RecordedOffloads:
        if self._environment.offloads is None:
            raise no_tier(self.name)
        return self._environment.offloads

    def _offload(self, run: _RunningOffload, offloads: RecordedOffloads) -> EntryPosition:
        while True:
            info = self.read_info()
            with self._lock:
                due = [each for each in info.in_order if is_due(each, run.target)]
                if not due:
                    return self._succeeded(info, {})
            if run.is_stopped:
                raise self._stopped()
            ledger_id = due[0].ledger_id
            try:
                last = EntryPosition(ledger_id, (due[0].info.entries or 0) - 1)
                with placed(ledger_id=ledger_id):
                    filter_run = open_filter(self._environment, self.name, last, info)
                if filter_run is not None and not filter_run.takes(last):
                    with self._lock:
                        return self._succeeded(info, _waiting(due, filter_run.waits_for))
                offloads.offload(
                    self.name,
                    ledger_id,
                    filter_run=filter_run,
                    listener=partial(self._watch, run),
                    audit=self._environment.audit,
                )
            except OffloadStoppedError:
                raise
            except OffloadError as error:
                now = self.read_info().ledger(ledger_id)
                if now is not None and is_due(now, run.target):
                    raise
                _log.info("ledger %d of %s needs no offload any more: %s", ledger_id, self.name, error)
                continue
            with self._lock:
                offloaded = (*self.offload_status.offloaded, ledger_id)
                self.offload_status = replace(self.offload_status, offloaded=offloaded, progress=None)
            self._moved(ledger_id)

    def _succeeded(self, info: ManagedLedgerInfo, waiting: Mapping[int, str]) -> EntryPosition:
        """All that may go is offloaded; the lock is held."""
        self._run = None  # the next caller begins another
        first = first_unoffloaded(info)
        self.offload_status = replace(
            self.offload_status, state="success", progress=None, first_unoffloaded=first, waiting=waiting
        )
        return first

    def _watch(self, run: _RunningOffload, progress: OffloadProgress) -> None:
        with self._lock:
            self.offload_status = replace(self.offload_status, progress=progress)
        if run.is_stopped:
            raise self._stopped()

    def _stopped(self) -> OffloadStoppedError:
        return OffloadStoppedError(
            f"the offload of {self.name} was stopped", hint="It can be made again, and goes on."
        )


def topic_offloads(environment: Environment, name: str) -> TopicOffloads:
    """The offloads of a managed ledger that need not be open here; nothing is read yet.

    Its calls raise `UnknownTopicError` if there is none.
    """
    return TopicOffloads(environment, name, lambda: environment.records.require(name).info, lambda _: None)
