"""`OffloadContext` with its segments, between value and protobuf. Source: docs/formats/metadata.md.

A Pulsar that passes over segments offloads their ledgers anew: it puts its attempt's UUID into the context, and leaves
the segments there. When its copy is complete it has taken their place, and they are not read any more.
"""

from __future__ import annotations

from offload_core.codec.protobuf import unknown_fields
from offload_core.metadata.offload_context import OffloadContext
from offload_core.metadata.record_parts import driver_record, join_uuid, read_driver, split_uuid
from offload_core.metadata.segment_layout import SegmentLayout, pack_segment, parse_segment
from offload_hooks.errors import MetadataError
from offload_proto import managed_ledger_pb2 as records


def read_context(record: records.OffloadContext) -> OffloadContext:
    """The value of a decoded context.

    Raises:
        MetadataError: half of a uuid, text that is none, or a segment that cannot be parsed.
    """
    if record.HasField("uidMsb") != record.HasField("uidLsb"):
        raise MetadataError(
            "an offload context has half of a uuid", expected="uidMsb and uidLsb", found="one of them"
        )
    count = len(record.offloadSegment)
    uuid = join_uuid(record.uidMsb, record.uidLsb) if record.HasField("uidMsb") else None
    segments = tuple(
        parse_segment(data, f"offload segment {number} of {count}")
        for number, data in enumerate(record.offloadSegment, start=1)
    )
    if record.complete and uuid is not None and all(segment.uuid != uuid for segment in segments):
        segments = ()
    return OffloadContext(
        uuid=uuid,
        complete=record.complete,
        bookkeeper_deleted=record.bookkeeperDeleted,
        timestamp_ms=record.timestamp if record.HasField("timestamp") else None,
        driver=read_driver(record.driverMetadata) if record.HasField("driverMetadata") else None,
        segments=segments,
        unknown_fields=unknown_fields(record),
    )


def context_record(context: OffloadContext, layout: SegmentLayout) -> records.OffloadContext:
    """The protobuf of a context; what is false or None is left out, as Pulsar does."""
    record = records.OffloadContext(timestamp=context.timestamp_ms)
    if context.uuid is not None:
        record.uidMsb, record.uidLsb = split_uuid(context.uuid)
    if context.complete:
        record.complete = True
    if context.bookkeeper_deleted:
        record.bookkeeperDeleted = True
    if context.driver is not None:
        record.driverMetadata.CopyFrom(driver_record(context.driver))
    record.offloadSegment.extend(pack_segment(segment, layout) for segment in context.segments)
    record.MergeFromString(context.unknown_fields)
    return record
