"""An offload attempt while this process works on it: its lease, renewed in the background until it has ended.

Other processes see by the lease that the attempt is alive, and leave it alone. A lease that was not renewed is expired,
and one whose process has ended counts no more; then the attempt may be taken over. Its maker finds that out at the next
renewal, or at the latest when it is to be recorded as complete.

A process whose attempt was taken over, while it went on, compares no clocks any more: it watches whether others renew
their leases, by its own monotonic clock. So processes whose clocks differ take attempts from each other once for each
process, and not for ever.

A process is known by the machine since its start, the part of it whose process ids it shares (containers of one machine
have each their own), its id there, and when it began. Of another machine's processes nothing can be found out. Source:
docs/adr/0051-leases-are-watched-by-who-lost-one.md.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import xxhash

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    Segment,
    ledger_copy_key,
)
from offload_core.metadata.records.attempts import (
    AttemptHolder,
    AttemptLease,
    abandon_attempt,
    forget_attempt,
    lease_of,
    renew_attempt,
)
from offload_core.metadata.records.segments import abandon_segment, find_segment, forget_segment
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import Change
from offload_core.storage.hot.file_calls import boot_identity
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Deletion
from offload_core.writing.offload.attempt_objects import delete_attempt
from offload_hooks.errors import AttemptError, LiveAttemptError, OffloadError, OptionError, UnknownTopicError

if TYPE_CHECKING:
    from typing_extensions import Self

_ENDED = ("Z", "X")
"""States of a process that has ended and was not waited for yet."""


def this_process() -> AttemptHolder:
    """This process; in a forked child, the child."""
    process = os.getpid()
    looked = _look(process)
    return AttemptHolder(machine=_machine(), process=process, started=0 if looked is None else looked[1])


def has_ended(holder: AttemptHolder) -> bool:
    """True if it is certain that a process has ended; False also where that cannot be known."""
    if holder.machine != _machine():
        return False
    try:
        os.kill(holder.process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass  # it is there, and another user's
    looked = _look(holder.process)
    return looked is not None and (looked[0] in _ENDED or looked[1] != holder.started)


@functools.cache
def _machine() -> int:
    try:
        part = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # a system without such parts
        part = ""
    return xxhash.xxh64_intdigest(f"{boot_identity():016x} {part}".encode())


def _look(process: int) -> tuple[str, int] | None:
    """State and start of a process, in the system's ticks; None if the system has none. Source: proc_pid_stat(5)."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
        fields = text.rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


DEFAULT_LEASE_S = 60.0
"""Length of a lease, which is renewed three times in that time."""

LONGEST_LEASE_S = 600.0
"""A lease that ends later than this was written by another clock, and does not count."""

WATCHED_S = LONGEST_LEASE_S / 2
"""Time after which a lease that has not changed is expired: even the longest is renewed more often."""


class Renewal(Protocol):
    """A step that records another lease of an attempt."""

    def __call__(self, info: ManagedLedgerInfo, /, *, lease: AttemptLease) -> ManagedLedgerInfo:
        """The record with that lease; `AttemptError` if the attempt is over."""


_log = logging.getLogger(__name__)


class AttemptProcess:
    """A process that makes attempts: its identity, its attempts, and the leases of other processes that it watches.

    Args:
        holder: which process it is.
        has_ended: whether it is certain that another has ended.
        monotonic_s: a clock that is never set, in s.

    Attributes:
        running: its attempts.
        watches: whether one of its running attempts was taken over; from then on it compares no clocks.
    """

    def __init__(
        self,
        *,
        holder: Callable[[], AttemptHolder] = this_process,
        has_ended: Callable[[AttemptHolder], bool] = has_ended,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.holder = holder
        self.running: set[UUID] = set()
        self.watches = False
        self._has_ended = has_ended
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._seen: dict[UUID, tuple[AttemptLease, float]] = {}

    def is_at(self, uuid: UUID, lease: AttemptLease) -> bool:
        """True if the attempt's holder may work on it still, whatever the time is."""
        return uuid in self.running if lease.holder == self.holder() else not self._has_ended(lease.holder)

    def left_s(self, uuid: UUID, lease: AttemptLease, now_ms: int) -> float:
        """The seconds for which the lease is held; 0 or less if it is expired."""
        if lease.holder == self.holder() or not self.watches:
            left_s = (lease.until_ms - now_ms) / 1000
            return left_s if left_s <= LONGEST_LEASE_S else 0.0
        now_s = self._monotonic_s()
        with self._lock:
            # a lease that was not asked for that long is watched anew
            self._seen = {each: at for each, at in self._seen.items() if now_s - at[1] <= 2 * WATCHED_S}
            known = self._seen.get(uuid)
            if known is None or known[0] != lease:
                known = self._seen[uuid] = (lease, now_s)
        return known[1] + WATCHED_S - now_s


THIS_PROCESS = AttemptProcess()


class RunningAttempt:
    """An attempt at a ledger, as a context: in it, the attempt is this process's. Leaving it waits for a renewal.

    Args:
        lease_s: how long the lease is, from each renewal on.
        now_ms: the time, in ms since 1970, UTC.
        renew: the step that records another lease; None for that of an offload attempt.
        process: whose attempt it is.
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
        process: AttemptProcess = THIS_PROCESS,
    ) -> None:
        self._records = records
        self._name = name
        self._ledger_id = ledger_id
        self._uuid = uuid
        self._lease_s = lease_s
        self._now_ms = now_ms
        self._process = process
        self._renewal = renew or partial(renew_attempt, ledger_id=ledger_id, uuid=uuid)
        self._lost: OffloadError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="offload-lease", daemon=True)

    def __enter__(self) -> Self:
        self._process.running.add(self._uuid)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._process.running.discard(self._uuid)

    def lease(self) -> AttemptLease:
        """A lease from now on."""
        return lease_from(self._now_ms(), self._lease_s, self._process)

    def keep_lease(self) -> None:
        """Renew it from now on; the attempt is recorded."""
        self._thread.start()

    def check(self) -> None:
        """Refuse to go on with an attempt that is known to be taken over; `AttemptError`, `UnknownTopicError`."""
        if self._lost is not None:
            raise self._lost

    def notice_loss(self) -> None:
        """Check why it failed: if another process took it over while it went on, this one watches leases from now on.

        The failure itself does not show it: it may be of an upload that the other has aborted.
        """
        try:
            known = self._records.read(self._name)
            if known is not None:
                self._renewal(known.info, lease=self.lease())  # the step alone: nothing is written
        except AttemptError:
            self._process.watches = True
        except OffloadError as error:
            _log.debug("whether attempt %s was taken over is not known: %s", self._uuid, error)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedAttempt:
    """An attempt at a ledger or a segment that is to be cleaned up; see `ledger_attempt`, `segment_attempt`.

    Attributes:
        key: its data object.
        driver: what is recorded of it.
        deletion: the line of the audit log for its objects.
        abandon, forget: the steps in the record.
        check: refuses an attempt whose lease is held (`LiveAttemptError`), by the record and the time.
    """

    key: ObjectKey
    driver: DriverMetadata | None
    deletion: Deletion
    abandon: Change
    forget: Change
    check: Callable[[ManagedLedgerInfo, int, AttemptProcess], None]

    def delete(self, tier: Tier, audit: AuditLog) -> None:
        """Delete its objects; the audit log has it first."""
        audit.record(self.deletion)
        delete_attempt(tier, self.key)

    def clean_up(
        self,
        update: Callable[[Change], object],
        tiers: KnownTiers,
        audit: AuditLog,
        now_ms: Callable[[], int],
        *,
        process: AttemptProcess = THIS_PROCESS,
        forgets: bool,
    ) -> None:
        """Abandon it in its record, delete its objects, and forget it; it can be called again after any failure.

        The order keeps data safe. Once it is abandoned it can't become complete, whichever process still works on it,
        so its objects are not needed; and until they are deleted its record names them, so that they are found.

        Args:
            update: makes a step in the record.
            forgets: false if another attempt takes its place in the record.

        Raises:
            LiveAttemptError: its lease is held; nothing was changed.
            OptionError: its objects lie in a tier that is not configured; nothing was changed.
            AttemptError, StoreError: of the record, the audit log and the tier.
        """

        def abandon(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            self.check(info, now_ms(), process)
            tiers.find(self.driver)
            return self.abandon(info)

        update(abandon)
        self.delete(tiers.find(self.driver), audit)
        if forgets:
            update(self.forget)


def ledger_attempt(name: str, ledger: LedgerRecord, why: str) -> UnfinishedAttempt:
    """The attempt that a ledger's record names, to be cleaned up for this reason."""
    context, ledger_id = ledger.context, ledger.ledger_id
    assert context is not None
    uuid, driver = context.uuid, context.driver
    assert uuid is not None

    def check(info: ManagedLedgerInfo, now_ms: int, process: AttemptProcess) -> None:
        check_not_alive(info.ledger(ledger_id), now_ms, process=process)

    return UnfinishedAttempt(
        key=ledger_copy_key(name, ledger_id, uuid, driver),
        driver=driver,
        deletion=Deletion(
            managed_ledger=name,
            ledger_id=ledger_id,
            copy="cold",
            why=why,
            uuid=uuid,
            entries=ledger.info.entries,
            size_bytes=ledger.info.size,
        ),
        abandon=partial(abandon_attempt, ledger_id=ledger_id, uuid=uuid),
        forget=partial(forget_attempt, ledger_id=ledger_id, uuid=uuid),
        check=check,
    )


def segment_attempt(name: str, segment: Segment, why: str) -> UnfinishedAttempt:
    """An attempt at a segment, to be cleaned up for this reason."""
    uuid, ledger_id = segment.uuid, segment.begin.ledger_id

    def check(info: ManagedLedgerInfo, now_ms: int, process: AttemptProcess) -> None:
        known = find_segment(info, uuid)
        if known is not None and not known.is_finished:
            check_over(uuid, known.driver, now_ms, ledger_id, process)

    return UnfinishedAttempt(
        key=ObjectKey(folder="", uuid=uuid, ledger_id=None, is_index=False),
        driver=segment.driver,
        deletion=Deletion(managed_ledger=name, ledger_id=ledger_id, copy="cold", why=why, uuid=uuid),
        abandon=partial(abandon_segment, uuid=uuid),
        forget=partial(forget_segment, uuid=uuid),
        check=check,
    )


def check_not_alive(
    ledger: LedgerRecord | None,
    now_ms: int,
    *,
    but: UUID | None = None,
    process: AttemptProcess = THIS_PROCESS,
) -> None:
    """Refuse to touch an attempt at a whole ledger whose lease is held, if it is not `but`; see `check_over`."""
    context = None if ledger is None else ledger.context
    if ledger is None or context is None or context.complete or context.uuid in (None, but):
        return
    assert context.uuid is not None
    check_over(context.uuid, context.driver, now_ms, ledger.ledger_id, process)


def check_over(
    uuid: UUID,
    driver: DriverMetadata | None,
    now_ms: int,
    ledger_id: int,
    process: AttemptProcess = THIS_PROCESS,
) -> None:
    """Refuse to touch an attempt that is not complete, if its lease is held.

    Args:
        driver: what is recorded of the attempt, its lease among it.
        ledger_id: its ledger, or its segment's first.
        process: which asks.

    Raises:
        LiveAttemptError: its lease is not over, and its process is not known to have ended.
    """
    lease = lease_of(driver)
    if lease is None:
        return
    is_here = lease.holder == process.holder()
    if process.is_at(uuid, lease) and (left_s := process.left_s(uuid, lease, now_ms)) > 0:
        raise LiveAttemptError(
            f"{'this process' if is_here else 'another process'} offloads the ledger at the moment",
            ledger_id=ledger_id,
            found=f"attempt {uuid} of process {lease.holder.process}",
            hint=f"It can be taken over in {left_s:.0f} s, if it does not go on.",
        )


def check_lease_length(lease_s: float) -> None:
    """Refuse a lease that no process would accept (`OptionError`)."""
    if not 0 < lease_s <= LONGEST_LEASE_S:
        raise OptionError("a lease is longer than 0 s, and 600 s at most", found=lease_s)


def lease_from(now_ms: int, lease_s: float, process: AttemptProcess = THIS_PROCESS) -> AttemptLease:
    """A lease of a process from now on."""
    return AttemptLease(holder=process.holder(), until_ms=now_ms + int(lease_s * 1000))


@contextmanager
def working_on(uuid: UUID) -> Iterator[None]:
    """Mark the attempt as this process's until the block ends."""
    THIS_PROCESS.running.add(uuid)
    try:
        yield
    finally:
        THIS_PROCESS.running.discard(uuid)
