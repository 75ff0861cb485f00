"""A MapFile as an `ObjectIndex`: its ledger's metadata, and the stretches of the data file that can be read alone.

The metadata is the data file's first record, so the beginning of the data file is needed as well as the index file. A
stretch is what lies between two positions of the index, at least 1 MiB if there is as much. Source:
docs/formats/mapfile.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from offload_core.format.codec.index import BlockTable, IndexedBlock, LedgerIndex, ObjectIndex
from offload_core.format.codec.ledger_metadata import LedgerMetadata, parse_ledger_metadata
from offload_core.format.codec.mapfile.fields import Buffer, CutOffError, FieldReader
from offload_core.format.codec.mapfile.header import (
    BYTES_WRITABLE,
    FileCompression,
    SequenceFile,
    SequenceHeader,
    parse_header,
)
from offload_core.format.codec.mapfile.index_file import IndexFile, parse_index_file
from offload_core.format.codec.mapfile.records import (
    LENGTH_BYTES,
    RECORD_HEAD_BYTES,
    open_value,
    walk_records,
)
from offload_core.format.codec.mapfile.sync_blocks import read_sync_block
from offload_core.format.codec.mapfile.zlib_streams import Inflater, inflate
from offload_core.format.codec.object_format import ObjectFormat
from offload_hooks.errors import BadLengthError, EntryOrderError, IndexMismatchError, MetadataError, placed

METADATA_KEY = -1
"""The key of the first record, whose value is the ledger's `LedgerMetadataFormat`."""

STRETCH_BYTES = 1 << 20

MAX_METADATA_BYTES = 1 << 18

_GREATEST = 2**63 - 1

_DEFLATED_ROOM = 4096
"""What a little deflated data may need more than it inflates to."""


def parse_mapfile(
    index: Buffer, data: Buffer, data_length: int, ledger_id: int, *, stretch_bytes: int = STRETCH_BYTES
) -> ObjectIndex:
    """What the index file `index` and the beginning `data` of the data file (of `data_length` bytes) say.

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
    records: IndexFile,
    header: SequenceHeader,
    data_length: int,
    end_entry_id: int,
    stretch_bytes: int,
) -> Iterator[IndexedBlock]:
    """The stretches; the first has the file's header.

    Over a block-compressed file the index tells where the block begins that holds a key, but not with which key it
    begins: the first entry of such a stretch is then the least that it can be, its end the most. Neighbours overlap.
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
