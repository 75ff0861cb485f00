"""The stored form of a managed ledger's record: bare, compressed, or after a standalone's header.

ZooKeeper has the bare protobuf, or, with `managedLedgerInfoCompressionType`, a magic number, a small head and the
compressed protobuf. A standalone's RocksDB has a header of 41 bytes before either. The first bytes show which: no
protobuf begins with them. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from offload_core.format.codec.protobuf_records import parse_protobuf
from offload_core.format.messages.compression import Compression, compress, decompress_into
from offload_core.metadata.records.managed_ledger_info import (
    ManagedLedgerInfo,
    SegmentLayout,
    pack_managed_ledger_info,
    parse_managed_ledger_info,
)
from offload_hooks.errors import BadLengthError, TruncatedError, UnsupportedVersionError, placed
from offload_proto.managed_ledger_pb2 import ManagedLedgerInfoMetadata

MAX_RECORD_BYTES = 64 << 20
"""A larger record, as stored or decompressed, is refused; ZooKeeper's own limit is 1 MiB."""

MAGIC = 0x4778
_COMPRESSED = struct.Struct(">HI")
_STANDALONE = struct.Struct(">iiqqqq?")
_STANDALONE_FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneHeader:
    """The header before a record in a standalone's RocksDB.

    Attributes:
        version: of the record, from 0.
        owner: the session that owns an ephemeral record.
        created_ms, modified_ms: milliseconds since 1970, UTC.
    """

    version: int
    owner: int
    created_ms: int
    modified_ms: int
    ephemeral: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A managed ledger's record and its wrapping; `standalone` is None for ZooKeeper's."""

    info: ManagedLedgerInfo
    compression: Compression = Compression.NONE
    standalone: StandaloneHeader | None = None


def parse_stored_record(data: bytes | memoryview, before: ManagedLedgerInfo | None = None) -> StoredRecord:
    """Decode a record, however it is wrapped.

    Args:
        before: see `parse_managed_ledger_info`.

    Raises:
        FormatError: a subclass, with the byte or the ledger; the caller adds the record's name as key.
    """
    view = memoryview(data)
    if len(view) > MAX_RECORD_BYTES:
        raise BadLengthError(
            "a managed ledger's record is too large",
            expected=f"at most {MAX_RECORD_BYTES} bytes",
            found=len(view),
        )
    standalone, start = _read_standalone(view)
    with placed(offset=start):
        compression, record = _unwrap(view[start:], start)
        return StoredRecord(
            info=parse_managed_ledger_info(record, before), compression=compression, standalone=standalone
        )


def pack_stored_record(
    record: StoredRecord, *, segment_layout: SegmentLayout = SegmentLayout.SHIPPED
) -> bytes:
    """Encode a record with its wrapping; without compression bare, as Pulsar does.

    Raises:
        OptionError: see `pack_managed_ledger_info`.
    """
    packed = pack_managed_ledger_info(record.info, segment_layout=segment_layout)
    if record.compression is not Compression.NONE:
        head = ManagedLedgerInfoMetadata(
            compressionType=record.compression.name, uncompressedSize=len(packed)
        ).SerializeToString(deterministic=True)
        packed = _COMPRESSED.pack(MAGIC, len(head)) + head + compress(record.compression, packed)
    if record.standalone is None:
        return packed
    header = record.standalone
    return (
        _STANDALONE.pack(
            _STANDALONE.size,
            _STANDALONE_FORMAT,
            header.version,
            header.owner,
            header.created_ms,
            header.modified_ms,
            header.ephemeral,
        )
        + packed
    )


def _read_standalone(view: memoryview) -> tuple[StandaloneHeader | None, int]:
    """The header, and where the record begins. A protobuf never begins with a zero byte."""
    if not view or view[0] != 0:
        return None, 0
    if len(view) < _STANDALONE.size:
        raise TruncatedError(
            "the header of a standalone's record is cut off",
            offset=0,
            expected=f"{_STANDALONE.size} bytes",
            found=len(view),
        )
    size, version_of_format, version, owner, created, modified, ephemeral = _STANDALONE.unpack_from(view)
    if version_of_format != _STANDALONE_FORMAT:
        raise UnsupportedVersionError(
            "the header of a standalone's record has an unknown format",
            offset=4,
            expected=_STANDALONE_FORMAT,
            found=version_of_format,
        )
    if size != _STANDALONE.size:
        raise BadLengthError(
            "the header of a standalone's record has another length",
            offset=0,
            expected=_STANDALONE.size,
            found=size,
        )
    header = StandaloneHeader(
        version=version, owner=owner, created_ms=created, modified_ms=modified, ephemeral=ephemeral
    )
    return header, size


def _unwrap(view: memoryview, start: int) -> tuple[Compression, memoryview]:
    """The bare protobuf, and how it was compressed; `start` is the view's place in the stored record."""
    if len(view) < 2 or int.from_bytes(view[:2], "big") != MAGIC:
        return Compression.NONE, view
    if len(view) < _COMPRESSED.size:
        raise TruncatedError(
            "the head of a compressed record is cut off",
            expected=f"{_COMPRESSED.size} bytes",
            found=len(view),
        )
    _, size = _COMPRESSED.unpack_from(view)
    payload_at = _COMPRESSED.size + size
    if payload_at > len(view):
        raise TruncatedError(
            "the head of a compressed record is cut off",
            offset=start + 2,
            expected=f"{payload_at} bytes",
            found=len(view),
        )
    with placed(offset=start + _COMPRESSED.size):
        head = parse_protobuf(
            ManagedLedgerInfoMetadata, view[_COMPRESSED.size : payload_at], "the head of a compressed record"
        )
        if not 0 <= head.uncompressedSize <= MAX_RECORD_BYTES:
            raise BadLengthError(
                "a compressed record declares an impossible size",
                expected=f"0 to {MAX_RECORD_BYTES} bytes",
                found=head.uncompressedSize,
            )
    compression = Compression(head.compressionType)
    with placed(offset=start + payload_at):
        return compression, _decompress(compression, view[payload_at:], head.uncompressedSize)


def _decompress(compression: Compression, payload: memoryview, size: int) -> memoryview:
    if compression is Compression.NONE:
        if len(payload) != size:
            raise BadLengthError(
                "a record that is not compressed has another size than its head says",
                expected=size,
                found=len(payload),
            )
        return payload
    out = np.empty(size, dtype=np.uint8)
    decompress_into(compression, payload, out)
    return out.data
