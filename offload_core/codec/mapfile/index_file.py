"""The index file of a MapFile: pairs of a key and the position in the data file to begin at for it.

A SequenceFile of `LongWritable` → `LongWritable`; Hadoop writes it block-compressed, the other ways are read as well.
Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from offload_core.codec.mapfile.fields import Buffer, FieldReader
from offload_core.codec.mapfile.header import (
    LONG_WRITABLE,
    FileCompression,
    SequenceHeader,
    parse_whole_header,
)
from offload_core.codec.mapfile.records import walk_records
from offload_core.codec.mapfile.sync_blocks import read_sync_block
from offload_core.codec.mapfile.zlib_streams import inflate
from offload_hooks.errors import BadLengthError, EntryOrderError, placed

POSITION_BYTES = 8


class IndexRecord(NamedTuple):
    """A key, and the position in the data file of its record, or of the block that holds it."""

    key: int
    position: int


def parse_index_file(data: Buffer, most: int) -> list[IndexRecord]:
    """The records of an index file, of which there may be at most `most`; keys and positions ascend.

    Raises:
        FormatError: a subclass that names the byte of the index file.
    """
    header = parse_whole_header(data, LONG_WRITABLE)
    records: list[IndexRecord] = []
    for found in (
        _blocks(data, header) if header.compression is FileCompression.BLOCK else _records(data, header)
    ):
        records.extend(found)
        if len(records) > most:
            raise BadLengthError(
                "an index has more records than its data file has room for",
                expected=f"at most {most}",
                found=f"{len(records)} or more",
            )
    for before, record in pairwise(records):
        if record.position <= before.position:
            raise EntryOrderError(
                "the positions of an index do not ascend",
                entry_id=record.key,
                expected=f"above {before.position}",
                found=record.position,
            )
    return records


def _blocks(data: Buffer, header: SequenceHeader) -> Iterator[list[IndexRecord]]:
    reader = FieldReader(data, header.length, len(data), 0)
    previous_key = -(1 << 63)
    while reader.remaining:
        block = read_sync_block(reader, header.sync, previous_key)
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
        positions = np.frombuffer(values, dtype=">i8").tolist()
        yield [IndexRecord(*pair) for pair in zip(block.keys.tolist(), positions, strict=True)]
        previous_key = int(block.keys[-1])


def _records(data: Buffer, header: SequenceHeader) -> Iterator[list[IndexRecord]]:
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
        yield [IndexRecord(key, int.from_bytes(value, "big", signed=True))]
