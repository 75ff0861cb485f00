"""`OffloadSegment` in its two layouts, both ways: as shipped since Pulsar 2.8, and as the text of PIP-76 has it.

The shipped layout has no field `bookkeeperDeleted`, so all later numbers differ by one; there it is a property of the
driver metadata. They are told apart by field 7, a message or a number; without it by field 4, a time or a truth value.
Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import enum

from offload_core.codec.protobuf import parse_protobuf, unknown_fields
from offload_core.metadata.offload_context import BOOKKEEPER_DELETED_PROPERTY, OffloadSegment
from offload_core.metadata.record_parts import driver_record, join_uuid, read_driver, split_uuid
from offload_hooks.errors import MetadataError, OptionError
from offload_proto import managed_ledger_pb2 as records

_TRUE = "true"


class SegmentLayout(enum.Enum):
    """Which numbers a segment's fields have."""

    SHIPPED = "shipped"
    PIP76 = "pip76"


def parse_segment(data: bytes, what: str = "an offload segment") -> OffloadSegment:
    """Decode a segment of either layout; `what` names it in errors.

    Raises:
        MetadataError: of neither.
    """
    shipped = parse_protobuf(records.OffloadSegment, data, what)
    if shipped.HasField("driverMetadata"):
        return _read(shipped)
    other = parse_protobuf(records.OffloadSegmentOfPip76, data, what)
    if other.HasField("endEntryId") or other.HasField("driverMetadata"):
        return _read(other)
    if shipped.HasField("assignedTimestamp") and shipped.assignedTimestamp in (0, 1):
        return _read(other)
    return _read(shipped)


def pack_segment(segment: OffloadSegment, layout: SegmentLayout) -> bytes:
    """Encode a segment.

    Raises:
        OptionError: the layout has no room for what the segment says, or a reader would take it for the other.
    """
    record: records.OffloadSegment | records.OffloadSegmentOfPip76
    driver = segment.driver
    if layout is SegmentLayout.SHIPPED:
        record = records.OffloadSegment()
        if segment.bookkeeper_deleted and driver is not None:
            driver = driver.with_property(BOOKKEEPER_DELETED_PROPERTY, _TRUE)
    else:
        # also where it is false: without a field 7 it is what tells the layout
        record = records.OffloadSegmentOfPip76(bookkeeperDeleted=segment.bookkeeper_deleted)
    record.uidMsb, record.uidLsb = split_uuid(segment.uuid)
    if segment.complete:
        record.complete = True
    for name, number in (
        ("assignedTimestamp", segment.assigned_ms),
        ("offloadedTimestamp", segment.offloaded_ms),
        ("endEntryId", segment.end_entry_id),
    ):
        if number is not None:
            setattr(record, name, number)
    if driver is not None:
        record.driverMetadata.CopyFrom(driver_record(driver))
    packed = record.SerializeToString(deterministic=True) + segment.unknown_fields
    try:
        reads_the_same = parse_segment(packed) == segment
    except MetadataError:  # a field that is not known to one layout is known to the other
        reads_the_same = False
    if not reads_the_same:
        raise OptionError(
            f"segment {segment.uuid} cannot be written in the layout {layout.value!r}: it would be read differently",
            hint="The shipped layout needs driver metadata, for bookkeeperDeleted too, or the time of assignment.",
        )
    return packed


def _read(record: records.OffloadSegment | records.OffloadSegmentOfPip76) -> OffloadSegment:
    deleted = isinstance(record, records.OffloadSegmentOfPip76) and record.bookkeeperDeleted
    driver = read_driver(record.driverMetadata) if record.HasField("driverMetadata") else None
    if driver is not None and driver.get(BOOKKEEPER_DELETED_PROPERTY) == _TRUE:
        driver, deleted = driver.with_property(BOOKKEEPER_DELETED_PROPERTY, None), True
    return OffloadSegment(
        uuid=join_uuid(record.uidMsb, record.uidLsb),
        complete=record.complete,
        bookkeeper_deleted=deleted,
        assigned_ms=record.assignedTimestamp if record.HasField("assignedTimestamp") else None,
        offloaded_ms=record.offloadedTimestamp if record.HasField("offloadedTimestamp") else None,
        end_entry_id=record.endEntryId if record.HasField("endEntryId") else None,
        driver=driver,
        unknown_fields=unknown_fields(record),
    )
