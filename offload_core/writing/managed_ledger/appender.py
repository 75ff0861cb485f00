"""Appends to a managed ledger: to the ledger that is written now, and to a new one where that is full or failed.

    begin a ledger     created in the hot tier → recorded → appended to
    end a ledger       sealed in the hot tier → recorded with what it has

Each step can be made again, and what did not succeed is what the next append begins with: a failure between any two
leaves a managed ledger that can be appended to. A process that ends there leaves an unrecorded ledger, or a sealed one
that is recorded as open; opening finds both. Ledgers are begun by the first append that needs one. Source of the
limits at which a new one begins: Pulsar's `managedLedgerMax…` settings, and their defaults.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo
from offload_core.metadata.stores.managed_ledger_records import Change
from offload_core.writing.audit import Deletion
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.ledger_deletion import delete_hot
from offload_core.writing.managed_ledger.owned_record import (
    OwnedRecord,
    begin_ledger,
    check_not_terminated,
    end_ledger,
)
from offload_core.writing.managed_ledger.topic_reader import LedgersView
from offload_hooks.errors import (
    LedgerClosedError,
    LedgerFailedError,
    LedgerFencedError,
    OffloadError,
    OptionError,
    StoreError,
)
from offload_hooks.ledger_stores import LedgerStatus, LedgerWriter
from offload_hooks.values import ReadableBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloverPolicy:
    """Bounds of one ledger. Producers that append at the same moment may go past them by what they append then.

    Attributes:
        max_entries: `managedLedgerMaxEntriesPerLedger`.
        max_bytes: of payloads; `managedLedgerMaxSizePerLedgerMbytes`.
        max_age_s: since it was begun, also of an idle ledger; `…MaxLedgerRolloverTimeMinutes`.
        min_age_s: a younger ledger is not full, whatever it has; `managedLedgerMinLedgerRolloverTimeMinutes`.
    """

    max_entries: int = 50_000
    max_bytes: int = 2048 << 20
    max_age_s: float = 4 * 3600
    min_age_s: float = 600

    def __post_init__(self) -> None:
        for name, least in (("max_entries", 1), ("max_bytes", 1), ("max_age_s", 0), ("min_age_s", 0)):
            value = getattr(self, name)
            if not value >= least:
                raise OptionError(
                    f"a rollover policy has an impossible {name}", expected=f"{least} or more", found=value
                )

    def is_full(self, status: LedgerStatus, age_s: float) -> bool:
        """True if a ledger of this age is to be sealed; never one without entries."""
        if not status.entry_count or age_s < self.min_age_s:
            return False
        has_enough = status.entry_count >= self.max_entries or status.size_bytes >= self.max_bytes
        return has_enough or age_s >= self.max_age_s


_log = logging.getLogger(__name__)

_TRIES = (*[False] * 5, True)
"""Attempts at an append that is known not to be in the ledgers before; True for the last one."""


class Appender:
    """Appends to one managed ledger, by many threads at once.

    Attributes:
        view: the ledgers as they are now; replaced as a whole, so that readers need no lock.
    """

    def __init__(self, environment: Environment, owned: OwnedRecord, rollover: RolloverPolicy) -> None:
        self._environment = environment
        self._owned = owned
        self._hot = environment.hot
        self._rollover = rollover
        self._min_age_ms, self._max_age_ms = rollover.min_age_s * 1000, rollover.max_age_s * 1000
        self._now_ms = environment.now_ms
        self._lock = threading.Lock()  # held to change ledgers, not to append
        self._unrecorded: LedgerWriter | None = None
        self._ending: LedgerWriter | None = None
        self._sealed: LedgerStatus | None = None
        self._recovered: dict[int, int] = {}
        self._began_ms = 0
        self._bytes = 0  # about, for threads add to it at the same time
        self._perhaps_full: LedgerWriter | None = None
        self._closed = False
        self.view = LedgersView.of(owned.info, None)

    def append(self, add: Callable[[LedgerWriter], int], payloads: Sequence[ReadableBuffer]) -> EntryPosition:
        """Append entries by `add` and return the position of the first. Errors as `ManagedLedger.add_entry`."""
        for is_last in _TRIES:
            writer = self._writer()
            try:
                first_entry_id = add(writer)
            except (LedgerClosedError, LedgerFencedError, LedgerFailedError) as error:
                self._replace(writer, error)
                if is_last:
                    raise
            else:
                self._bytes += sum(map(len, payloads))
                entry_count = first_entry_id + len(payloads)
                if entry_count >= self._rollover.max_entries or self._bytes >= self._rollover.max_bytes:
                    self._perhaps_full = writer
                return EntryPosition(writer.ledger_id, first_entry_id)
        raise AssertionError("the last turn returns or raises")

    def roll(self) -> bool:
        """Seal and record the ledger that is written; return True if it had entries."""
        with self._lock:
            self.check_open()
            writer = self.view.writer
            if writer is None or (self._ending is None and not writer.status.entry_count):
                return False
            return self._end()

    def roll_if_due(self) -> bool:
        """Do the same as `roll`, if the ledger is full or old, or was to be ended before; return True if it was."""
        writer = self.view.writer
        if writer is None or not (self._ending is writer or self._is_full(writer)):
            return False
        return self.roll()

    def change(self, change: Change) -> ManagedLedgerInfo:
        """Change the record, and the view with it; see `OwnedRecord.update`."""
        with self._lock:
            self.check_open()
            return self._record(change, self.view.writer)

    def end_and_change(self, change: Change) -> ManagedLedgerInfo:
        """End the ledger that is written, and then change the record, before anything else is appended."""
        with self._lock:
            self.check_open()
            self._end()
            return self._record(change, None)

    def check_open(self) -> None:
        """Refuse to go on if it was closed; `LedgerClosedError`."""
        if self._closed:
            raise LedgerClosedError(f"the managed ledger {self._owned.name} was closed")

    def stop(self) -> None:
        """Append no more; the ledger that is written stays as it is."""
        with self._lock:
            self._closed = True

    def close(self) -> None:
        """End the ledger that is written. Nothing can be appended any more, also where that fails."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._end()

    # --- ledgers, under the lock ------------------------------------------------------------

    def _writer(self) -> LedgerWriter:
        """The writer to append by now."""
        writer = self.view.writer
        age_ms = self._now_ms() - self._began_ms
        is_due = age_ms >= (self._min_age_ms if writer is self._perhaps_full else self._max_age_ms)
        if writer is None or self._closed or writer is self._ending or is_due:
            with self._lock:
                self.check_open()
                writer = self.view.writer
                if writer is not None and (self._ending is writer or self._is_full(writer)):
                    self._end()
                    writer = None
                if writer is None:
                    writer = self._begin()
        return writer

    def _begin(self) -> LedgerWriter:
        check_not_terminated(self._owned.info)
        if self._unrecorded is None:
            self._owned.read()  # a former owner creates nothing in vain
            self._unrecorded = self._hot.create(self._owned.name)
        writer = self._unrecorded
        self._began_ms, self._bytes = self._now_ms(), 0
        self._record(lambda info: begin_ledger(info, writer.ledger_id), writer)
        self._unrecorded = None
        return writer

    def _end(self) -> bool:
        writer = self.view.writer
        if writer is None:
            return False
        self._ending = writer
        if self._sealed is None:
            self._sealed = self._seal(writer)
        status, now_ms = self._sealed, self._now_ms()
        self._record(lambda info: end_ledger(info, status, now_ms), None)
        self._ending = self._sealed = None
        if not status.entry_count:
            try:
                delete_hot(
                    self._environment,
                    Deletion(
                        managed_ledger=self._owned.name,
                        ledger_id=status.ledger_id,
                        copy="hot",
                        why="it has no entries",
                    ),
                )
            except StoreError as error:
                _log.warning(
                    "ledger %d of %s has no entries and is not deleted yet: %s",
                    status.ledger_id,
                    self._owned.name,
                    error,
                )
        return True

    def _seal(self, writer: LedgerWriter) -> LedgerStatus:
        try:
            return writer.close()
        except (LedgerFailedError, LedgerFencedError):
            self._owned.read()
            status = self._hot.store.recover(writer.ledger_id).status
            self._recovered[status.ledger_id] = status.entry_count
            return status

    def _record(self, change: Change, writer: LedgerWriter | None) -> ManagedLedgerInfo:
        info = self._owned.update(change)
        self.view = LedgersView.of(info, writer)
        return info

    def _is_full(self, writer: LedgerWriter) -> bool:
        return self._rollover.is_full(writer.status, (self._now_ms() - self._began_ms) / 1000)

    # --- an append that did not succeed ------------------------------------------------------------

    def _replace(self, writer: LedgerWriter, error: OffloadError) -> None:
        """See that the ledger is ended; return if the append is known not to be in it, else raise."""
        with self._lock:
            if self.view.writer is writer:
                if isinstance(error, LedgerClosedError) and self._ending is not writer:
                    raise error  # not by us: its store was closed
                try:
                    self._end()
                except OffloadError as worse:
                    if isinstance(error, LedgerFailedError):
                        raise error from worse  # the ledger's end is not known yet
                    raise
        if isinstance(error, LedgerFailedError):
            kept, acknowledged = self._recovered.get(writer.ledger_id), writer.status.entry_count
            if kept is None:
                raise error
            if kept > acknowledged:
                raise LedgerFailedError(
                    f"{error.what}; of what was being added then, it is not known whose is there",
                    ledger_id=writer.ledger_id,
                    found=f"entries {acknowledged} to {kept - 1}, which were not acknowledged",
                    hint="Look at them before it is added again.",
                ) from error
