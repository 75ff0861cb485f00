"""The small parts of Pulsar's records, between value and protobuf: uuids in two halves, properties, driver metadata."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from uuid import UUID

from offload_core.codec.protobuf import text_of, unknown_fields
from offload_core.metadata.offload_context import DriverMetadata
from offload_proto import managed_ledger_pb2 as records

_HALVES = struct.Struct(">qq")


def join_uuid(most: int, least: int) -> UUID:
    """The uuid of `uidMsb` and `uidLsb`, which are signed."""
    return UUID(bytes=_HALVES.pack(most, least))


def split_uuid(uuid: UUID) -> tuple[int, int]:
    """`uidMsb` and `uidLsb`."""
    most, least = _HALVES.unpack(uuid.bytes)
    return most, least


def read_properties(pairs: Iterable[records.KeyValue], what: str) -> tuple[tuple[str, str], ...]:
    """Names and values in stored order; `MetadataError` for text that is none, in `what`."""
    return tuple((text_of(pair.key, what), text_of(pair.value, what)) for pair in pairs)


def property_records(properties: Iterable[tuple[str, str]]) -> list[records.KeyValue]:
    """The protobufs of names and values."""
    return [records.KeyValue(key=name, value=value) for name, value in properties]


def read_driver(record: records.OffloadDriverMetadata) -> DriverMetadata:
    """The value of decoded driver metadata; `MetadataError` for text that is none."""
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
