"""A MapFile as an `ObjectIndex`: its ledger's metadata, and the stretches of the data file that can be read alone.

The index file has pairs of a key and the position in the data file to begin at for it: a SequenceFile of `LongWritable`
→ `LongWritable`, which Hadoop writes block-compressed; the other ways are read as well. The metadata is the data file's
first record, so the beginning of the data file is needed too. A stretch is the bytes between two positions of the
index, at least 1 MiB if there is as much. Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from offload_core.format.codec.arrays import Longs
from offload_core.format.codec.index import BlockTable, IndexedBlock, LedgerIndex, ObjectIndex
from offload_core.format.codec.ledger_metadata import LedgerMetadata, parse_ledger_metadata
from offload_core.format.codec.mapfile.record_batches import (
    LENGTH_BYTES,
    RECORD_HEAD_BYTES,
    Inflater,
    inflate,
    open_value,
    read_sync_block,
    walk_records,
)
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    LONG_WRITABLE,
    Buffer,
    CutOffError,
    FieldReader,
    FileCompression,
    SequenceFile,
    SequenceHeader,
    parse_header,
    parse_whole_header,
)
from offload_core.format.codec.object_format import ObjectFormat
from offload_hooks.errors import BadLengthError, EntryOrderError, IndexMismatchError, MetadataError, placed

POSITION_BYTES = 8

MOST_RECORDS = 1 << 22
"""An index of more is refused. With a record for each 128 entries, as Hadoop writes it, these are 500 million."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndexFile:
    """The records of an index file, both columns ascending and int64.

    Attributes:
        keys: those to find.
        positions: in the data file, of a key's record, or of the block that holds it.
        custom: pairs of the header: properties of the ledger beside those of its metadata. Pulsar writes none.
    """

    keys: Longs
    positions: Longs
    custom: tuple[tuple[str, str], ...] = ()


def parse_index_file(data: Buffer, most: int) -> IndexFile:
    """The records of an index file, of which there may be at most `most`, nor more than `MOST_RECORDS`.

    Raises:
        FormatError: a subclass that names the byte of the index file.
    """
    header = parse_whole_header(data, LONG_WRITABLE)
    most = min(most, MOST_RECORDS)
    keys, positions = array("q"), array("q")
    for more_keys, more_positions in (
        _blocks(data, header, most) if header.compression is FileCompression.BLOCK else _records(data, header)
    ):
        keys.frombytes(more_keys.tobytes())
        positions.frombytes(more_positions.tobytes())
        if len(keys) > most:
            raise BadLengthError(
                "an index has more records than its data file has room for",
                expected=f"at most {most}",
                found=f"{len(keys)} or more",
            )
    found = IndexFile(
        keys=np.array(keys, np.int64), positions=np.array(positions, np.int64), custom=header.metadata
    )
    wrong = np.flatnonzero(found.positions[1:] <= found.positions[:-1])
    if len(wrong):
        before = int(wrong[0])
        raise EntryOrderError(
            "the positions of an index do not ascend",
            entry_id=keys[before + 1],
            expected=f"above {positions[before]}",
            found=positions[before + 1],
        )
    return found


def _blocks(data: Buffer, header: SequenceHeader, most: int) -> Iterator[tuple[Longs, Longs]]:
    reader = FieldReader(data, header.length, len(data), 0)
    previous_key = -(1 << 63)
    while reader.remaining:
        block = read_sync_block(reader, header.sync, previous_key, most_records=most)
        with placed(offset=block.values_place):
            if (block.lengths != POSITION_BYTES).any():
                raise BadLengthError("a position has another length", expected=POSITION_BYTES)
            values = inflate(block.values, len(block.keys) * POSITION_BYTES)
            if len(values) != len(block.keys) * POSITION_BYTES:
                raise BadLengthError(
                    "a block of an index does not have a position for each key",
                    expected=f"{len(block.keys) * POSITION_BYTES} bytes",
                    found=len(values),
                )
        yield block.keys, np.frombuffer(values, dtype=">i8").astype(np.int64)
        previous_key = int(block.keys[-1])


def _records(data: Buffer, header: SequenceHeader) -> Iterator[tuple[Longs, Longs]]:
    view = memoryview(data)
    for key, offset, length in walk_records(view, header.length, len(view), header.sync, -(1 << 63)):
        value: Buffer = view[offset : offset + length]
        with placed(offset=offset, entry_id=key):
            if header.compression is FileCompression.RECORD:
                value = inflate(value, POSITION_BYTES)
            if len(value) != POSITION_BYTES:
                raise BadLengthError(
                    "a position has another length", expected=POSITION_BYTES, found=len(value)
                )
        yield np.array([key]), np.array([int.from_bytes(value, "big", signed=True)])


METADATA_KEY = -1
"""The key of the first record, whose value is the ledger's `LedgerMetadataFormat`."""

STRETCH_BYTES = 1 << 20

MAX_METADATA_BYTES = 1 << 18

_GREATEST = 2**63 - 1

_DEFLATED_ROOM = 4096
"""Bytes that a little deflated data may need beyond what it inflates to."""


def parse_mapfile(
    index: Buffer, data: Buffer, data_length: int, ledger_id: int, *, stretch_bytes: int = STRETCH_BYTES
) -> ObjectIndex:
    """Parse the index file `index` and the beginning `data` of the data file, which has `data_length` bytes.

    Its ledger's `blocks` are the stretches, of `stretch_bytes` at least but for the last.

    Raises:
        CutOffError: more of the beginning is needed.
        FormatError: a subclass that names the byte of the file that contradicts itself or the other.
    """
    header = parse_header(data, BYTES_WRITABLE, end=data_length)
    with placed(offset=header.length, ledger_id=ledger_id):
        metadata = parse_ledger_metadata(_first_value(data, header, data_length))
        last = metadata.last_entry_id
        if last is None or last == _GREATEST:
            raise MetadataError("the metadata of an offloaded ledger has no last entry", found=last)
    with placed(ledger_id=ledger_id):
        records = parse_index_file(index, data_length // RECORD_HEAD_BYTES)
        _check_ends(records, header, data_length, metadata)
        metadata = metadata.with_custom(records.custom)
        blocks = BlockTable.of(_stretches(records, header, data_length, last + 1, stretch_bytes))
    return ObjectIndex(
        object_format=ObjectFormat.MAPFILE,
        data_length=data_length,
        ledgers=(LedgerIndex(ledger_id=ledger_id, metadata=metadata, blocks=blocks),),
        sequence_file=SequenceFile(header=header, length=data_length),
    )


def _first_value(data: Buffer, header: SequenceHeader, data_length: int) -> memoryview:
    """The bytes under the key −1, which is the first."""
    if header.compression is FileCompression.BLOCK:
        return _first_of_block(data, header, data_length)
    records = walk_records(data, header.length, data_length, header.sync, METADATA_KEY - 1)
    record = next(records, None)
    if record is None:
        raise MetadataError("a MapFile has no record, not even its ledger's metadata")
    _check_first(record.key)
    value: Buffer = memoryview(data)[record.offset : record.offset + record.length]
    if header.compression is FileCompression.RECORD:
        value = inflate(value, MAX_METADATA_BYTES)
    return open_value(value, METADATA_KEY)


def _first_of_block(data: Buffer, header: SequenceHeader, data_length: int) -> memoryview:
    """The same of a block-compressed file; no more of the first block's values is needed than that one."""
    reader = FieldReader(data, header.length, data_length, 0)
    if not reader.remaining:
        raise MetadataError("a MapFile has no record, not even its ledger's metadata")
    block = read_sync_block(reader, header.sync, METADATA_KEY - 1, whole=False)
    _check_first(int(block.keys[0]))
    length = int(block.lengths[0])
    if not LENGTH_BYTES <= length <= MAX_METADATA_BYTES:
        raise MetadataError(
            "the metadata record has no such length",
            expected=f"{LENGTH_BYTES} to {MAX_METADATA_BYTES} bytes",
            found=length,
        )
    needed = min(reader.position + 2 * length + _DEFLATED_ROOM, reader.position + block.values_length)
    if needed > len(data):
        raise CutOffError(needed)
    return open_value(Inflater(block.values).read(length), METADATA_KEY)


def _check_first(key: int) -> None:
    if key != METADATA_KEY:
        raise MetadataError(
            "a MapFile does not begin with its ledger's metadata", expected=f"key {METADATA_KEY}", found=key
        )


def _check_ends(
    records: IndexFile, header: SequenceHeader, data_length: int, metadata: LedgerMetadata
) -> None:
    """The index begins with the first record of the data file, and ends inside of file and ledger."""
    if not len(records.keys):
        raise BadLengthError("an index has no record", expected="1 or more", found=0)
    first, last_record = ((int(records.keys[at]), int(records.positions[at])) for at in (0, -1))
    if first != (METADATA_KEY, header.length):
        raise IndexMismatchError(
            "an index does not begin with its data file's first record",
            expected=f"key {METADATA_KEY} at byte {header.length}",
            found=f"key {first[0]} at byte {first[1]}",
        )
    last = metadata.last_entry_id
    if last_record[1] >= data_length or last is None or last_record[0] > last:
        raise IndexMismatchError(
            "an index goes on behind its data file or ledger",
            entry_id=last_record[0],
            expected=f"at most entry {last}, below byte {data_length}",
            found=f"entry {last_record[0]} at byte {last_record[1]}",
        )


def _stretches(
    records: IndexFile, header: SequenceHeader, data_length: int, end_entry_id: int, stretch_bytes: int
) -> Iterator[IndexedBlock]:
    """The stretches; the first has the file's header.

    Over a block-compressed file the index has the place of the block that holds a key, but not the key that this
    block begins with. The first entry of such a stretch is then the least that it can be, its end the most:
    neighbours overlap.
    """
    begins, reached = [0], stretch_bytes
    while (at := max(int(np.searchsorted(records.positions, reached)), begins[-1] + 1)) < len(records.keys):
        begins.append(at)
        reached = int(records.positions[at]) + stretch_bytes
    for number, (i, following) in enumerate(zip(begins, [*begins[1:], None], strict=True), start=1):
        offset = int(records.positions[i]) if i else 0
        end = data_length if following is None else int(records.positions[following])
        if not i:
            first = 0
        elif header.compression is FileCompression.BLOCK:
            first = int(records.keys[i - 1]) + 1
        else:
            first = int(records.keys[i])
        end_of_stretch = end_entry_id if following is None else int(records.keys[following])
        if end_of_stretch <= first:
            raise EntryOrderError(
                "a stretch between two positions of an index has no entry",
                offset=offset,
                block=number,
                expected=f"entries from {first} on",
                found=f"entry {end_of_stretch} behind it",
            )
        yield IndexedBlock(
            part_number=number,
            offset=offset,
            length=end - offset,
            first_entry_id=first,
            end_entry_id=end_of_stretch,
        )
