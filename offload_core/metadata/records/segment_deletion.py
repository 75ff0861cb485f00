"""Deletion and release of streaming segments, as pure functions of records.

A ledger that is to be deleted is marked for deletion, and has no part in its segments any more. An object goes when
the last ledger that names it is marked: then no ledger reads from it, and none ever will again, for a segment gets
another ledger only while its attempt goes on, and marking one of its ledgers ends that. So what a marked ledger names,
and no other one does, can be deleted at any time later, as often as is needed; the ledgers that remain tell which
objects are kept, so nothing is remembered of those that went.

After a release, for a rollback, the record says of the ledger what it says of one that was never offloaded: it is read
from the hot tier, and ledger-based offload takes it. Its segments' objects are deleted after that, where no other
ledger needs them. A release does nothing to its own result, so that it can be given to `ManagedLedgerRecords.update`.
Source: PIP-76; docs/formats/metadata.md; docs/rollback.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from offload_core.metadata.records.attempts import abandoned
from offload_core.metadata.records.copy_replacement import abandon_replacement, check_not_replaced
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    AttemptStatus,
    DriverMetadata,
    OffloadContext,
)
from offload_core.metadata.records.replacement_record import OtherRole, other_copies, others_of, read_copies
from offload_core.metadata.records.segment_shares import ledger_of, segments_of, with_hot_copy_deleted
from offload_core.metadata.records.segments import abandon_segment
from offload_hooks.errors import AttemptError


def condemn_ledgers(info: ManagedLedgerInfo, ledger_ids: Collection[int]) -> ManagedLedgerInfo:
    """Record that ledgers are to be deleted, with all their copies, whole ones or shares of segments.

    An attempt that is under way cannot complete, nor a copy take the place of another; of a segment, in no ledger.
    """
    condemned = set(ledger_ids)
    for copy in other_copies(info):
        if copy.role is OtherRole.REPLACEMENT and condemned.intersection(copy.ledger_ids):
            info = abandon_replacement(info, copy.uuid)
    for segment in segments_of(info):
        if not segment.is_finished and condemned.intersection(segment.ledger_ids):
            info = abandon_segment(info, segment.uuid)
    return replace(
        info,
        ledgers=tuple(
            _condemned(ledger) if ledger.ledger_id in condemned and not ledger.is_condemned else ledger
            for ledger in info.ledgers
        ),
    )


def needed_objects(info: ManagedLedgerInfo) -> frozenset[UUID]:
    """The objects that a ledger names which is not condemned, also as one that was replaced or is to replace another.

    Those that others name are to be deleted.
    """
    return read_copies(info) | frozenset(
        copy.uuid for ledger in info.ledgers if not ledger.is_condemned for copy in others_of(ledger)
    )


def _condemned(ledger: LedgerRecord) -> LedgerRecord:
    gone = with_hot_copy_deleted(ledger)
    context = gone.context or OffloadContext()
    return replace(
        gone,
        context=replace(
            context,
            complete=False,
            driver=_failed(context.driver),
            segments=tuple(
                replace(share, complete=False, driver=_failed(share.driver)) for share in context.segments
            ),
        ),
    )


def _failed(driver: DriverMetadata | None) -> DriverMetadata | None:
    return None if driver is None else abandoned(driver)


def release_segments(info: ManagedLedgerInfo, ledger_id: int) -> ManagedLedgerInfo:
    """Forget the segments of a ledger whose hot copy is there; one without segments stays as it is.

    Raises:
        AttemptError: there is no such ledger, its hot copy is gone, it is open, or a segment of it is under way, or
            a copy that is to take the place of one.
    """
    return info.with_ledger(without_segments(ledger_of(info, ledger_id)))


def without_segments(ledger: LedgerRecord) -> LedgerRecord:
    """The same step on the record of one ledger; errors as `release_segments`."""
    context, ledger_id = ledger.context, ledger.ledger_id
    if context is None or not context.segments:
        return ledger
    check_not_replaced(ledger)
    if not ledger.has_hot_copy:
        raise AttemptError(
            "the ledger's hot copy is gone, so its segments are not released",
            ledger_id=ledger_id,
            found=context.uuid,
        )
    if not ledger.info.is_closed:
        raise AttemptError(
            "a ledger that is written to keeps its segments",
            ledger_id=ledger_id,
            hint="Switch streaming off, and wait until the ledger is closed.",
        )
    for share in context.segments:
        if share.status is AttemptStatus.ASSIGNED:
            raise AttemptError(
                "the ledger has a segment that is under way",
                ledger_id=ledger_id,
                found=share.uuid,
                hint="Switch streaming off, and wait until the segment is complete.",
            )
    rest = replace(context, uuid=None, complete=False, timestamp_ms=None, driver=None, segments=())
    return replace(ledger, context=None if rest == OffloadContext() else rest)
