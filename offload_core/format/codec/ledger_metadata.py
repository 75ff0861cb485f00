"""BookKeeper's `LedgerMetadataFormat`: what a PIP-17 index keeps of its ledger.

Java needs quorum sizes, length, state and each segment's first entry. The password and the creator's token are never
written. `length` can be wrong in the field: recount, do not trust. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from offload_core.format.codec.protobuf import MOST_BYTES_IN_OBJECTS, parse_protobuf, text_of
from offload_proto.bookkeeper_pb2 import LedgerMetadataFormat


class LedgerState(enum.Enum):
    """Whether a ledger may still grow."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(enum.Enum):
    """How BookKeeper guards its entries."""

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


def parse_ledger_metadata(data: bytes | memoryview) -> LedgerMetadata:
    """Decode a `LedgerMetadataFormat`.

    Raises:
        MetadataError: not a protobuf of this type, or a required field is missing.
        BadLengthError: it has more than a MiB.
    """
    record = parse_protobuf(LedgerMetadataFormat, data, "ledger metadata", most_bytes=MOST_BYTES_IN_OBJECTS)
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
            Ensemble(first_entry_id=segment.firstEntryId, members=tuple(map(_text, segment.ensembleMember)))
            for segment in record.segment
        ),
        digest_type=DigestType(record.digestType) if record.HasField("digestType") else None,
        ctime_ms=record.ctime if record.HasField("ctime") else None,
        custom=tuple((_text(item.key), item.value) for item in record.customMetadata),
    )


def _text(value: str | bytes) -> str:
    return text_of(value, "ledger metadata")


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
