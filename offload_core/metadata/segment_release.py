"""Letting go of a ledger's streaming segments, as a pure function from record to record, for a rollback.

Afterwards the record says of the ledger what it says of one that was never offloaded: it is read from the hot tier, and
ledger-based offload takes it. Its segments' objects are deleted after that, where no other ledger needs them. It does
nothing to its own result, so that it can be given to `ManagedLedgerRecords.update`. Source: docs/rollback.md.
"""

from __future__ import annotations

from dataclasses import replace

from offload_core.metadata.copy_replacement import check_not_replaced
from offload_core.metadata.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.offload_context import OffloadContext, SegmentStatus
from offload_core.metadata.segment_places import ledger_of
from offload_hooks.errors import AttemptError


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
        if share.status is SegmentStatus.ASSIGNED:
            raise AttemptError(
                "the ledger has a segment that is under way",
                ledger_id=ledger_id,
                found=share.uuid,
                hint="Switch streaming off, and wait until the segment is complete.",
            )
    rest = replace(context, uuid=None, complete=False, timestamp_ms=None, driver=None, segments=())
    return replace(ledger, context=None if rest == OffloadContext() else rest)
