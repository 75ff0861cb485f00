"""The offloads of one managed ledger: its sealed ledgers to a tier, and their hot copies deleted afterwards.

`PrefixOffload` offloads them up to a position, one by one, the oldest first, once for all callers. A caller that asks
while an offload runs joins it: it goes on as far as the farthest of them wants, and all get its result. One that is
stopped ends before its next ledger, or its next block.

`TopicOffloads` does so whoever owns the topic: it changes the record by compare-and-set only where an offload does, so
it can be used beside the owner, in another process too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal
from uuid import UUID

from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.writing.audit import Deletion
from offload_core.writing.filters import FilterRecord, FilterRun
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.topic_filters import open_filter
from offload_core.writing.offload import OffloadProgress
from offload_core.writing.offload.offloads import Offloads
from offload_hooks.errors import (
    OffloadError,
    OffloadStoppedError,
    OptionError,
    StoreError,
    placed,
)

STOP_TIMEOUT_S = 10.0
"""How long closing waits for an offload that was told to stop, which ends with the blocks that are on their way."""

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


class PrefixOffload:
    """The offloads of one managed ledger.

    Args:
        offloads: None if no tier is configured.
        open_filter: the run of the topic's filter over a ledger that ends with this entry; see `open_filter`.
        read: the record as it is now.
        offloaded: told of each ledger that was offloaded.
        announce: told of each attempt at a ledger whose objects are about to be deleted; if it raises, they are not.

    Attributes:
        status: see `OffloadStatus`; replaced as a whole.
    """

    def __init__(
        self,
        name: str,
        offloads: Offloads | None,
        open_filter: Callable[[EntryPosition, ManagedLedgerInfo], FilterRun | None],
        read: Callable[[], ManagedLedgerInfo],
        offloaded: Callable[[int], None],
        announce: Callable[[LedgerRecord, UUID, str], None],
    ) -> None:
        self._name = name
        self._offloads = offloads
        self._open_filter = open_filter
        self._read = read
        self._offloaded = offloaded
        self._announce = announce
        self._lock = threading.Lock()
        self._run: _RunningOffload | None = None
        self._is_closed = False
        self.status = OffloadStatus()

    def run(self, position: EntryPosition) -> EntryPosition:
        """See `ManagedLedger.offload_prefix`."""
        offloads = configured(self._offloads, self._name)
        with self._lock:
            run = self._run
            joins = run is not None
            if run is None:
                if self._is_closed:
                    raise self._stopped()
                run = self._run = _RunningOffload(position)
                self.status = OffloadStatus(state="running", target=position)
            elif run.target < position:
                run.target = position
                self.status = replace(self.status, target=position)
        if joins:
            return run.result.result()
        try:
            first_unoffloaded = self._offload(run, offloads)
        except BaseException as error:
            known = (
                error
                if isinstance(error, OffloadError)
                else StoreError(f"an offload of {self._name} was interrupted")
            )
            with self._lock:
                self._run = None
                self.status = replace(self.status, state="error", progress=None, error=known)
            run.result.set_exception(known)
            raise
        run.result.set_result(first_unoffloaded)
        return first_unoffloaded

    def stop(self) -> None:
        """Let the offload that runs, if one does, end at its next ledger or block; all who joined it are told."""
        with self._lock:
            if self._run is not None:
                self._run.is_stopped = True

    def close(self, timeout_s: float) -> None:
        """Stop, begin none any more, and wait so long at most until the one that runs has ended."""
        with self._lock:
            self._is_closed = True
            run = self._run
        self.stop()
        if run is not None and not wait([run.result], timeout_s).done:
            _log.warning("an offload of %s did not end in %g s, and is left to itself", self._name, timeout_s)

    def _offload(self, run: _RunningOffload, offloads: Offloads) -> EntryPosition:
        while True:
            info = self._read()
            with self._lock:
                due = [each for each in info.in_order if _is_due(each, run.target)]
                if not due:
                    return self._succeeded(info, {})
            if run.is_stopped:
                raise self._stopped()
            ledger = due[0]
            ledger_id = ledger.ledger_id
            try:
                last = EntryPosition(ledger_id, (ledger.info.entries or 0) - 1)
                with placed(ledger_id=ledger_id):
                    filter_run = self._open_filter(last, info)
                if filter_run is not None and not filter_run.takes(last):
                    with self._lock:
                        return self._succeeded(info, _waiting(due, filter_run.waits_for))
                offloads.offload(
                    self._name,
                    ledger_id,
                    filter_run=filter_run,
                    listener=partial(self._watch, run),
                    announce=partial(self._announce, ledger),
                )
            except OffloadStoppedError:
                raise
            except OffloadError as error:
                now = self._read().ledger(ledger_id)
                if now is not None and _is_due(now, run.target):
                    raise
                _log.info("ledger %d of %s needs no offload any more: %s", ledger_id, self._name, error)
                continue
            with self._lock:
                offloaded = (*self.status.offloaded, ledger_id)
                self.status = replace(self.status, offloaded=offloaded, progress=None)
            self._offloaded(ledger_id)

    def _succeeded(self, info: ManagedLedgerInfo, waiting: Mapping[int, str]) -> EntryPosition:
        """All that may go is offloaded; the lock is held."""
        self._run = None  # who comes now begins another
        first = first_unoffloaded(info)
        self.status = replace(
            self.status, state="success", progress=None, first_unoffloaded=first, waiting=waiting
        )
        return first

    def _watch(self, run: _RunningOffload, progress: OffloadProgress) -> None:
        with self._lock:
            self.status = replace(self.status, progress=progress)
        if run.is_stopped:
            raise self._stopped()

    def _stopped(self) -> OffloadStoppedError:
        return OffloadStoppedError(
            f"the offload of {self._name} was stopped", hint="It can be made again, and goes on."
        )


def configured(offloads: Offloads | None, name: str) -> Offloads:
    """The offloads to the tiers that are configured.

    Raises:
        OptionError: none is.
    """
    if offloads is None:
        raise no_tier(name)
    return offloads


def no_tier(topic: object) -> OptionError:
    """Why a topic cannot be offloaded at all."""
    return OptionError(
        f"no tier is configured to which {topic} could be offloaded",
        hint="Set an offload driver in its policies, or the namespace's, or the broker's.",
    )


def first_unoffloaded(info: ManagedLedgerInfo) -> EntryPosition:
    """The first position that is in no complete cold copy; if all are, the one behind the last entry."""
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


def _is_due(ledger: LedgerRecord, target: EntryPosition) -> bool:
    """True if a ledger is sealed, wholly before a position, and in no tier yet."""
    entries = ledger.info.entries
    if not ledger.info.is_closed or not entries or ledger.has_complete_copy or ledger.is_marked_for_deletion:
        return False
    has_segments = ledger.context is not None and bool(ledger.context.segments)
    return not has_segments and EntryPosition(ledger.ledger_id, entries - 1) < target


class _DueError(Exception):
    """A hot copy is about to be deleted: nothing was changed yet."""


class TopicOffloads:
    """Offloads of the managed ledger of this name; see `topic_offloads`.

    Args:
        read: the record as it is now.
        moved: told of each ledger whose copies are others now.
    """

    def __init__(
        self,
        environment: Environment,
        name: str,
        read: Callable[[], ManagedLedgerInfo],
        moved: Callable[[int], None],
    ) -> None:
        self.name = name
        self._environment = environment
        self._read = read
        self._moved = moved
        self._prefix = PrefixOffload(
            name, environment.offloads, partial(open_filter, environment, name), read, moved, self._announce
        )

    def read_info(self) -> ManagedLedgerInfo:
        """The record as it is now."""
        return self._read()

    def offload_prefix(self, position: EntryPosition) -> EntryPosition:
        """See `ManagedLedger.offload_prefix`."""
        return self._prefix.run(position)

    @property
    def offload_status(self) -> OffloadStatus:
        """See `ManagedLedger.offload_status`."""
        return self._prefix.status

    def stop_offload(self) -> None:
        """See `ManagedLedger.stop_offload`."""
        self._prefix.stop()

    def close(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the offload that runs, and begin none any more; wait for it, so long at most."""
        self._prefix.close(timeout_s)

    def delete_hot_copies(self, lag_s: float) -> list[int]:
        """See `ManagedLedger.delete_hot_copies`."""
        return self._delete_hot_copies(lag_s, self._announce_hot)

    def due_hot_copies(self, lag_s: float) -> list[int]:
        """The ledgers whose hot copies `delete_hot_copies` would delete, after the same checks; errors as of that."""

        def stop(_: Deletion, __: tuple[FilterRecord, ...]) -> None:
            raise _DueError

        return self._delete_hot_copies(lag_s, stop)

    def _delete_hot_copies(
        self, lag_s: float, announce: Callable[[Deletion, tuple[FilterRecord, ...]], None]
    ) -> list[int]:
        offloads = configured(self._environment.offloads, self.name)
        complete = [ledger for ledger in self._read().in_order if ledger.has_complete_copy]
        if not complete:
            return []  # the usual case of a round of upkeep, and the hot tier's listing is the dear part
        is_hot = set(self._environment.hot.of(self.name)).__contains__
        found: list[int] = []
        failures: list[OffloadError] = []
        for ledger in complete:
            if not is_hot(ledger.ledger_id):
                continue
            deletion = self._deletion(
                ledger, copy="hot", why="it was offloaded, and the deletion lag is over"
            )
            try:
                if offloads.delete_hot_copy(
                    self.name, ledger.ledger_id, int(lag_s * 1000), announce=partial(announce, deletion)
                ):
                    found.append(ledger.ledger_id)
                    self._moved(ledger.ledger_id)
            except _DueError:
                found.append(ledger.ledger_id)
            except OffloadError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return found

    def _announce(self, ledger: LedgerRecord, uuid: UUID, why: str) -> None:
        self._environment.audit.record(self._deletion(ledger, copy="cold", why=why, uuid=uuid))

    def _announce_hot(self, deletion: Deletion, filtered: tuple[FilterRecord, ...]) -> None:
        self._environment.audit.record(replace(deletion, filtered=filtered))

    def _deletion(
        self, ledger: LedgerRecord, *, copy: Literal["hot", "cold"], why: str, uuid: UUID | None = None
    ) -> Deletion:
        return Deletion(
            managed_ledger=self.name,
            ledger_id=ledger.ledger_id,
            copy=copy,
            why=why,
            uuid=uuid,
            entries=ledger.info.entries,
            size_bytes=ledger.info.size,
        )


def topic_offloads(environment: Environment, name: str) -> TopicOffloads:
    """The offloads of a managed ledger that need not be open here, nor is it looked for yet.

    Its calls raise `UnknownTopicError` if there is none.
    """

    def read() -> ManagedLedgerInfo:
        return environment.records.require(name).info

    return TopicOffloads(environment, name, read, lambda _: None)
