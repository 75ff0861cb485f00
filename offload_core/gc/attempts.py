"""Attempts that records name and that are not complete: whether somebody is at them, and how they are given up."""

from __future__ import annotations

from uuid import UUID

from offload_core.metadata import (
    LedgerRecord,
    ManagedLedgerInfo,
    abandon_attempt,
    abandon_replacement,
    abandon_segment,
    fail_attempt,
    find_segment,
    forget_replaced,
    forget_replacement,
)
from offload_core.metadata.replacement_record import OtherCopy, OtherRole, other_copies, read_copies
from offload_core.metadata.segment_shares import shares_of
from offload_core.offload.running_attempt import check_not_alive, check_over
from offload_hooks.errors import AttemptError, LiveAttemptError


def check_not_under_way(info: ManagedLedgerInfo, uuid: UUID, now_ms: int) -> None:
    """Refuse an attempt that somebody is at (`LiveAttemptError`)."""
    segment = find_segment(info, uuid)
    if segment is not None and not segment.is_finished:
        check_over(uuid, segment.driver, now_ms, segment.begin.ledger_id)
    ledger = _ledger_of(info, uuid)
    if ledger is not None:
        check_not_alive(ledger, now_ms)
    other = _other(info, uuid)
    if other is not None and other.role is OtherRole.REPLACEMENT:
        check_over(uuid, other.driver, now_ms, other.ledger_ids[0])


def is_under_way(info: ManagedLedgerInfo, uuid: UUID, now_ms: int) -> bool:
    """Whether somebody is at an attempt."""
    try:
        check_not_under_way(info, uuid, now_ms)
    except LiveAttemptError:
        return True
    return False


def give_up(info: ManagedLedgerInfo, uuid: UUID, now_ms: int) -> ManagedLedgerInfo:
    """Record that an attempt never becomes complete, before its objects are deleted.

    Raises:
        LiveAttemptError: somebody is at it. AttemptError: it is complete, or not recorded any more.
    """
    check_not_under_way(info, uuid, now_ms)
    if find_segment(info, uuid) is not None:
        return abandon_segment(info, uuid)
    if _other(info, uuid) is not None:
        return abandon_replacement(info, uuid)
    ledger = _ledger_of(info, uuid)
    if ledger is None:
        raise AttemptError("the attempt is not recorded any more", found=uuid)
    return abandon_attempt(info, ledger.ledger_id, uuid)


def forget(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Forget an attempt that was given up or replaced, now that its objects are deleted.

    One at a segment stays recorded as failed: whoever goes on takes its positions. So does what ledgers name that are
    being deleted, until they are. Of an attempt that is read by now nothing is forgotten.
    """
    if uuid in read_copies(info) and _ledger_of(info, uuid) is None:
        return info
    other = _other(info, uuid)
    if other is not None:
        return (
            forget_replaced(info, uuid)
            if other.role is OtherRole.REPLACED
            else forget_replacement(info, uuid)
        )
    ledger = _ledger_of(info, uuid)
    if ledger is None or ledger.has_complete_copy or ledger.is_condemned:
        return info
    return fail_attempt(info, ledger.ledger_id, uuid)


def _other(info: ManagedLedgerInfo, uuid: UUID) -> OtherCopy | None:
    """The attempt as a copy beside those that are read."""
    return next((copy for copy in other_copies(info) if copy.uuid == uuid), None)


def _ledger_of(info: ManagedLedgerInfo, uuid: UUID) -> LedgerRecord | None:
    """The ledger whose one object is this attempt's."""
    return next(
        (
            ledger
            for ledger in info.ledgers
            if ledger.context is not None and ledger.context.uuid == uuid and not shares_of(ledger)
        ),
        None,
    )
