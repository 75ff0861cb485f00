"""Managed ledgers' records as values, and the bytes that metadata stores keep of them."""

from offload_core.metadata.managed_ledger_info import (
    LedgerRecord,
    ManagedLedgerInfo,
    pack_managed_ledger_info,
    parse_managed_ledger_info,
)
from offload_core.metadata.offload_context import (
    DriverMetadata,
    EntryPosition,
    OffloadContext,
    OffloadSegment,
    SegmentStatus,
)
from offload_core.metadata.segment_layout import SegmentLayout, pack_segment, parse_segment
from offload_core.metadata.stored_record import (
    StandaloneHeader,
    StoredRecord,
    pack_stored_record,
    parse_stored_record,
)

__all__ = [
    "DriverMetadata",
    "EntryPosition",
    "LedgerRecord",
    "ManagedLedgerInfo",
    "OffloadContext",
    "OffloadSegment",
    "SegmentLayout",
    "SegmentStatus",
    "StandaloneHeader",
    "StoredRecord",
    "pack_managed_ledger_info",
    "pack_segment",
    "pack_stored_record",
    "parse_managed_ledger_info",
    "parse_segment",
    "parse_stored_record",
]
