"""The steps of an offload attempt of a whole ledger, as pure functions from record to record.

    prepare_attempt   before the first byte is written: the attempt's uuid, not complete, and its lease
    renew_attempt     while it goes on: its lease
    complete_attempt  data and index are there: complete, with the time. From now on it is read
    abandon_attempt   or: it failed, or somebody takes it over. From now on it cannot become complete
    fail_attempt      and then: its objects are deleted, and it is forgotten
    mark_hot_copy_deleted   after the deletion lag, and after the copy was checked

Each does nothing to its own result, so that it can be given to `ManagedLedgerRecords.update`. Each refuses, with an
`AttemptError`, what the record does not allow: then somebody else was there. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

from offload_core.metadata.records.attempts import (
    AttemptLease,
    AttemptStep,
    abandoned,
    check_step,
    status_of,
    with_lease,
)
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    FILTER_PROPERTY,
    DriverMetadata,
    OffloadContext,
)
from offload_hooks.errors import AttemptError


def prepare_attempt(
    info: ManagedLedgerInfo,
    ledger_id: int,
    uuid: UUID,
    driver: DriverMetadata,
    *,
    replaces: UUID | None = None,
    lease: AttemptLease | None = None,
) -> ManagedLedgerInfo:
    """Record an attempt, before its first byte is written.

    Args:
        driver: which driver writes, and where to; what reads the copy later.
        replaces: an older attempt that is not complete, whose objects are deleted.
        lease: who makes the attempt, and until when that is to be believed; None: anybody may take it over.

    Raises:
        AttemptError: the ledger is not there, open or empty, has a complete copy, streaming segments, or an unfinished
            attempt that is not `replaces` (its uuid is `found`), or its hot copy is gone.
    """
    ledger = _ledger(info, ledger_id)
    context = ledger.context or OffloadContext()
    if context.uuid == uuid and not context.complete:
        return info
    if not ledger.info.is_closed or not ledger.info.entries:
        raise AttemptError("a ledger that is open or empty is not offloaded", ledger_id=ledger_id)
    if context.complete:
        raise AttemptError("the ledger is offloaded already", ledger_id=ledger_id, found=context.uuid)
    if context.bookkeeper_deleted:
        raise AttemptError("the ledger's hot copy is gone", ledger_id=ledger_id)
    if context.uuid is not None and context.uuid != replaces:
        raise AttemptError(
            "the ledger has an offload attempt that is not complete",
            ledger_id=ledger_id,
            expected="none" if replaces is None else replaces,
            found=context.uuid,
            hint="Its objects are deleted first.",
        )
    driver = with_lease(driver, lease)
    return info.with_ledger(
        replace(ledger, context=replace(context, uuid=uuid, timestamp_ms=None, driver=driver))
    )


def renew_attempt(
    info: ManagedLedgerInfo, ledger_id: int, uuid: UUID, lease: AttemptLease
) -> ManagedLedgerInfo:
    """Record that the attempt goes on, and until when that is to be believed.

    Raises:
        AttemptError: this attempt is not the one that is recorded, or it was abandoned, or is complete.
    """

    def renew(context: OffloadContext) -> OffloadContext:
        return replace(context, driver=with_lease(context.driver or DriverMetadata(name=""), lease))

    return _change(info, ledger_id, uuid, AttemptStep.GO_ON, renew)


def complete_attempt(
    info: ManagedLedgerInfo,
    ledger_id: int,
    uuid: UUID,
    timestamp_ms: int,
    filter_record: str | None = None,
) -> ManagedLedgerInfo:
    """Record that data and index of the attempt are there, since `timestamp_ms` (since 1970, UTC).

    Args:
        filter_record: what a filter did to its entries; None if none ran.

    Raises:
        AttemptError: this attempt is not the one that is recorded, or it was abandoned.
    """

    def complete(context: OffloadContext) -> OffloadContext:
        driver = None if context.driver is None else with_lease(context.driver, None)
        if filter_record is not None:
            driver = (driver or DriverMetadata(name="")).with_property(FILTER_PROPERTY, filter_record)
        return replace(context, complete=True, timestamp_ms=timestamp_ms, driver=driver)

    if is_complete(info, ledger_id, uuid):
        return info
    return _change(info, ledger_id, uuid, AttemptStep.COMPLETE, complete)


def abandon_attempt(info: ManagedLedgerInfo, ledger_id: int, uuid: UUID) -> ManagedLedgerInfo:
    """Record that an attempt never becomes complete, before its objects are deleted: who made it may still be at it.

    Raises:
        AttemptError: another attempt is recorded, or this one is complete.
    """

    def abandon(context: OffloadContext) -> OffloadContext:
        return replace(context, driver=abandoned(context.driver or DriverMetadata(name="")))

    return _change(info, ledger_id, uuid, AttemptStep.ABANDON, abandon)


def fail_attempt(info: ManagedLedgerInfo, ledger_id: int, uuid: UUID) -> ManagedLedgerInfo:
    """Forget an attempt whose objects are deleted. One that is not forgotten is cleaned up by the next.

    Raises:
        AttemptError: another attempt is recorded, or this one is complete.
    """
    ledger = _ledger(info, ledger_id)
    if ledger.context is None or ledger.context.uuid is None:
        return info

    def forget(context: OffloadContext) -> OffloadContext | None:
        rest = replace(context, uuid=None, timestamp_ms=None, driver=None)
        return None if rest == OffloadContext() else rest

    return _change(info, ledger_id, uuid, AttemptStep.FORGET, forget)


def mark_hot_copy_deleted(info: ManagedLedgerInfo, ledger_id: int, uuid: UUID) -> ManagedLedgerInfo:
    """Record that the hot copy goes, whose cold copy is this attempt's and was checked to be there.

    Raises:
        AttemptError: this attempt is not the one that is recorded, or not complete.
    """

    def mark(context: OffloadContext) -> OffloadContext:
        if not context.complete:
            raise AttemptError(
                "the hot copy of a ledger is needed until the cold one is complete",
                ledger_id=ledger_id,
                found=uuid,
            )
        return replace(context, bookkeeper_deleted=True)

    return _change(info, ledger_id, uuid, None, mark)


def is_complete(info: ManagedLedgerInfo, ledger_id: int, uuid: UUID) -> bool:
    """Whether this attempt is recorded as the ledger's complete copy."""
    ledger = info.ledger(ledger_id)
    context = None if ledger is None else ledger.context
    return context is not None and context.complete and context.uuid == uuid


def _ledger(info: ManagedLedgerInfo, ledger_id: int) -> LedgerRecord:
    ledger = info.ledger(ledger_id)
    if ledger is None:
        raise AttemptError("the managed ledger has no such ledger", ledger_id=ledger_id)
    if ledger.context is not None and ledger.context.segments:
        raise AttemptError("the ledger is offloaded by streaming segments", ledger_id=ledger_id)
    return ledger


def _change(
    info: ManagedLedgerInfo,
    ledger_id: int,
    uuid: UUID,
    step: AttemptStep | None,
    change: Callable[[OffloadContext], OffloadContext | None],
) -> ManagedLedgerInfo:
    ledger = _ledger(info, ledger_id)
    if ledger.context is None or ledger.context.uuid != uuid:
        found = None if ledger.context is None else ledger.context.uuid
        raise AttemptError(
            "another offload attempt took the place of this one, or it was cleaned up",
            ledger_id=ledger_id,
            expected=uuid,
            found="none" if found is None else found,
        )
    if step is not None:
        status = status_of(ledger.context.driver, complete=ledger.context.complete)
        check_step(step, status, "the offload attempt", uuid, ledger_id)
    return info.with_ledger(replace(ledger, context=change(ledger.context)))
