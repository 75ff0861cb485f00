"""The life of a ledger's cold copy, with its record: offloaded, and its hot copy deleted.

    offload          older attempt, if its lease is not held, abandoned and cleaned up → attempt recorded → data
                     → index → recorded as complete
    delete_hot_copy  cold copy checked, and what a filter took out of it → audit log → recorded as gone
                     → hot copy deleted

The record is the commit point of each step, and it comes before what cannot be undone: a crash between any two lines
leaves every entry readable, and the same call again goes on. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Protocol
from uuid import UUID, uuid4

from offload_core.format.codec.object_format import TOPIC_KEY, ObjectKey
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    begin_attempt,
    complete_attempt,
    mark_hot_copy_deleted,
    mark_segmented_hot_copy_deleted,
    replacement_of,
)
from offload_core.metadata.records.attempts import is_complete
from offload_core.metadata.records.ledger_changes import is_marked_damaged, needed_objects
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import Change
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.storage.clock import system_now_ms
from offload_core.storage.offloader_stats import OffloaderStats
from offload_core.storage.tier import Tier
from offload_core.writing.audit import PROGRAM_LOG, AuditLog, Deletion
from offload_core.writing.offload.attempt_objects import delete_attempt
from offload_core.writing.offload.hot_copy_check import check_cold_copies, check_settled
from offload_core.writing.offload.ledger_offloader import LedgerOffloader, OffloadProgress, ProgressListener
from offload_core.writing.offload.running_attempt import (
    DEFAULT_LEASE_S,
    THIS_PROCESS,
    AttemptProcess,
    RunningAttempt,
    check_lease_length,
    check_not_alive,
    check_over,
    ledger_attempt,
)
from offload_core.writing.offload_filters import FilterRun, recorded_filters
from offload_hooks.errors import (
    AttemptError,
    DataLossError,
    LiveAttemptError,
    OffloadError,
    OffloadStoppedError,
    OutcomeUnknownError,
    UnknownLedgerError,
    UnknownTopicError,
)
from offload_hooks.ledger_stores import (
    DEFAULT_READ_BYTES,
    EntryBatch,
    LedgerReader,
    LedgerStatus,
    WritableLedgerStore,
)

_log = logging.getLogger(__name__)


class ReaderOver:
    """Passes all calls on to `reader`; see `LedgerReader`."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._reader.ledger_id

    def status(self) -> LedgerStatus:
        """See `LedgerReader`."""
        return self._reader.status()

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`."""
        return self._reader.read(first_entry_id, last_entry_id, max_bytes)

    def close(self) -> None:
        """See `LedgerReader`."""
        self._reader.close()


class TimedReader(ReaderOver):
    """A `LedgerReader` of one topic, for an offload."""

    def __init__(self, reader: LedgerReader, stats: OffloaderStats, topic: str) -> None:
        super().__init__(reader)
        self._stats = stats
        self._topic = topic

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`."""
        began = time.perf_counter()
        batch = super().read(first_entry_id, last_entry_id, max_bytes)
        self._stats.time_ledger_read(self._topic, time.perf_counter() - began)
        return batch


class TiersOf(Protocol):
    """Opens the tiers of a managed ledger, by its name; they stay open until the context is left."""

    def __call__(self, name: str, *, to_write: bool = False) -> AbstractContextManager[KnownTiers]:
        """The tiers, the current one first; `to_write` refuses (`OptionError`) policies that name none."""


class RecordedOffloads:
    """Offloads ledgers of managed ledgers whose records and hot copies are these. It does not close them.

    Calls may come from many threads and processes at once. Of two that offload one ledger the first goes on, as long as
    its lease is held.

    Args:
        records: the managed ledgers' records.
        hot: where the ledgers are.
        tiers: where they go, and where others of them are; or what opens the tiers of each managed ledger.
        offloader_of: makes what writes to a tier, for a managed ledger of this name.
        stats: counts results and failures of each topic.
        now_ms: the time, in ms since 1970, UTC.
        lease_s: how long other processes leave an attempt of this one alone after its last renewal; to 600 s.
        process: whose attempts they are.

    Raises:
        OptionError: a lease that no process would accept.
    """

    def __init__(
        self,
        records: ManagedLedgerRecords,
        hot: WritableLedgerStore,
        tiers: KnownTiers | TiersOf,
        *,
        offloader_of: Callable[[Tier, str], LedgerOffloader] = lambda tier, _: LedgerOffloader(tier),
        stats: OffloaderStats | None = None,
        now_ms: Callable[[], int] = system_now_ms,
        lease_s: float = DEFAULT_LEASE_S,
        process: AttemptProcess = THIS_PROCESS,
    ) -> None:
        check_lease_length(lease_s)
        self._records = records
        self._hot = hot
        self._tiers = tiers
        self._offloader_of = offloader_of
        self._stats = stats
        self._now_ms = now_ms
        self._lease_s = lease_s
        self._process = process

    def offload(
        self,
        name: str,
        ledger_id: int,
        *,
        filter_run: FilterRun | None = None,
        listener: ProgressListener | None = None,
        audit: AuditLog = PROGRAM_LOG,
        replaces: bool = True,
    ) -> bool:
        """Offload a ledger; when it returns, its copy is recorded as complete. Return True if it was not before.

        Args:
            name: of the managed ledger.
            ledger_id: of the ledger.
            filter_run: what its entries go through; None for nothing. For this call only.
            listener: called after each block that was built; if it raises, the attempt is abandoned.
            audit: records the deletion of an older attempt, and of this one if it fails.
            replaces: an attempt that was left is cleaned up; else it is an `AttemptError`.

        Raises:
            UnknownTopicError, UnknownLedgerError: there is no such managed ledger, or it has no such ledger.
            OptionError: no tier is configured, or not the one of an older attempt.
            LiveAttemptError: another process offloads it at the moment; nothing was changed.
            AttemptError: the ledger is open or empty, or another process took this attempt over.
            PluginError, UnresolvedTransactionError: of the filter; the attempt was abandoned.
            StoreError, FormatError, DataLossError: of the hot tier, the tier or the metadata; the attempt was given up.
        """
        try:
            with self.tiers_of(name, to_write=True) as tiers:
                return self._offload(tiers, name, ledger_id, filter_run, listener, audit, replaces)
        except (LiveAttemptError, OffloadStoppedError):
            raise
        except OffloadError:
            if self._stats is not None:
                self._stats.count_offload_error(topic_of_managed_ledger(name).full)
            raise

    def _offload(
        self,
        tiers: KnownTiers,
        name: str,
        ledger_id: int,
        filter_run: FilterRun | None,
        listener: ProgressListener | None,
        audit: AuditLog,
        replaces: bool,
    ) -> bool:
        ledger = self._ledger(name, ledger_id)
        if ledger.has_complete_copy:
            return False
        update = partial(self._records.update, name)
        older = None if ledger.context is None or not replaces else ledger.context.uuid
        if older is not None:
            why = "its offload was left unfinished, and is begun anew"
            left = ledger_attempt(name, ledger, why)
            left.clean_up(update, tiers, audit, self._now_ms, process=self._process, forgets=False)
        uuid, tier = uuid4(), tiers.current
        driver = tier_record(tier)
        with RunningAttempt(
            self._records,
            name,
            ledger_id,
            uuid,
            lease_s=self._lease_s,
            now_ms=self._now_ms,
            process=self._process,
        ) as attempt:

            def prepare(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
                check_not_alive(info.ledger(ledger_id), self._now_ms(), but=uuid, process=self._process)
                return begin_attempt(info, ledger_id, uuid, driver, replaces=older, lease=attempt.lease())

            def watch(progress: OffloadProgress) -> None:
                attempt.check()
                if listener is not None:
                    listener(progress)

            update(prepare)
            attempt.keep_lease()
            try:
                with closing(self._open_hot(name, ledger_id)) as reader:
                    offloaded = self._offloader_of(tier, name).offload(
                        reader, uuid, {TOPIC_KEY: name}, filter_run=filter_run, listener=watch
                    )
                filtered = None if offloaded.filter is None else offloaded.filter.pack(short=True)
                now = self._now_ms()
                update(lambda info: complete_attempt(info, ledger_id, uuid, now, filtered))
            except OutcomeUnknownError:
                raise  # the copy may be recorded as complete: nothing is deleted on a guess
            except Exception as error:
                attempt.notice_loss()
                self._give_up(tier, name, ledger, uuid, error, audit)
                raise
        return True

    def delete_hot_copy(
        self, name: str, ledger_id: int, lag_ms: int, *, audit: AuditLog = PROGRAM_LOG
    ) -> bool:
        """Delete a ledger's hot copy if its cold one exists and the lag is over; return True if it is gone now.

        It stays while another cold copy is being made, and where its record marks the cold one as damaged.

        Args:
            name: of the managed ledger.
            ledger_id: of the ledger.
            lag_ms: how long the cold copy must have been complete.
            audit: records it before, with what filters took out of the cold copy; again where it is deleted again.

        Raises:
            UnknownTopicError, UnknownLedgerError, OptionError: as `offload`.
            DataLossError: the recorded cold copy is not there as it should be; or a filter
                took entries out of it, and it is not known, or not so, that these were to go.
            StoreError: the hot tier's, the tier's or the metadata's; it can be called again.
        """
        with self.tiers_of(name, to_write=True) as tiers:
            return self._delete_hot_copy(tiers, name, ledger_id, lag_ms, audit)

    def _delete_hot_copy(
        self, tiers: KnownTiers, name: str, ledger_id: int, lag_ms: int, audit: AuditLog
    ) -> bool:
        ledger = self._ledger(name, ledger_id)
        context = ledger.context
        if context is None or not ledger.is_fully_offloaded or context.uuid is None:
            return False
        deletion = partial(
            Deletion,
            managed_ledger=name,
            ledger_id=ledger_id,
            copy="hot",
            why="it was offloaded, and the deletion lag is over",
            entries=ledger.info.entries,
            size_bytes=ledger.info.size,
        )
        if context.bookkeeper_deleted:
            audit.record(deletion(filtered=recorded_filters(ledger)))
            check_cold_copies(tiers, name, ledger)
        else:
            if self._now_ms() < (context.timestamp_ms or 0) + lag_ms or self._is_replaced_now(ledger):
                return False
            if is_marked_damaged(ledger):
                _log.warning(
                    "the hot copy of ledger %d of %s is kept: by its record the cold one is damaged; "
                    "`offload repair … --offload-again` makes another",
                    ledger_id,
                    name,
                )
                return False
            records = check_cold_copies(tiers, name, ledger)
            if context.segments:
                mark = partial(mark_segmented_hot_copy_deleted, ledger_id=ledger_id)
            else:
                mark = partial(mark_hot_copy_deleted, ledger_id=ledger_id, uuid=context.uuid)
            if records:
                check_settled(records, SnapshotStore(self._records.store).read(name), ledger_id)
            audit.record(deletion(filtered=records))

            before: LedgerRecord | None = None

            def mark_unless_replaced(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
                nonlocal before
                before = known = info.ledger(ledger_id)
                if known is not None and (self._is_replaced_now(known) or is_marked_damaged(known)):
                    return info
                return mark(info)

            marked = self._records.update(name, mark_unless_replaced).info.ledger(ledger_id)
            if marked is None or marked.context is None or not marked.context.bookkeeper_deleted:
                return False
            assert before is not None
            self._check_once_more(tiers, name, before, marked)
        self._hot.delete(ledger_id)
        return True

    def _check_once_more(
        self, tiers: KnownTiers, name: str, before: LedgerRecord, marked: LedgerRecord
    ) -> None:
        """Check the cold copies now that the record names no hot one: a process that deletes copies reads it then.

        Raises:
            DataLossError: they are not there any more; the record names the hot copy again.
        """
        try:
            check_cold_copies(tiers, name, before)
        except DataLossError:
            self._records.update(
                name,
                lambda info: info.with_ledgers([before]) if info.ledger(marked.ledger_id) == marked else info,
            )
            raise

    def _is_replaced_now(self, ledger: LedgerRecord) -> bool:
        """True if another cold copy is being made: of the hot one perhaps, as this one is damaged."""
        copy = replacement_of(ledger)
        try:
            if copy is not None:
                check_over(copy.uuid, copy.driver, self._now_ms(), ledger.ledger_id, self._process)
        except LiveAttemptError:
            return True
        return False

    def delete_cold_copy(self, name: str, key: ObjectKey, driver: DriverMetadata | None) -> None:
        """Delete the objects of a copy, whose ledgers are all marked for deletion; it can be called again.

        Raises:
            AttemptError: a ledger that is not marked needs the object.
            OptionError: it lies in a tier that is not configured.
            StoreError: of the tier or the metadata.
        """
        succeeded = False
        try:
            with self.tiers_of(name) as tiers:
                known = self._records.read(name) if key.ledger_id is None else None
                if known is not None and key.uuid in needed_objects(known.info):
                    raise AttemptError(
                        f"a copy of {name} is deleted when no ledger needs it any more", found=key.uuid
                    )
                delete_attempt(tiers.find(driver), key)
            succeeded = True
        finally:
            if self._stats is not None:
                self._stats.count_deletion(topic_of_managed_ledger(name).full, succeeded=succeeded)

    def tiers_of(self, name: str, *, to_write: bool = False) -> AbstractContextManager[KnownTiers]:
        """The tiers of a managed ledger, open until the context is left; see `TiersOf`."""
        if isinstance(self._tiers, KnownTiers):
            return nullcontext(self._tiers)
        return self._tiers(name, to_write=to_write)

    def _ledger(self, name: str, ledger_id: int) -> LedgerRecord:
        ledger = self._records.require(name).info.ledger(ledger_id)
        if ledger is None:
            raise UnknownLedgerError(f"{name} has no such ledger", ledger_id=ledger_id)
        return ledger

    def _open_hot(self, name: str, ledger_id: int) -> LedgerReader:
        reader = self._hot.open(ledger_id)
        if self._stats is None:
            return reader
        return TimedReader(reader, self._stats, topic_of_managed_ledger(name).full)

    def _give_up(
        self, tier: Tier, name: str, ledger: LedgerRecord, uuid: UUID, error: Exception, audit: AuditLog
    ) -> None:
        """Clean up after an attempt that failed; the next attempt cleans up what cannot be cleaned up now."""
        is_stopped = isinstance(error, OffloadStoppedError)
        why = "its offload was stopped" if is_stopped else f"its offload failed: {type(error).__name__}"
        context = OffloadContext(uuid=uuid, complete=False, driver=tier_record(tier))
        attempt = ledger_attempt(name, replace(ledger, context=context), why)

        def update(step: Change) -> None:
            with suppress(UnknownTopicError, AttemptError):  # trimmed, deleted, or another took its place
                self._records.update(name, step)

        try:
            update(attempt.abandon)
            known = self._records.read(name)
            if known is None or not is_complete(known.info, ledger.ledger_id, uuid):
                attempt.delete(tier, audit)
            update(attempt.forget)
        except OffloadError as cause:
            _log.warning(
                "attempt %s at ledger %d of %s is not cleaned up yet: %s", uuid, ledger.ledger_id, name, cause
            )
