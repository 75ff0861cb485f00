"""BookKeeper's `LedgerMetadataFormat`: the description of a ledger in its PIP-17 index.

Java needs quorum sizes, length, state and each segment's first entry. The password and the creator's token are never
written. `length` can be wrong in the field: recount, do not trust. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from offload_core.format.codec.protobuf_records import MOST_BYTES_IN_OBJECTS, parse_protobuf, text_of
from offload_proto.bookkeeper_pb2 import LedgerMetadataFormat
from offload_proto.managed_ledger_pb2 import ManagedLedgerInfo

if TYPE_CHECKING:
    from typing_extensions import Self


class LedgerState(enum.Enum):
    """The state of a ledger: open, in recovery, or closed."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(enum.Enum):
    """The checksum that BookKeeper guards entries with."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """The bookies (`host:port`) that hold a ledger from `first_entry_id` on."""

    first_entry_id: int
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerMetadata:
    """A ledger as BookKeeper describes it.

    Attributes:
        length: payload bytes of all entries.
        last_entry_id: None while the ledger is open or empty.
        ctime_ms: creation time in milliseconds since 1970, UTC.
        custom: custom metadata in stored order, key → bytes.
        password: makes the key of digests of the type HMAC.
    """

    write_quorum_size: int
    ensemble_size: int
    length: int
    state: LedgerState
    last_entry_id: int | None = None
    ack_quorum_size: int | None = None
    ensembles: tuple[Ensemble, ...] = ()
    digest_type: DigestType | None = None
    ctime_ms: int | None = None
    custom: tuple[tuple[str, bytes], ...] = ()
    password: bytes = field(default=b"", repr=False)

    def with_custom(self, more: tuple[tuple[str, str], ...]) -> Self:
        """The same with more custom metadata, in the order of keys; a key that it has gets the new value."""
        if not more:
            return self
        custom = dict(self.custom) | {key: value.encode() for key, value in more}
        return replace(self, custom=tuple(sorted(custom.items())))


def parse_ledger_metadata(data: bytes | memoryview) -> LedgerMetadata:
    """Decode a `LedgerMetadataFormat`.

    Raises:
        MetadataError: not a protobuf of this type, or a required field is missing.
        BadLengthError: it has more than a MiB.
    """
    return from_metadata_record(
        parse_protobuf(LedgerMetadataFormat, data, "ledger metadata", most_bytes=MOST_BYTES_IN_OBJECTS)
    )


def from_metadata_record(record: LedgerMetadataFormat) -> LedgerMetadata:
    """The value of a decoded `LedgerMetadataFormat`; `MetadataError` for a text in it that is none."""
    return LedgerMetadata(
        write_quorum_size=record.quorumSize,
        ensemble_size=record.ensembleSize,
        length=record.length,
        state=LedgerState(record.state),
        last_entry_id=record.lastEntryId
        if record.HasField("lastEntryId") and record.lastEntryId >= 0
        else None,
        ack_quorum_size=record.ackQuorumSize if record.HasField("ackQuorumSize") else None,
        ensembles=tuple(
            Ensemble(
                first_entry_id=segment.firstEntryId,
                members=tuple(text_of(each, "ledger metadata") for each in segment.ensembleMember),
            )
            for segment in record.segment
        ),
        digest_type=DigestType(record.digestType) if record.HasField("digestType") else None,
        ctime_ms=record.ctime if record.HasField("ctime") else None,
        custom=tuple((text_of(item.key, "ledger metadata"), item.value) for item in record.customMetadata),
        password=record.password,
    )


def pack_ledger_metadata(metadata: LedgerMetadata) -> bytes:
    """Encode as Pulsar's offloader does."""
    record = LedgerMetadataFormat(
        quorumSize=metadata.write_quorum_size,
        ensembleSize=metadata.ensemble_size,
        length=metadata.length,
        lastEntryId=-1 if metadata.last_entry_id is None else metadata.last_entry_id,
        state=metadata.state.name,
        ackQuorumSize=metadata.ack_quorum_size,
        digestType=metadata.digest_type.name if metadata.digest_type else None,
        ctime=metadata.ctime_ms,
    )
    for ensemble in metadata.ensembles:
        record.segment.add(firstEntryId=ensemble.first_entry_id, ensembleMember=ensemble.members)
    for key, value in metadata.custom:
        record.customMetadata.add(key=key, value=value)
    return record.SerializeToString(deterministic=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerInfo:
    """A ledger as its managed ledger describes it.

    Attributes:
        entries: number of entries of the whole ledger; while it is open, of the offloaded part.
        size: payload bytes of all entries; None while the ledger is open.
        timestamp_ms: when it was closed, in milliseconds since 1970, UTC; 0 or None while it is open.
        properties: of an index, its other facts, as properties of the driver metadata of an offload context.
    """

    ledger_id: int
    entries: int | None = None
    size: int | None = None
    timestamp_ms: int | None = None
    properties: tuple[tuple[str, str], ...] = ()

    @property
    def is_closed(self) -> bool:
        """True if the ledger was closed when this was written."""
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
    what = "a ledger info"
    properties = tuple(
        (text_of(each.key, what), text_of(each.value, what))
        for each in record.offloadContext.driverMetadata.properties
    )
    return replace(from_record(record), properties=properties)


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
    """Encode as Pulsar does, and with the properties, which Pulsar does not have."""
    record = to_record(info)
    if info.properties:
        driver = record.offloadContext.driverMetadata
        driver.name = ""
        for key, value in info.properties:
            driver.properties.add(key=key, value=value)
    return record.SerializeToString(deterministic=True)
