"""`ManagedLedgerInfo.LedgerInfo`: what a streaming index keeps of each of its ledgers.

Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from offload_core.format.codec.protobuf import MOST_BYTES_IN_OBJECTS, parse_protobuf, text_of
from offload_proto.managed_ledger_pb2 import ManagedLedgerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerInfo:
    """A ledger as its managed ledger describes it.

    Attributes:
        entries: number of entries of the whole ledger; while it is open, of what was offloaded so far.
        size: payload bytes of all entries; None while the ledger is open.
        timestamp_ms: when it was closed, in milliseconds since 1970, UTC; 0 or None while it is open.
        properties: of an index, what it says besides, as properties of the driver metadata of an offload context.
    """

    ledger_id: int
    entries: int | None = None
    size: int | None = None
    timestamp_ms: int | None = None
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def is_closed(self) -> bool:
        """Whether the ledger was closed when this was written."""
        return bool(self.timestamp_ms)


def parse_ledger_info(data: bytes | memoryview) -> LedgerInfo:
    """Decode a `LedgerInfo`.

    Raises:
        MetadataError: not a protobuf of this type, or the ledger id is missing.
        BadLengthError: it has more than a MiB.
    """
    record = parse_protobuf(
        ManagedLedgerInfo.LedgerInfo, data, "a ledger info", most_bytes=MOST_BYTES_IN_OBJECTS
    )
    said = record.offloadContext.driverMetadata.properties
    properties = tuple((_text(each.key), _text(each.value)) for each in said)
    return replace(from_record(record), properties=properties)


def _text(value: str | bytes) -> str:
    return text_of(value, "a ledger info")


def from_record(record: ManagedLedgerInfo.LedgerInfo) -> LedgerInfo:
    """The value of a decoded `LedgerInfo`, without its offload context."""
    return LedgerInfo(
        ledger_id=record.ledgerId,
        entries=record.entries if record.HasField("entries") else None,
        size=record.size if record.HasField("size") else None,
        timestamp_ms=record.timestamp if record.HasField("timestamp") else None,
    )


def to_record(info: LedgerInfo) -> ManagedLedgerInfo.LedgerInfo:
    """The `LedgerInfo` of a value, without an offload context."""
    return ManagedLedgerInfo.LedgerInfo(
        ledgerId=info.ledger_id, entries=info.entries, size=info.size, timestamp=info.timestamp_ms
    )


def pack_ledger_info(info: LedgerInfo) -> bytes:
    """Encode as Pulsar does, with the properties, of which it knows nothing."""
    record = to_record(info)
    if info.properties:
        driver = record.offloadContext.driverMetadata
        driver.name = ""
        for key, value in info.properties:
            driver.properties.add(key=key, value=value)
    return record.SerializeToString(deterministic=True)
