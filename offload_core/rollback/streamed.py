"""What a ledger's record says of its streaming segments: how much of it they hold, and what they wait for."""

from __future__ import annotations

import enum

from offload_core.managed_ledger.record_changes import is_condemned
from offload_core.metadata import LedgerRecord, SegmentStatus


class Coverage(enum.Enum):
    """How much of a ledger lies in its segments, by its record."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    CONDEMNED = "condemned"


def streamed_ranges(ledger: LedgerRecord) -> list[tuple[int, int]]:
    """The entries in complete segments, from and to (half-open), in their order; of a segment without an end none."""
    context = ledger.context
    if context is None:
        return []
    return [
        (begin, share.end_entry_id + 1)
        for begin, share in zip(context.first_entry_ids(), context.segments, strict=True)
        if share.complete and begin is not None and share.end_entry_id is not None and share.end_entry_id >= begin
    ]


def streamed_stop(ledger: LedgerRecord) -> int:
    """One past the last entry that, with all before it, lies in complete segments."""
    stop = 0
    for first, end in streamed_ranges(ledger):
        if first > stop:
            break
        stop = max(stop, end)
    return stop


def coverage_of(ledger: LedgerRecord) -> Coverage:
    """How much of a ledger its complete segments hold."""
    if is_condemned(ledger):
        return Coverage.CONDEMNED
    is_whole = ledger.info.is_closed and streamed_stop(ledger) >= (ledger.info.entries or 0)
    return Coverage.COMPLETE if is_whole else Coverage.PARTIAL


def is_under_way(ledger: LedgerRecord) -> bool:
    """Whether a segment of it is being offloaded, or is to be."""
    context = ledger.context
    return context is not None and any(
        share.status is SegmentStatus.ASSIGNED for share in context.segments
    )
