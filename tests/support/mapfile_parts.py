"""MapFiles put together by hand, byte by byte, so that any part of them can be wrong."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

from entries import WrittenObject, ledger_metadata
from mapfiles import INDEX_SYNC, SYNC, mapfile

from offload_core.codec.ledger_metadata import pack_ledger_metadata
from offload_core.codec.mapfile.fields import pack_counted, pack_vint
from offload_core.codec.mapfile.header import (
    BYTES_WRITABLE,
    LONG_WRITABLE,
    FileCompression,
    SequenceHeader,
    pack_header,
)
from offload_core.codec.mapfile.writer import SequenceFileWriter

MARK = b"\xff\xff\xff\xff" + SYNC


def header_of(compression: FileCompression, value_class: str = BYTES_WRITABLE) -> SequenceHeader:
    return SequenceHeader(compression=compression, value_class=value_class, sync=SYNC)


def record(key: int, value: bytes) -> bytes:
    return struct.pack(">iiq", 8 + len(value), 8, key) + value


def stored(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


METADATA = stored(pack_ledger_metadata(ledger_metadata([b"a", b"b", b"c"])))


def plain(*records: bytes) -> WrittenObject:
    """An uncompressed file of the metadata record and these, which should be entries 0, 1 and 2."""
    data = pack_header(header_of(FileCompression.NONE)) + record(-1, METADATA) + b"".join(records)
    return replace(mapfile([b"a", b"b", b"c"], compression=FileCompression.NONE), data=data)


def block(
    count: int, key_lengths: bytes, keys: list[int], value_lengths: bytes, values: bytes, mark: bytes = MARK
) -> bytes:
    fields = (key_lengths, struct.pack(f">{len(keys)}q", *keys), value_lengths, values)
    return mark + pack_vint(count) + b"".join(pack_counted(zlib.compress(field)) for field in fields)


def blocked(part: bytes) -> WrittenObject:
    first = block(1, b"\x08", [-1], pack_vint(len(METADATA)), METADATA)
    written = mapfile([b"a", b"b", b"c"], compression=FileCompression.BLOCK)
    return replace(written, data=pack_header(header_of(FileCompression.BLOCK)) + first + part)


def index_file(*records: tuple[int, int]) -> bytes:
    header = SequenceHeader(compression=FileCompression.BLOCK, value_class=LONG_WRITABLE, sync=INDEX_SYNC)
    writer = SequenceFileWriter(header)
    for key, position in records:
        writer.append(key, position.to_bytes(8, "big", signed=True))
    return writer.finish()


THREE_RECORDS = tuple(record(i, stored(payload)) for i, payload in enumerate([b"a", b"b", b"c"]))
THREE_VALUES = stored(b"a") + stored(b"b") + stored(b"c")
