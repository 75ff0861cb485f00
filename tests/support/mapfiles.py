"""MapFiles: those that Pulsar wrote, synthetic ones, and a reader of whole files by the cursor."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from entries import UUID_OF_OBJECTS, WrittenObject, ledger_metadata
from golden import GOLDEN

from offload_core.format.codec.index import IndexedBlock, ObjectIndex
from offload_core.format.codec.ledger_metadata import LedgerMetadata, pack_ledger_metadata
from offload_core.format.codec.mapfile.crc_files import make_checksums
from offload_core.format.codec.mapfile.cursor import MapFileCursor
from offload_core.format.codec.mapfile.index_file import STRETCH_BYTES, parse_mapfile
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    LONG_WRITABLE,
    FileCompression,
    SequenceHeader,
    pack_counted,
    pack_header,
    pack_vint,
    parse_whole_header,
)
from offload_core.format.codec.mapfile.writer import BLOCK_BYTES, MapFileWriter, SequenceFileWriter
from offload_core.format.codec.object_format import ObjectKey, parse_key
from offload_hooks.errors import placed

FILESYSTEM = GOLDEN / "broker" / "filesystem"
FILESYSTEM_OBJECTS = FILESYSTEM / "objects"
FILESYSTEM_TOPICS = ("avro", "batch")
OFFLOADER_CASES = GOLDEN / "offloader" / "mapfile"

DEFLATES_AS_HADOOP = "ng" not in zlib.ZLIB_RUNTIME_VERSION
"""zlib-ng deflates to other bytes."""

SYNC = bytes(range(1, 17))
INDEX_SYNC = bytes(range(101, 117))
MANAGED_LEDGER = "acme/cold/persistent/orders"

Entry = tuple[int, int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenMapFile:
    """A ledger as it lies on disk, with its two files of checksums."""

    key: ObjectKey
    data: bytes
    index: bytes
    data_checksums: bytes
    index_checksums: bytes


def golden_mapfile(folder: Path, root: Path) -> GoldenMapFile:
    """The MapFile in this folder under a storage root."""
    key = parse_key(f"{folder.relative_to(root)}/data")
    assert key is not None
    data, index, data_crc, index_crc = (
        (folder / name).read_bytes() for name in ("data", "index", ".data.crc", ".index.crc")
    )
    return GoldenMapFile(key=key, data=data, index=index, data_checksums=data_crc, index_checksums=index_crc)


def golden_mapfiles() -> dict[str, GoldenMapFile]:
    """All of them, by a short name."""
    roots = {case.name: case / "root" for case in OFFLOADER_CASES.iterdir()} | {"broker": FILESYSTEM_OBJECTS}
    found = {}
    for name, root in sorted(roots.items()):
        for index in sorted(root.rglob("index")):
            each = golden_mapfile(index.parent, root)
            found[f"{name}-{each.key.ledger_id}"] = each
    return found


def lay_out_golden(root: Path) -> None:
    """Copy the files of a broker's filesystem offloader into a directory."""
    shutil.copytree(FILESYSTEM_OBJECTS, root, dirs_exist_ok=True)


def mapfile(
    payloads: Sequence[bytes] | Mapping[int, bytes],
    *,
    compression: FileCompression = FileCompression.RECORD,
    ledger_id: int = 7,
    managed_ledger: str = MANAGED_LEDGER,
    **sizes: int,
) -> WrittenObject:
    """A MapFile of these entries; with a mapping, of those ids only. `sizes` are those of `MapFileWriter`."""
    entries = dict(payloads) if isinstance(payloads, Mapping) else dict(enumerate(payloads))
    metadata = replace(ledger_metadata(list(entries.values())), last_entry_id=max(entries))
    writer = MapFileWriter(metadata, compression=compression, sync=SYNC, index_sync=INDEX_SYNC, **sizes)
    data = b"".join(writer.append(entry_id, payload) for entry_id, payload in entries.items())
    rest, index = writer.finish()
    place = {"folder": f"{managed_ledger}/", "ledger_id": ledger_id}
    return WrittenObject(
        key=ObjectKey(uuid=UUID_OF_OBJECTS, is_index=False, is_mapfile=True, **place),
        data=data + rest,
        index=index,
        entries=tuple((ledger_id, entry_id, payload) for entry_id, payload in entries.items()),
    )


def rewritten(each: GoldenMapFile, *, block_bytes: int = BLOCK_BYTES) -> tuple[bytes, bytes]:
    """Data and index as our writer makes them of what is in a MapFile, with its syncs."""
    header = parse_whole_header(each.data, BYTES_WRITABLE)
    ledger = index_of(each).ledgers[0]
    assert isinstance(ledger.metadata, LedgerMetadata)
    writer = MapFileWriter(
        ledger.metadata,
        compression=header.compression,
        sync=header.sync,
        index_sync=parse_whole_header(each.index, LONG_WRITABLE).sync,
        block_bytes=block_bytes,
    )
    data = b"".join(writer.append(entry_id, payload) for _, entry_id, payload in read_mapfile(each))
    rest, index = writer.finish()
    return data + rest, index


def lay_out_mapfile(root: Path, written: WrittenObject, *, checksums: bool = True) -> None:
    """A MapFile into a directory, as Pulsar leaves it on a local root (or, without checksums, on HDFS)."""
    folder = (root / written.key.data_key).parent
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in (("data", written.data), ("index", written.index)):
        (folder / name).write_bytes(data)
        if checksums:
            (folder / f".{name}.crc").write_bytes(make_checksums(data))


def index_of(written: WrittenObject | GoldenMapFile, *, stretch_bytes: int = STRETCH_BYTES) -> ObjectIndex:
    """The parsed index."""
    ledger_id, size = written.key.ledger_id or 0, len(written.data)
    return parse_mapfile(written.index, written.data, size, ledger_id, stretch_bytes=stretch_bytes)


def read_mapfile(
    written: WrittenObject | GoldenMapFile,
    *,
    window_bytes: int | None = None,
    stretch_bytes: int = STRETCH_BYTES,
    into: list[Entry] | None = None,
) -> list[Entry]:
    """All entries of a MapFile, by the cursor, stretch by stretch; `into` keeps them when an error is raised."""
    found: list[Entry] = [] if into is None else into
    ledger_id = written.key.ledger_id or 0
    with placed(key=written.key.data_key):
        index = index_of(written, stretch_bytes=stretch_bytes)
        for block in index.ledgers[0].blocks:
            for entry_id, payload in stretch_entries(written.data, index, block, window_bytes):
                found.append((ledger_id, entry_id, payload))
    return found


def stretch_entries(
    data: bytes, index: ObjectIndex, block: IndexedBlock, window_bytes: int | None
) -> Iterator[tuple[int, bytes]]:
    """The entries of one stretch, read in windows."""
    stretch = memoryview(data)[block.offset : block.offset + block.length]
    step = window_bytes or len(stretch)
    cursor = MapFileCursor(
        stretch[:step], index.sequence_file, index.ledgers[0].ledger_id, block, more=step < len(stretch)
    )
    fed = step
    while not cursor.done:
        yield from entries_at_hand(cursor)
        if cursor.starved:
            assert fed < len(stretch), "the cursor wants more than there is"
            cursor.feed(stretch[fed : fed + step], block.offset + fed)
            fed += step


def entries_at_hand(cursor: MapFileCursor) -> Iterator[tuple[int, bytes]]:
    """The entries that the cursor gives before it is done or starved."""
    columns = [np.empty(64, dtype=np.int64) for _ in range(3)]
    while not cursor.done and not cursor.starved:
        count = cursor.locate(*columns, 1 << 40)
        for entry_id, at, size in zip(*(column[:count].tolist() for column in columns), strict=True):
            yield entry_id, cursor.array[at : at + size].tobytes()


# --- MapFiles put together by hand, byte by byte, so that any part of them can be wrong.


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
