"""Managed ledgers' records as values, the bytes that metadata stores keep of them, and the stores that are ours."""

from offload_core.metadata.copy_replacement import (
    abandon_replacement,
    begin_replacement,
    forget_replaced,
    forget_replacement,
    renew_replacement,
    switch_replacement,
)
from offload_core.metadata.managed_ledger_info import (
    LedgerRecord,
    ManagedLedgerInfo,
    SegmentLayout,
    pack_managed_ledger_info,
    pack_segment,
    parse_managed_ledger_info,
    parse_segment,
)
from offload_core.metadata.managed_ledger_records import ManagedLedgerRecords, VersionedInfo
from offload_core.metadata.offload_attempt import (
    abandon_attempt,
    complete_attempt,
    fail_attempt,
    mark_hot_copy_deleted,
    prepare_attempt,
    renew_attempt,
)
from offload_core.metadata.offload_context import (
    AttemptStatus,
    DriverMetadata,
    EntryPosition,
    OffloadContext,
    OffloadSegment,
)
from offload_core.metadata.replacement_record import (
    CopyForm,
    OtherCopy,
    OtherRole,
    other_copies,
    read_copies,
    replaced_of,
    replacement_of,
)
from offload_core.metadata.resolved_writes import open_metadata_store
from offload_core.metadata.segment_deletion import release_segments
from offload_core.metadata.segment_shares import (
    Segment,
    find_segment,
    segments_of,
    unfinished_segment,
)
from offload_core.metadata.segments import (
    abandon_segment,
    assign_segment,
    complete_segment,
    extend_segment,
    forget_segment,
    mark_segmented_hot_copy_deleted,
    renew_segment,
    resume_segment,
)
from offload_core.metadata.stored_record import (
    StandaloneHeader,
    StoredRecord,
    pack_stored_record,
    parse_stored_record,
)

__all__ = [
    "AttemptStatus",
    "CopyForm",
    "DriverMetadata",
    "EntryPosition",
    "LedgerRecord",
    "ManagedLedgerInfo",
    "ManagedLedgerRecords",
    "OffloadContext",
    "OffloadSegment",
    "OtherCopy",
    "OtherRole",
    "Segment",
    "SegmentLayout",
    "StandaloneHeader",
    "StoredRecord",
    "VersionedInfo",
    "abandon_attempt",
    "abandon_replacement",
    "abandon_segment",
    "assign_segment",
    "begin_replacement",
    "complete_attempt",
    "complete_segment",
    "extend_segment",
    "fail_attempt",
    "find_segment",
    "forget_replaced",
    "forget_replacement",
    "forget_segment",
    "mark_hot_copy_deleted",
    "mark_segmented_hot_copy_deleted",
    "open_metadata_store",
    "other_copies",
    "pack_managed_ledger_info",
    "pack_segment",
    "pack_stored_record",
    "parse_managed_ledger_info",
    "parse_segment",
    "parse_stored_record",
    "prepare_attempt",
    "read_copies",
    "release_segments",
    "renew_attempt",
    "renew_replacement",
    "renew_segment",
    "replaced_of",
    "replacement_of",
    "resume_segment",
    "segments_of",
    "switch_replacement",
    "unfinished_segment",
]
