"""Offload one ledger or segment, and delete its cold copy; callers keep the records."""

from offload_core.writing.offload.ledger_offloader import LedgerOffloader, OffloadedLedger, OffloadProgress
from offload_core.writing.offload.segment_offloader import (
    Offered,
    OfferResult,
    OffloadHandle,
    SegmentOffloader,
)
from offload_core.writing.offload.segment_upload import OffloadedSegment

__all__ = [
    "LedgerOffloader",
    "OfferResult",
    "Offered",
    "OffloadHandle",
    "OffloadProgress",
    "OffloadedLedger",
    "OffloadedSegment",
    "SegmentOffloader",
]
