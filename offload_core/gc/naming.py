"""How a topic's record names an attempt: whether its objects are needed, or were left behind, by that record alone."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from offload_core.metadata import DriverMetadata, LedgerRecord, ManagedLedgerInfo, SegmentStatus
from offload_core.metadata.offload_context import FAILED, STATUS_PROPERTY
from offload_core.metadata.replacement_record import OtherRole, others_of
from offload_core.metadata.segment_shares import shares_of


class Naming(enum.IntEnum):
    """How a record names an attempt; of several ledgers the highest counts."""

    CONDEMNED = 1
    """Its ledgers are being deleted."""
    REPLACED = 2
    """Another copy took its place."""
    FAILED = 3
    """It was given up, and never becomes complete."""
    UNFINISHED = 4
    """It is under way, or was left: its lease tells, where it has one."""
    NEEDED = 5
    """A copy that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAttempt:
    """An attempt as a ledger's record names it.

    Attributes:
        driver: where it is; None if the record does not say.
        since_ms: of one that was replaced, when that was (ms since 1970, UTC); 0 of others.
        is_given_up: it is recorded that it never becomes complete, or is not read any more. That a ledger is neither
            hot nor cold is not enough: another program may mean something else by it.
    """

    uuid: UUID
    naming: Naming
    ledger_id: int
    driver: DriverMetadata | None = None
    since_ms: int = 0
    is_given_up: bool = False


def namings(info: ManagedLedgerInfo) -> list[NamedAttempt]:
    """The attempts that a record names; one may come several times.

    Raises:
        MetadataError: what is said of other copies is none of ours.
    """
    return [each for ledger in info.ledgers for each in _of_ledger(ledger)]


def naming_of(info: ManagedLedgerInfo | None, uuid: UUID) -> NamedAttempt | None:
    """How a record names this attempt; None if it does not. Errors as `namings`."""
    found = [] if info is None else [each for each in namings(info) if each.uuid == uuid]
    if not found:
        return None
    highest = max(found, key=lambda each: each.naming)
    latest = max(each.since_ms for each in found)
    return replace(highest, since_ms=latest, is_given_up=all(each.is_given_up for each in found))


def _of_ledger(ledger: LedgerRecord) -> Iterator[NamedAttempt]:
    context = ledger.context
    if context is None:
        return
    for each in _attempts(ledger):
        yield replace(each, naming=Naming.CONDEMNED) if ledger.is_condemned else each


def _attempts(ledger: LedgerRecord) -> Iterator[NamedAttempt]:
    context, ledger_id = ledger.context, ledger.ledger_id
    assert context is not None
    for share in shares_of(ledger):
        driver = share.driver or context.driver
        yield _attempt(share.uuid, ledger_id, driver, complete=share.status is SegmentStatus.OFFLOADED)
    if context.uuid is not None and not context.segments:
        yield _attempt(context.uuid, ledger_id, context.driver, complete=context.complete)
    for other in others_of(ledger):
        if other.role is OtherRole.REPLACED:
            yield NamedAttempt(
                uuid=other.uuid,
                naming=Naming.REPLACED,
                ledger_id=ledger_id,
                driver=other.driver,
                since_ms=other.since_ms,
                is_given_up=True,
            )
        else:
            yield _attempt(other.uuid, ledger_id, other.driver, complete=False)


def _attempt(uuid: UUID, ledger_id: int, driver: DriverMetadata | None, *, complete: bool) -> NamedAttempt:
    is_failed = not complete and driver is not None and driver.get(STATUS_PROPERTY) == FAILED
    naming = Naming.NEEDED if complete else Naming.FAILED if is_failed else Naming.UNFINISHED
    return NamedAttempt(uuid=uuid, naming=naming, ledger_id=ledger_id, driver=driver, is_given_up=is_failed)
