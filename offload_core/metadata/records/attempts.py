"""Attempts in records, and the steps of a whole ledger's attempt as pure functions from record to record.

    begun ──▶ complete                     its copy is read
      └─────▶ abandoned ──▶ forgotten      its objects are deleted, then no record names it

`TRANSITIONS` is that table for all three kinds of attempts. They differ in where a record keeps them: in a ledger's
context (here), in its shares of segments (`segments`), in a property of its context (`replacements`). The steps here:

    begin_attempt           before the first byte is written
    renew_attempt           while it goes on: its lease
    complete_attempt        data and index exist
    abandon_attempt         it failed, or another process takes it over
    forget_attempt          its objects are deleted: forget it
    mark_hot_copy_deleted   after the deletion lag, and after the cold copy was checked

A step that is repeated changes nothing, so that it can be given to `ManagedLedgerRecords.update`. It raises
`AttemptError` where the record does not allow it: then another process was faster.

The lease names the process that works on an attempt, and its end. It is the property `lease` of the attempt's driver
metadata, which Pulsar ignores; a complete copy has none. It only spares work; safety comes from compare-and-set and the
attempt's uuid. So a lease that cannot be read counts as none. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from uuid import UUID

from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    BEGIN_PROPERTY,
    DAMAGED_PROPERTY,
    END_PROPERTY,
    FAILED,
    FILTER_PROPERTY,
    MIRRORED_PROPERTY,
    REPLACED_PROPERTY,
    REPLACEMENT_PROPERTY,
    STATUS_PROPERTY,
    AttemptStatus,
    DriverMetadata,
    OffloadContext,
)
from offload_hooks.errors import AttemptError

LEASE_PROPERTY = "lease"
_OF_ATTEMPT = (
    LEASE_PROPERTY,
    STATUS_PROPERTY,
    BEGIN_PROPERTY,
    END_PROPERTY,
    FILTER_PROPERTY,
    DAMAGED_PROPERTY,
    REPLACEMENT_PROPERTY,
    REPLACED_PROPERTY,
    MIRRORED_PROPERTY,
)
_LEASE = re.compile(r"([0-9a-f]{16}):([1-9][0-9]{0,9}):([0-9]{1,19}):([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHolder:
    """A process, identified among all others.

    Attributes:
        machine: 64 bits: the machine since it was started, and the process's namespace on it.
        process: its id there.
        started: when it began, in a unit of the machine's; 0 where that is not known.
    """

    machine: int
    process: int
    started: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLease:
    """A lease: until `until_ms` (since 1970, UTC) no other process takes the attempt over, if the holder lives."""

    holder: AttemptHolder
    until_ms: int

    def __str__(self) -> str:
        holder = self.holder
        return f"{holder.machine:016x}:{holder.process}:{holder.started}:{self.until_ms}"


def lease_of(driver: DriverMetadata | None) -> AttemptLease | None:
    """The lease in an attempt's driver metadata; None if it has none."""
    text = None if driver is None else driver.get(LEASE_PROPERTY)
    match = None if text is None else _LEASE.fullmatch(text)
    if match is None:
        return None
    holder = AttemptHolder(machine=int(match[1], 16), process=int(match[2]), started=int(match[3]))
    return AttemptLease(holder=holder, until_ms=int(match[4]))


def with_lease(driver: DriverMetadata, lease: AttemptLease | None) -> DriverMetadata:
    """The driver metadata with this lease; None removes it."""
    return driver.with_property(LEASE_PROPERTY, None if lease is None else str(lease))


class AttemptStep(enum.Enum):
    """A step of an attempt after it was begun."""

    CONTINUE = "continue"
    """The lease is renewed, or a segment goes on into another ledger."""
    COMPLETE = "complete"
    ABANDON = "abandon"
    FORGET = "forget"
    FOLLOW = "follow"
    """The attempt is forgotten after it was abandoned, or another attempt takes its positions."""


TRANSITIONS: Mapping[AttemptStep, frozenset[AttemptStatus]] = MappingProxyType(
    {
        AttemptStep.CONTINUE: frozenset({AttemptStatus.ASSIGNED}),
        AttemptStep.COMPLETE: frozenset({AttemptStatus.ASSIGNED}),
        AttemptStep.ABANDON: frozenset({AttemptStatus.ASSIGNED, AttemptStatus.FAILED}),
        AttemptStep.FORGET: frozenset({AttemptStatus.ASSIGNED, AttemptStatus.FAILED}),
        AttemptStep.FOLLOW: frozenset({AttemptStatus.FAILED}),
    }
)
"""The states from which each step may be made."""

_STATES = {
    AttemptStatus.ASSIGNED: "was not abandoned",
    AttemptStatus.OFFLOADED: "is complete already",
    AttemptStatus.FAILED: "was abandoned",
}


def check_step(
    step: AttemptStep, status: AttemptStatus, what: str, uuid: UUID, ledger_id: int | None = None
) -> None:
    """Refuse a step that an attempt's state does not allow (`AttemptError`); `what` names the attempt."""
    if status not in TRANSITIONS[step]:
        raise AttemptError(f"{what} {_STATES[status]}", ledger_id=ledger_id, found=uuid)


def status_of(driver: DriverMetadata | None, *, complete: bool = False) -> AttemptStatus:
    """The state of the attempt with this driver metadata."""
    if complete:
        return AttemptStatus.OFFLOADED
    failed = driver is not None and driver.get(STATUS_PROPERTY) == FAILED
    return AttemptStatus.FAILED if failed else AttemptStatus.ASSIGNED


def abandoned(driver: DriverMetadata) -> DriverMetadata:
    """The driver metadata of the same attempt after it was abandoned."""
    return with_lease(driver, None).with_property(STATUS_PROPERTY, FAILED)


def place_of(driver: DriverMetadata) -> DriverMetadata:
    """The place of a copy: its driver metadata without the properties of its attempt."""
    for name in _OF_ATTEMPT:
        driver = driver.with_property(name, None)
    return driver


def ledger_of(info: ManagedLedgerInfo, ledger_id: int) -> LedgerRecord:
    """The ledger of this id; `AttemptError` if the managed ledger has none."""
    ledger = info.ledger(ledger_id)
    if ledger is None:
        raise AttemptError("the managed ledger has no such ledger", ledger_id=ledger_id)
    return ledger


def begin_attempt(
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
        driver: the driver that writes, and its place.
        replaces: an older attempt that is not complete, whose objects are deleted.
        lease: None: any process may take the attempt over.

    Raises:
        AttemptError: the ledger does not exist, is open or empty, has a complete copy, streaming segments, or an
            unfinished attempt that is not `replaces` (its uuid is `found`), or its hot copy is deleted.
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
            hint="Delete its objects first.",
        )
    driver = with_lease(driver, lease)
    return info.with_ledger(
        replace(ledger, context=replace(context, uuid=uuid, timestamp_ms=None, driver=driver))
    )


def renew_attempt(
    info: ManagedLedgerInfo, ledger_id: int, uuid: UUID, lease: AttemptLease
) -> ManagedLedgerInfo:
    """Renew the attempt's lease.

    Raises:
        AttemptError: another attempt is recorded, or this one was abandoned, or is complete.
    """

    def renew(context: OffloadContext) -> OffloadContext:
        return replace(context, driver=with_lease(context.driver or DriverMetadata(name=""), lease))

    return _change(info, ledger_id, uuid, AttemptStep.CONTINUE, renew)


def complete_attempt(
    info: ManagedLedgerInfo, ledger_id: int, uuid: UUID, timestamp_ms: int, filter_record: str | None = None
) -> ManagedLedgerInfo:
    """Record that data and index of the attempt exist, since `timestamp_ms` (since 1970, UTC).

    Args:
        filter_record: of the filter that its entries went through, in short; None if none ran.

    Raises:
        AttemptError: another attempt is recorded, or this one was abandoned.
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
    """Record that an attempt never becomes complete. Its objects are deleted after that: its process may still write.

    Raises:
        AttemptError: another attempt is recorded, or this one is complete.
    """

    def abandon(context: OffloadContext) -> OffloadContext:
        return replace(context, driver=abandoned(context.driver or DriverMetadata(name="")))

    return _change(info, ledger_id, uuid, AttemptStep.ABANDON, abandon)


def forget_attempt(info: ManagedLedgerInfo, ledger_id: int, uuid: UUID) -> ManagedLedgerInfo:
    """Forget an attempt whose objects are deleted. The next attempt cleans up after one that is not forgotten.

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
    """Record that the hot copy is deleted, after the cold copy, this attempt's, was checked.

    Raises:
        AttemptError: another attempt is recorded, or this one is not complete.
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
    """True if this attempt is recorded as the ledger's complete copy."""
    ledger = info.ledger(ledger_id)
    context = None if ledger is None else ledger.context
    return context is not None and context.complete and context.uuid == uuid


def _ledger(info: ManagedLedgerInfo, ledger_id: int) -> LedgerRecord:
    ledger = ledger_of(info, ledger_id)
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
