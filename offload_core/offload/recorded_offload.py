"""The life of a ledger's cold copy, with its record: offloaded, and its hot copy deleted.

    offload          older attempt abandoned and cleaned → attempt recorded → data → index → recorded as complete
    delete_hot_copy  cold copy checked → recorded as gone → hot copy deleted

The record is the commit point of each step, and it comes before what cannot be undone: a crash between any two lines
leaves every entry readable, and the same call again goes on. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from uuid import UUID, uuid4

from offload_core.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.catalogue.reading import read_index
from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerRecords,
    abandon_attempt,
    complete_attempt,
    fail_attempt,
    mark_hot_copy_deleted,
    prepare_attempt,
)
from offload_core.offload.clock import system_now_ms
from offload_core.offload.ledger_offloader import LedgerOffloader, ProgressListener
from offload_core.tier import Tier
from offload_hooks.errors import (
    AttemptError,
    DataLossError,
    ObjectNotFoundError,
    OffloadError,
    OutcomeUnknownError,
    UnknownLedgerError,
    UnknownTopicError,
)
from offload_hooks.ledger_stores import LedgerStore

_log = logging.getLogger(__name__)


class RecordedOffloads:
    """Offloads ledgers of managed ledgers whose records and hot copies are these. Nothing of it is closed.

    Calls may come from many threads and processes at once; of two that offload one ledger, one succeeds.

    Args:
        records: the managed ledgers' records.
        hot: where the ledgers are.
        tiers: where they go, and where others of them are.
        offloader_of: makes what writes to a tier.
        now_ms: the time, in ms since 1970, UTC.
    """

    def __init__(
        self,
        records: ManagedLedgerRecords,
        hot: LedgerStore,
        tiers: KnownTiers,
        *,
        offloader_of: Callable[[Tier], LedgerOffloader] = LedgerOffloader,
        now_ms: Callable[[], int] = system_now_ms,
    ) -> None:
        self._records = records
        self._hot = hot
        self._tiers = tiers
        self._offloader_of = offloader_of
        self._now_ms = now_ms

    def offload(self, name: str, ledger_id: int, *, listener: ProgressListener | None = None) -> bool:
        """Offload a ledger; when it returns, its copy is there and recorded as complete. Whether it was not before.

        Raises:
            UnknownTopicError, UnknownLedgerError: there is no such managed ledger, or it has no such ledger.
            AttemptError: the ledger is open or empty, or somebody else offloads it at the same time.
            StoreError, FormatError, DataLossError: of the hot tier, the tier or the metadata; the attempt was given up.
        """
        ledger = self._ledger(name, ledger_id)
        if ledger.has_complete_copy:
            return False
        older = None if ledger.context is None else ledger.context.uuid
        if older is not None:
            self._clean(name, ledger_id, older, ledger.context.driver if ledger.context else None)
        uuid, tier = uuid4(), self._tiers.current
        driver = tier_record(tier)
        self._records.update(
            name, lambda info: prepare_attempt(info, ledger_id, uuid, driver, replaces=older)
        )
        try:
            reader = self._hot.open(ledger_id)
            try:
                self._offloader_of(tier).offload(reader, uuid, {"managedledgername": name}, listener=listener)
            finally:
                reader.close()
            now = self._now_ms()
            self._records.update(name, lambda info: complete_attempt(info, ledger_id, uuid, now))
        except OutcomeUnknownError:
            raise  # the record may say that the copy is complete: nothing is deleted on a guess
        except Exception:
            self._give_up(name, ledger_id, uuid, driver)
            raise
        return True

    def delete_hot_copy(
        self, name: str, ledger_id: int, lag_ms: int, *, announce: Callable[[], None] | None = None
    ) -> bool:
        """Delete a ledger's hot copy if its cold one is complete for so long, and there; whether it is gone now.

        Args:
            announce: called before it is deleted; if this raises, it is not.

        Raises:
            UnknownTopicError, UnknownLedgerError: as `offload`.
            DataLossError: the record says that there is a cold copy, and it is not there as it should be.
            StoreError: the hot tier's, the tier's or the metadata's; it can be called again.
        """
        ledger = self._ledger(name, ledger_id)
        context = ledger.context
        if context is None or not context.complete or context.uuid is None or context.segments:
            return False
        uuid = context.uuid
        if not context.bookkeeper_deleted:
            if self._now_ms() < (context.timestamp_ms or 0) + lag_ms:
                return False
            self._check_cold(ledger, uuid)
            self._records.update(name, lambda info: mark_hot_copy_deleted(info, ledger_id, uuid))
        if announce is not None:
            announce()
        self._hot.delete(ledger_id)
        return True

    def delete_cold_copy(self, name: str, ledger: LedgerRecord) -> None:
        """Delete the objects of a ledger whose record says that it is not to be read any more; it can be called again.

        Raises:
            AttemptError: the record says that the copy is complete.
            OptionError: it lies in a tier that is not configured.
            StoreError: of the tier.
        """
        context = ledger.context
        if context is None or context.uuid is None:
            return
        if ledger.has_complete_copy:
            raise AttemptError(
                f"a copy of {name} is deleted after its record says so",
                ledger_id=ledger.ledger_id,
                found=context.uuid,
            )
        offloader = self._offloader_of(self._tiers.find(context.driver))
        offloader.delete_offloaded(ledger.ledger_id, context.uuid)

    def _ledger(self, name: str, ledger_id: int) -> LedgerRecord:
        known = self._records.read(name)
        if known is None:
            raise UnknownTopicError("there is no record of this managed ledger", found=name)
        ledger = known.info.ledger(ledger_id)
        if ledger is None:
            raise UnknownLedgerError(f"{name} has no such ledger", ledger_id=ledger_id)
        return ledger

    def _clean(self, name: str, ledger_id: int, uuid: UUID, driver: DriverMetadata | None) -> None:
        """Delete an attempt's objects, which can never be complete from then on."""
        tier = self._tiers.find(driver)
        self._records.update(name, partial(abandon_attempt, ledger_id=ledger_id, uuid=uuid))
        self._offloader_of(tier).delete_offloaded(ledger_id, uuid)

    def _give_up(self, name: str, ledger_id: int, uuid: UUID, driver: DriverMetadata) -> None:
        """Clean up after an attempt that failed; what cannot be cleaned now, the next attempt cleans."""
        try:
            with suppress(
                UnknownTopicError, AttemptError
            ):  # trimmed, deleted, or another took the place of this one
                self._records.update(name, partial(abandon_attempt, ledger_id=ledger_id, uuid=uuid))
            if self._is_complete(name, ledger_id, uuid):
                return
            self._offloader_of(self._tiers.find(driver)).delete_offloaded(ledger_id, uuid)
            with suppress(UnknownTopicError, AttemptError):
                self._records.update(name, partial(fail_attempt, ledger_id=ledger_id, uuid=uuid))
        except OffloadError as error:
            _log.warning(
                "attempt %s at ledger %d of %s is not cleaned up yet: %s", uuid, ledger_id, name, error
            )

    def _is_complete(self, name: str, ledger_id: int, uuid: UUID) -> bool:
        known = self._records.read(name)
        ledger = None if known is None else known.info.ledger(ledger_id)
        context = None if ledger is None else ledger.context
        return context is not None and context.complete and context.uuid == uuid

    def _check_cold(self, ledger: LedgerRecord, uuid: UUID) -> None:
        """The cold copy is there: an index that can be read, of data of that length, with all entries of the record."""
        context = ledger.context
        tier = self._tiers.find(None if context is None else context.driver)
        key = ObjectKey(folder="", uuid=uuid, ledger_id=ledger.ledger_id, is_index=False)
        try:
            data, stored = tier.stat(key.data_key), tier.stat(key.index_key)
            index = read_index(tier, key, index_bytes=stored.size_bytes, data_bytes=data.size_bytes)
        except ObjectNotFoundError as error:
            raise DataLossError(
                "a cold copy that is recorded as complete is not there",
                key=error.key,
                ledger_id=ledger.ledger_id,
            ) from error
        end = index.ledgers[0].blocks[-1].end_entry_id
        if index.data_length != data.size_bytes or end != ledger.info.entries:
            raise DataLossError(
                "a cold copy that is recorded as complete is not what its record says",
                key=key.data_key,
                ledger_id=ledger.ledger_id,
                expected=f"{ledger.info.entries} entries in {index.data_length} bytes",
                found=f"{end} entries in {data.size_bytes} bytes",
            )
