"""What a ledger's record says of its streaming segments: how much of it they hold, and what they wait for."""

from __future__ import annotations

import enum

from offload_core.metadata import LedgerRecord, SegmentStatus
from offload_core.metadata.segment_shares import covered_stop, first_entry_id, shares_of


class Coverage(enum.Enum):
    """How much of a ledger lies in complete segments, by its record."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    CONDEMNED = "condemned"


def coverage_of(ledger: LedgerRecord) -> Coverage:
    """How much of a ledger its complete segments hold; one that is being deleted needs none of it."""
    if ledger.is_condemned:
        return Coverage.CONDEMNED
    is_whole = ledger.info.is_closed and covered_stop(ledger) >= (ledger.info.entries or 0)
    return Coverage.COMPLETE if is_whole else Coverage.PARTIAL


def streamed_entries(ledger: LedgerRecord) -> int:
    """How many entries lie in complete segments; of one whose end is not recorded, none are counted."""
    return sum(
        max(0, share.end_entry_id + 1 - first_entry_id(ledger, share.uuid))
        for share in shares_of(ledger)
        if share.complete and share.end_entry_id is not None
    )


def is_under_way(ledger: LedgerRecord) -> bool:
    """Whether a segment of it is being offloaded, or is to be."""
    return any(share.status is SegmentStatus.ASSIGNED for share in shares_of(ledger))
