"""`ManagedLedgerInfo`, Pulsar's record of a topic's ledgers, with offload contexts: values, and their protobuf.

Ledgers are in any order in a record, and are written back in that order. Unknown fields are kept. A Pulsar that ignores
segments offloads their ledgers anew: it puts its attempt's UUID into the context, and leaves the segments there. When
its copy is complete, it replaces them, and they are not read any more.

`OffloadSegment` has two layouts: that of Pulsar since 2.8, and that in the text of PIP-76. The shipped one has no field
`bookkeeperDeleted`, so all later numbers differ by one; there it is a property of the driver metadata. Field 7
decides, a message or a number; without it field 4, a time or a truth value. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import enum
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from offload_core.format.codec import ledger_metadata as ledger_info
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.protobuf_records import parse_protobuf, text_of, unknown_fields
from offload_core.metadata.records.offload_context import (
    BOOKKEEPER_DELETED_PROPERTY,
    DriverMetadata,
    EntryPosition,
    NamedCopy,
    OffloadContext,
    OffloadSegment,
)
from offload_hooks.errors import MetadataError, OptionError, placed
from offload_proto import managed_ledger_pb2 as records

if TYPE_CHECKING:
    from typing_extensions import Self

_HALVES = struct.Struct(">qq")


def join_uuid(most: int, least: int) -> UUID:
    """The uuid of `uidMsb` and `uidLsb`, which are signed."""
    return UUID(bytes=_HALVES.pack(most, least))


def split_uuid(uuid: UUID) -> tuple[int, int]:
    """`uidMsb` and `uidLsb`."""
    most, least = _HALVES.unpack(uuid.bytes)
    return most, least


def read_properties(pairs: Iterable[records.KeyValue], what: str) -> tuple[tuple[str, str], ...]:
    """Names and values in stored order; `MetadataError` for text that is not UTF-8, in `what`."""
    return tuple((text_of(pair.key, what), text_of(pair.value, what)) for pair in pairs)


def property_records(properties: Iterable[tuple[str, str]]) -> list[records.KeyValue]:
    """The protobufs of names and values."""
    return [records.KeyValue(key=name, value=value) for name, value in properties]


def read_driver(record: records.OffloadDriverMetadata) -> DriverMetadata:
    """The value of decoded driver metadata; `MetadataError` for text that is not UTF-8."""
    return DriverMetadata(
        name=text_of(record.name, "driver metadata"),
        properties=read_properties(record.properties, "driver metadata"),
        unknown_fields=unknown_fields(record),
    )


def driver_record(driver: DriverMetadata) -> records.OffloadDriverMetadata:
    """The protobuf of driver metadata."""
    record = records.OffloadDriverMetadata(name=driver.name, properties=property_records(driver.properties))
    record.MergeFromString(driver.unknown_fields)
    return record


_TRUE = "true"


class SegmentLayout(enum.Enum):
    """Layout of a segment's fields by their numbers."""

    SHIPPED = "shipped"
    PIP76 = "pip76"


def parse_segment(data: bytes, what: str = "an offload segment") -> OffloadSegment:
    """Decode a segment of either layout; `what` names it in errors.

    Raises:
        MetadataError: it has neither.
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
        OptionError: the layout has no room for a fact of the segment, or a reader would take it for the other.
    """
    record: records.OffloadSegment | records.OffloadSegmentOfPip76
    driver = segment.driver
    if layout is SegmentLayout.SHIPPED:
        record = records.OffloadSegment()
        if segment.bookkeeper_deleted and driver is not None:
            driver = driver.with_property(BOOKKEEPER_DELETED_PROPERTY, _TRUE)
    else:
        # also where it is false: without a field 7 it decides the layout
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


def read_context(record: records.OffloadContext) -> OffloadContext:
    """The value of a decoded context.

    Raises:
        MetadataError: half of a uuid, text that is not UTF-8, or a segment that cannot be parsed.
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
    """The protobuf of a context; fields that are false or None are left out, as Pulsar does."""
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


_WHAT = "a managed ledger's record"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """A ledger of a managed ledger: its size and times, and the place of its cold copy (None: never offloaded).

    Attributes:
        packed: its protobuf in a record, once it was read or written; None also where that has the other layout.
    """

    info: LedgerInfo
    context: OffloadContext | None = None
    unknown_fields: bytes = b""
    packed: bytes | None = field(default=None, init=False, compare=False, repr=False)
    _copy_uuids: tuple[UUID, ...] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        return self.info.ledger_id

    @property
    def has_complete_copy(self) -> bool:
        """True if some of it may be read from a tier: its one copy is complete, or one of its segments."""
        if self.context is None:
            return False
        if not self.context.segments:
            return self.context.complete
        return any(segment.complete for segment in self.context.segments)

    @property
    def is_fully_offloaded(self) -> bool:
        """True if all of it may be read from a tier: its one copy is complete, or it is closed and in segments.

        A context's `complete` is about a copy that is one object, so it does not count where there are segments.
        """
        context = self.context
        if context is None or not context.segments:
            return context is not None and context.complete
        return self.info.is_closed and context.covered_stop() >= (self.info.entries or 0) > 0

    @property
    def has_hot_copy(self) -> bool:
        """True if by its record it is in the hot tier. It is deleted as a whole, so the mark of one share is enough."""
        context = self.context
        return context is None or not (
            context.bookkeeper_deleted or any(segment.bookkeeper_deleted for segment in context.segments)
        )

    @property
    def copies(self) -> tuple[NamedCopy, ...]:
        """The copies that its record names to be read, complete or not, in the order of their entries."""
        return () if self.context is None else self.context.copies()

    @property
    def copy_uuids(self) -> tuple[UUID, ...]:
        """The attempts of its copies; kept, since each step of a topic's looks at those of all its ledgers."""
        if self._copy_uuids is None:
            object.__setattr__(self, "_copy_uuids", tuple(copy.uuid for copy in self.copies))
        return self._copy_uuids or ()

    @property
    def is_marked_for_deletion(self) -> bool:
        """True if neither a hot copy nor a cold one may be read, until it is deleted."""
        return self.context is not None and self.context.bookkeeper_deleted and not self.has_complete_copy

    @property
    def offloaded_stop(self) -> int | None:
        """One past the last entry in a complete copy; None if there is none, or its end is not recorded."""
        if self.context is None or not self.has_complete_copy:
            return None
        if not self.context.segments:
            return self.info.entries
        ends = [segment.end_entry_id for segment in self.context.segments if segment.complete]
        return max((end + 1 for end in ends if end is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerInfo:
    """A managed ledger: its ledgers in stored order, and properties as names and values.

    `terminated_at` is the last position of a topic that takes no more messages; None if it does.
    """

    ledgers: tuple[LedgerRecord, ...] = ()
    terminated_at: EntryPosition | None = None
    properties: tuple[tuple[str, str], ...] = ()
    unknown_fields: bytes = b""

    @property
    def in_order(self) -> tuple[LedgerRecord, ...]:
        """The ledgers by ascending id: the order of the topic's messages."""
        return tuple(sorted(self.ledgers, key=lambda ledger: ledger.ledger_id))

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        """The ledger of this id; None if the managed ledger has none."""
        return next((ledger for ledger in self.ledgers if ledger.ledger_id == ledger_id), None)

    def with_ledger(self, ledger: LedgerRecord) -> Self:
        """Replace the ledger of the same id, which must exist."""
        assert self.ledger(ledger.ledger_id) is not None
        return self.with_ledgers([ledger])

    def with_ledgers(self, ledgers: Iterable[LedgerRecord]) -> Self:
        """Replace the ledgers of the same ids."""
        changed = {ledger.ledger_id: ledger for ledger in ledgers}
        return replace(self, ledgers=tuple(changed.get(known.ledger_id, known) for known in self.ledgers))


def parse_managed_ledger_info(
    data: bytes | memoryview, before: ManagedLedgerInfo | None = None
) -> ManagedLedgerInfo:
    """Decode a bare `ManagedLedgerInfo`.

    Args:
        before: an earlier value of the record; its ledgers that have the same bytes are taken from there.

    Raises:
        MetadataError: not a protobuf of this type, a required field is missing, a ledger is in it twice, or an offload
            context makes no sense; with the ledger.
    """
    record = parse_protobuf(records.ManagedLedgerInfoOfBytes, data, _WHAT)
    known = {} if before is None else {ledger.packed: ledger for ledger in before.ledgers}
    ledgers = tuple(known.get(packed) or _read_ledger(packed) for packed in record.ledgerInfo)
    for ledger_id, count in Counter(ledger.info.ledger_id for ledger in ledgers).items():
        if count > 1:
            raise MetadataError(
                f"{_WHAT} has a ledger more than once", ledger_id=ledger_id, expected="once", found=count
            )
    terminated = record.terminatedPosition
    return ManagedLedgerInfo(
        ledgers=ledgers,
        terminated_at=EntryPosition(terminated.ledgerId, terminated.entryId)
        if record.HasField("terminatedPosition")
        else None,
        properties=read_properties(record.properties, _WHAT),
        unknown_fields=unknown_fields(record),
    )


def _read_ledger(packed: bytes) -> LedgerRecord:
    record = parse_protobuf(records.ManagedLedgerInfo.LedgerInfo, packed, f"a ledger in {_WHAT}")
    with placed(ledger_id=record.ledgerId):
        ledger = LedgerRecord(
            info=ledger_info.from_record(record),
            context=read_context(record.offloadContext) if record.HasField("offloadContext") else None,
            unknown_fields=unknown_fields(record),
        )
    # segments may have the other layout, or not count any more
    return ledger if record.offloadContext.offloadSegment else _with_packed(ledger, packed)


def _with_packed(ledger: LedgerRecord, packed: bytes) -> LedgerRecord:
    object.__setattr__(ledger, "packed", packed)  # what it is equal to does not change
    return ledger


def pack_managed_ledger_info(
    info: ManagedLedgerInfo, *, segment_layout: SegmentLayout = SegmentLayout.SHIPPED
) -> bytes:
    """Encode as Pulsar does, bare.

    `segment_layout`: PIP-76's is for readers that expect it; a shipped Pulsar would take its times for entries.

    Raises:
        OptionError: a segment that this layout has no room for, with its ledger.
    """
    record = records.ManagedLedgerInfoOfBytes(properties=property_records(info.properties))
    if info.terminated_at is not None:
        record.terminatedPosition.ledgerId = info.terminated_at.ledger_id
        record.terminatedPosition.entryId = info.terminated_at.entry_id
    if segment_layout is SegmentLayout.SHIPPED:
        packed = [ledger.packed or _packed(ledger) for ledger in info.ledgers]
    else:
        packed = [_pack_ledger(ledger, segment_layout) for ledger in info.ledgers]
    record.ledgerInfo.extend(packed)
    record.MergeFromString(info.unknown_fields)
    return record.SerializeToString(deterministic=True)


def _packed(ledger: LedgerRecord) -> bytes:
    packed = _pack_ledger(ledger, SegmentLayout.SHIPPED)
    _with_packed(ledger, packed)
    return packed


def _pack_ledger(ledger: LedgerRecord, layout: SegmentLayout) -> bytes:
    record = ledger_info.to_record(ledger.info)
    if ledger.context is not None:
        with placed(ledger_id=ledger.ledger_id):
            record.offloadContext.CopyFrom(context_record(ledger.context, layout))
    record.MergeFromString(ledger.unknown_fields)
    return record.SerializeToString(deterministic=True)
