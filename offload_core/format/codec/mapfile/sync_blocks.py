"""The blocks of a block-compressed file: many records, whose keys and values are compressed together.

`i32 −1, 16 sync bytes, vint n`, then four zlib streams, each after its length as a vint: key lengths, keys, value
lengths, values. Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.kernels import mapfile as kernels
from offload_core.format.codec.mapfile.fields import FieldReader, unpack_vint, vint_bytes
from offload_core.format.codec.mapfile.records import KEY_BYTES, SYNC_ESCAPE, check_order, check_sync
from offload_core.format.codec.mapfile.zlib_streams import MOST_PER_BYTE, inflate
from offload_hooks.errors import BadLengthError, BadMagicError, placed

Longs = npt.NDArray[np.int64]

MOST_RECORDS = 1 << 23
"""A block of more is refused. Hadoop ends a block at 1 MB of keys and values, which has room for 83,000."""

MOST_VINT_BYTES = 5
"""Of a length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncBlock:
    """A block, all of it inflated but the values.

    Attributes:
        keys: int64, ascending; `lengths` int64, bytes of each value as it is stored.
        values: the zlib stream that holds the values behind one another, `values_length` bytes, or what is there of it.
        values_place: where that stream begins in the file.
    """

    keys: Longs
    lengths: Longs
    values: memoryview
    values_length: int
    values_place: int


def read_sync_block(
    reader: FieldReader,
    sync: bytes,
    previous_key: int,
    *,
    whole: bool = True,
    most_records: int = MOST_RECORDS,
) -> SyncBlock:
    """The block at the reader's position; `whole=False` is content with what the window has of the values.

    A block of more than `most_records` is refused before anything of it is inflated.

    Raises:
        CutOffError: it goes on behind the window.
        FormatError: a subclass that names the byte.
    """
    place = reader.place
    escape = reader.i32("a block's sync mark")
    if escape != SYNC_ESCAPE:
        raise BadMagicError(
            "a block does not begin with a sync mark", offset=place, expected=SYNC_ESCAPE, found=escape
        )
    check_sync(reader, sync)
    place = reader.place
    count = reader.vint("a block's number of records")
    key_lengths_place = reader.place
    packed_key_lengths = reader.counted("a block's key lengths")
    most = min(len(packed_key_lengths) * MOST_PER_BYTE, most_records)
    if not 0 < count <= most:
        raise BadLengthError(
            "a block cannot have so many records",
            offset=place,
            expected=f"1 to {most} in {len(packed_key_lengths)} bytes",
            found=count,
        )
    with placed(offset=key_lengths_place):
        _check_key_lengths(inflate(packed_key_lengths, count), count)
    keys_place = reader.place
    with placed(offset=keys_place):
        keys = _keys(
            inflate(reader.counted("a block's keys"), count * KEY_BYTES), count, previous_key, keys_place
        )
    lengths_place = reader.place
    with placed(offset=lengths_place):
        lengths = read_lengths(
            inflate(reader.counted("a block's value lengths"), count * MOST_VINT_BYTES), count
        )
    stream_length = reader.vint("the length of a block's values")
    if stream_length < 0 or int(lengths.sum()) > stream_length * MOST_PER_BYTE:
        raise BadLengthError(  # also of a negative length
            "a block's values cannot be so long",
            offset=lengths_place,
            expected=f"at most {stream_length * MOST_PER_BYTE} bytes",
            found=int(lengths.sum()),
        )
    values_place = reader.place
    read = reader.take if whole else reader.peek
    values = read(stream_length, "a block's values")
    return SyncBlock(
        keys=keys, lengths=lengths, values=values, values_length=stream_length, values_place=values_place
    )


def read_lengths(data: bytes, count: int) -> Longs:
    """`count` lengths that are stored as variable-length integers, which fill `data`; int64.

    Raises:
        BadLengthError: one that is negative or has more than 31 bits, or another number of them.
    """
    lengths = np.empty(count, dtype=np.int64)
    read, position = kernels.read_lengths(np.frombuffer(data, dtype=np.uint8), lengths)
    if read != count or position != len(data):
        raise BadLengthError(
            "the lengths of a block's values are not right",
            expected=f"{count} lengths in {len(data)} bytes, none negative",
            found=f"{read} in {position} bytes",
        )
    return lengths


def read_lengths_plainly(data: bytes, count: int) -> tuple[list[int], int]:
    """The twin of `kernels.read_lengths`: the lengths up to the first that is not right, and where it stands."""
    lengths: list[int] = []
    position = 0
    while len(lengths) < count and position < len(data):
        size = vint_bytes(data[position])
        follow = data[position + 1 : position + size]
        if len(follow) != size - 1:
            break
        length = unpack_vint(data[position], follow)
        if not 0 <= length < 1 << 31:
            break
        lengths.append(length)
        position += size
    return lengths, position


def _check_key_lengths(data: bytes, count: int) -> None:
    if data != bytes([KEY_BYTES]) * count:
        raise BadLengthError(
            "the lengths of a block's keys are not right",
            expected=f"{count} times {KEY_BYTES}",
            found=f"{len(data)} bytes: {data[:16].hex()}",
        )


def _keys(data: bytes, count: int, previous_key: int, place: int) -> Longs:
    if len(data) != count * KEY_BYTES:
        raise BadLengthError(
            "a block's keys do not have its number of records",
            expected=f"{count * KEY_BYTES} bytes",
            found=len(data),
        )
    keys = np.frombuffer(data, dtype=">i8").astype(np.int64)
    before = np.concatenate([np.array([previous_key], dtype=np.int64), keys[:-1]])
    wrong = np.flatnonzero(keys <= before)
    if len(wrong):
        check_order(int(keys[wrong[0]]), int(before[wrong[0]]), place)
    return keys
