"""The verbs on one ledger or segment: offload it, read it back, delete its cold copy. Records are the caller's."""

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
