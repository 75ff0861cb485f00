"""The life of a ledger's cold copy, with its record: offloaded, and its hot copy deleted.

    offload          older attempt, if its lease is not held, abandoned and cleaned → attempt recorded → data
                     → index → recorded as complete
    delete_hot_copy  cold copy checked, and what a filter took out of it → announced → recorded as gone
                     → hot copy deleted

The record is the commit point of each step, and it comes before what cannot be undone: a crash between any two lines
leaves every entry readable, and the same call again goes on. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from uuid import UUID, uuid4

from offload_core.format.codec.object_format import TOPIC_KEY, ObjectKey
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.catalogue.recorded_copies import other_copy_key, recorded_copies
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OtherCopy,
    abandon_attempt,
    begin_attempt,
    complete_attempt,
    find_segment,
    forget_attempt,
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
from offload_core.storage.tier import Tier
from offload_core.writing.filters import FilterRecord, FilterRun
from offload_core.writing.filters.recorded_filters import recorded_filters
from offload_core.writing.offload.attempt_objects import delete_attempt
from offload_core.writing.offload.hot_copy_check import check_cold_copies, check_settled
from offload_core.writing.offload.ledger_offloader import LedgerOffloader, OffloadProgress, ProgressListener
from offload_core.writing.offload.offloads import Announce, AnnounceHot, to_nobody
from offload_core.writing.offload.running_attempt import (
    DEFAULT_LEASE_S,
    THIS_PROCESS,
    AttemptProcess,
    RunningAttempt,
    check_lease_length,
    check_not_alive,
    check_over,
    clean_up,
)
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
from offload_hooks.ledger_stores import LedgerReader, LedgerStore

_log = logging.getLogger(__name__)


class RecordedOffloads:
    """Offloads ledgers of managed ledgers whose records and hot copies are these. Nothing of it is closed.

    Calls may come from many threads and processes at once. Of two that offload one ledger the first goes on, as long as
    its lease says that it is alive.

    Args:
        records: the managed ledgers' records.
        hot: where the ledgers are.
        tiers: where they go, and where others of them are.
        offloader_of: makes what writes to a tier.
        open_hot: opens a ledger that is offloaded; None for as `hot` does.
        now_ms: the time, in ms since 1970, UTC.
        lease_s: how long an attempt of this process is left alone by others after it was last heard of; to 600 s.
        process: whose attempts they are.

    Raises:
        OptionError: a lease that no process would accept.
    """

    def __init__(
        self,
        records: ManagedLedgerRecords,
        hot: LedgerStore,
        tiers: KnownTiers,
        *,
        offloader_of: Callable[[Tier], LedgerOffloader] = LedgerOffloader,
        open_hot: Callable[[int], LedgerReader] | None = None,
        now_ms: Callable[[], int] = system_now_ms,
        lease_s: float = DEFAULT_LEASE_S,
        process: AttemptProcess = THIS_PROCESS,
    ) -> None:
        check_lease_length(lease_s)
        self._records = records
        self._hot = hot
        self._tiers = tiers
        self._offloader_of = offloader_of
        self._open_hot = hot.open if open_hot is None else open_hot
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
        announce: Announce = to_nobody,
    ) -> bool:
        """Offload a ledger; when it returns, its copy is there and recorded as complete. Whether it was not before.

        Args:
            filter_run: what its entries go through; None for nothing. For this call only.
            listener: told after each block that was built; if it raises, the attempt is given up.
            announce: see `Announce`: of an older attempt, and of this one if it fails.

        Raises:
            UnknownTopicError, UnknownLedgerError: there is no such managed ledger, or it has no such ledger.
            LiveAttemptError: another process offloads it at the moment; nothing was changed.
            AttemptError: the ledger is open or empty, or another process took this attempt over.
            PluginError, UnresolvedTransactionError: of the filter; the attempt was given up.
            StoreError, FormatError, DataLossError: of the hot tier, the tier or the metadata; the attempt was given up.
        """
        ledger = self._ledger(name, ledger_id)
        if ledger.has_complete_copy:
            return False
        older = None if ledger.context is None else ledger.context.uuid
        if older is not None:
            self._take_over(
                name, ledger_id, older, ledger.context.driver if ledger.context else None, announce
            )
        uuid, tier = uuid4(), self._tiers.current
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

            self._records.update(name, prepare)
            attempt.keep_lease()
            try:
                with closing(self._open_hot(ledger_id)) as reader:
                    offloaded = self._offloader_of(tier).offload(
                        reader, uuid, {TOPIC_KEY: name}, filter_run=filter_run, listener=watch
                    )
                filtered = None if offloaded.filter is None else offloaded.filter.pack(short=True)
                now = self._now_ms()
                self._records.update(
                    name, lambda info: complete_attempt(info, ledger_id, uuid, now, filtered)
                )
            except OutcomeUnknownError:
                raise  # the record may say that the copy is complete: nothing is deleted on a guess
            except Exception as error:
                attempt.notice_loss()
                self._give_up(name, ledger_id, uuid, driver, partial(announce, uuid, _why_given_up(error)))
                raise
        return True

    def delete_hot_copy(
        self, name: str, ledger_id: int, lag_ms: int, *, announce: AnnounceHot | None = None
    ) -> bool:
        """Delete a ledger's hot copy if its cold one is complete for so long, and there; whether it is gone now.

        It stays while another cold copy is being made, and where its record says that the cold one is damaged.

        Args:
            announce: see `AnnounceHot`; told again where the deletion is made again.

        Raises:
            UnknownTopicError, UnknownLedgerError: as `offload`.
            DataLossError: the record says that there is a cold copy, and it is not there as it should be; or a filter
                took entries out of it, and it is not known, or not so, that these were to go.
            StoreError: the hot tier's, the tier's or the metadata's; it can be called again.
        """
        ledger = self._ledger(name, ledger_id)
        context = ledger.context
        if context is None or not ledger.is_fully_offloaded or context.uuid is None:
            return False
        announce = _nobody_asked if announce is None else announce
        if context.bookkeeper_deleted:
            announce(recorded_filters(ledger))
            check_cold_copies(self._tiers, name, ledger)
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
            records = check_cold_copies(self._tiers, name, ledger)
            if context.segments:
                mark = partial(mark_segmented_hot_copy_deleted, ledger_id=ledger_id)
            else:
                mark = partial(mark_hot_copy_deleted, ledger_id=ledger_id, uuid=context.uuid)
            if records:
                check_settled(records, SnapshotStore(self._records.store).read(name), ledger_id)
            announce(records)

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
            self._check_once_more(name, before, marked)
        self._hot.delete(ledger_id)
        return True

    def _check_once_more(self, name: str, before: LedgerRecord, marked: LedgerRecord) -> None:
        """Check the cold copies now that the record says that there are no others: who deletes one reads it afterwards.

        Raises:
            DataLossError: they are not there any more; the record says again that the hot copy is.
        """
        try:
            check_cold_copies(self._tiers, name, before)
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

    def delete_cold_copy(self, name: str, ledger: LedgerRecord) -> None:
        """Delete the object of a ledger whose record says that it is not to be read any more; it can be called again.

        One that is offloaded by segments has none of its own, see `delete_segment`.

        Raises:
            AttemptError: the record says that the copy is complete.
            OptionError: it lies in a tier that is not configured.
            StoreError: of the tier.
        """
        context = ledger.context
        if context is None or context.uuid is None or context.segments:
            return
        if ledger.has_complete_copy:
            raise AttemptError(
                f"a copy of {name} is deleted after its record says so",
                ledger_id=ledger.ledger_id,
                found=context.uuid,
            )
        delete_attempt(self._tiers.find(context.driver), _key_of(name, ledger))

    def delete_segment(self, name: str, uuid: UUID, driver: DriverMetadata | None) -> None:
        """Delete the objects of a segment that no ledger has, but such as are condemned; it can be called again.

        Raises:
            AttemptError: another ledger has it.
            OptionError: it lies in a tier that is not configured.
            StoreError: of the tier or the metadata.
        """
        known = self._records.read(name)
        if known is not None and find_segment(known.info, uuid) is not None:
            raise AttemptError(f"a segment of {name} is deleted when no ledger needs it any more", found=uuid)
        delete_attempt(
            self._tiers.find(driver), ObjectKey(folder="", uuid=uuid, ledger_id=None, is_index=False)
        )

    def delete_other_copy(self, name: str, copy: OtherCopy) -> None:
        """Delete the objects of a copy that no ledger names, but such as are condemned; it can be called again.

        Raises:
            AttemptError: another ledger names it.
            OptionError: it lies in a tier that is not configured.
            StoreError: of the tier or the metadata.
        """
        known = self._records.read(name)
        if known is not None and copy.uuid in needed_objects(known.info):
            raise AttemptError(
                f"a copy of {name} is deleted when no ledger needs it any more", found=copy.uuid
            )
        delete_attempt(self._tiers.find(copy.driver), other_copy_key(topic_of_managed_ledger(name), copy))

    def _ledger(self, name: str, ledger_id: int) -> LedgerRecord:
        ledger = self._records.require(name).info.ledger(ledger_id)
        if ledger is None:
            raise UnknownLedgerError(f"{name} has no such ledger", ledger_id=ledger_id)
        return ledger

    def _take_over(
        self, name: str, ledger_id: int, uuid: UUID, driver: DriverMetadata | None, announce: Announce
    ) -> None:
        """Delete the objects of an attempt whose lease is not held, and which can never be complete from then on."""
        tier = self._tiers.find(driver)

        def abandon(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            check_not_alive(info.ledger(ledger_id), self._now_ms(), process=self._process)
            return abandon_attempt(info, ledger_id, uuid)

        def delete() -> None:
            announce(uuid, "its offload was left unfinished, and is begun anew")
            self._offloader_of(tier).delete_offloaded(ledger_id, uuid)

        clean_up(partial(self._records.update, name), abandon, delete)

    def _give_up(
        self, name: str, ledger_id: int, uuid: UUID, driver: DriverMetadata, announce: Callable[[], None]
    ) -> None:
        """Clean up after an attempt that failed; what cannot be cleaned now, the next attempt cleans."""

        def update(step: Change) -> None:
            with suppress(UnknownTopicError, AttemptError):  # trimmed, deleted, or another took its place
                self._records.update(name, step)

        def delete() -> None:
            known = self._records.read(name)
            if known is None or not is_complete(known.info, ledger_id, uuid):
                announce()
                self._offloader_of(self._tiers.find(driver)).delete_offloaded(ledger_id, uuid)

        abandon, forget = (
            partial(step, ledger_id=ledger_id, uuid=uuid) for step in (abandon_attempt, forget_attempt)
        )
        try:
            clean_up(update, abandon, delete, forget)
        except OffloadError as error:
            _log.warning(
                "attempt %s at ledger %d of %s is not cleaned up yet: %s", uuid, ledger_id, name, error
            )


def _nobody_asked(_: tuple[FilterRecord, ...]) -> None:
    """An `AnnounceHot` for callers that keep no audit log."""


def _key_of(name: str, ledger: LedgerRecord) -> ObjectKey:
    """Where a ledger's copy that is one object has its data."""
    return next(recorded_copies(topic_of_managed_ledger(name), ledger)).key


def _why_given_up(error: Exception) -> str:
    if isinstance(error, OffloadStoppedError):
        return "its offload was stopped"
    return f"its offload failed: {type(error).__name__}"
