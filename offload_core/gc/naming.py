"""How a topic's record names an attempt: whether its objects are needed, or were left behind, by that record alone."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from uuid import UUID

from offload_core.metadata import LedgerRecord, ManagedLedgerInfo, SegmentStatus
from offload_core.metadata.offload_context import FAILED, STATUS_PROPERTY
from offload_core.metadata.segment_shares import shares_of


class Naming(enum.IntEnum):
    """How a record names an attempt; of several ledgers the highest counts."""

    CONDEMNED = 1
    """Its ledgers are being deleted."""
    FAILED = 2
    """It was given up, and never becomes complete."""
    UNFINISHED = 3
    """It is under way, or was left: its lease tells, where it has one."""
    NEEDED = 4
    """A copy that is read."""


def namings(info: ManagedLedgerInfo) -> Iterator[tuple[UUID, Naming, int]]:
    """The attempts that a record names: how, and for which ledger; one may come several times."""
    for ledger in info.ledgers:
        for uuid, naming in _of_ledger(ledger):
            yield uuid, Naming.CONDEMNED if ledger.is_condemned else naming, ledger.ledger_id


def naming_of(info: ManagedLedgerInfo | None, uuid: UUID) -> Naming | None:
    """How a record names this attempt; None if it does not."""
    if info is None:
        return None
    return max((naming for each, naming, _ in namings(info) if each == uuid), default=None)


def _of_ledger(ledger: LedgerRecord) -> Iterator[tuple[UUID, Naming]]:
    context = ledger.context
    if context is None:
        return
    for share in shares_of(ledger):
        match share.status:
            case SegmentStatus.OFFLOADED:
                yield share.uuid, Naming.NEEDED
            case SegmentStatus.FAILED:
                yield share.uuid, Naming.FAILED
            case SegmentStatus.ASSIGNED:
                yield share.uuid, Naming.UNFINISHED
    if context.uuid is None or context.segments:
        return
    if context.complete:
        yield context.uuid, Naming.NEEDED
    elif context.driver is not None and context.driver.get(STATUS_PROPERTY) == FAILED:
        yield context.uuid, Naming.FAILED
    else:
        yield context.uuid, Naming.UNFINISHED


def is_given_up(info: ManagedLedgerInfo, uuid: UUID) -> bool:
    """Whether a record says that an attempt never becomes complete; that its ledgers are being deleted is not enough.

    What another program calls neither hot nor complete may be there all the same.
    """
    found = [naming for ledger in info.ledgers for each, naming in _of_ledger(ledger) if each == uuid]
    return bool(found) and all(naming is Naming.FAILED for naming in found)
