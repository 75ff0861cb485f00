"""The index file of a MapFile: pairs of a key and the position in the data file to begin at for it.

A SequenceFile of `LongWritable` → `LongWritable`; Hadoop writes it block-compressed, the other ways are read as well.
Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.mapfile.fields import Buffer, FieldReader
from offload_core.format.codec.mapfile.header import (
    LONG_WRITABLE,
    FileCompression,
    SequenceHeader,
    parse_whole_header,
)
from offload_core.format.codec.mapfile.records import walk_records
from offload_core.format.codec.mapfile.sync_blocks import read_sync_block
from offload_core.format.codec.mapfile.zlib_streams import inflate
from offload_hooks.errors import BadLengthError, EntryOrderError, placed

POSITION_BYTES = 8

MOST_RECORDS = 1 << 22
"""An index of more is refused. With a record for each 128 entries, as Hadoop writes it, these are 500 million."""

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndexFile:
    """The records of an index file, both columns ascending and int64.

    Attributes:
        keys: what is looked for.
        positions: in the data file, of a key's record, or of the block that holds it.
    """

    keys: Longs
    positions: Longs


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
    found = IndexFile(keys=np.array(keys, np.int64), positions=np.array(positions, np.int64))
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
