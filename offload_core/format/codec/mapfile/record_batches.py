"""The records of a MapFile's data file → batches of entries of about 1 MiB: arrays of bytes, ids, places and lengths.

- A file that is not block-compressed has records: `i32 record length, i32 key length, i64 key, value`; a sync mark,
  `i32 −1` and the header's 16 bytes, may precede one. `walk_records` is the reference implementation of
  `kernels.mapfile`.
- A block-compressed file has blocks of many records: `i32 −1, 16 sync bytes, vint n`, then four zlib streams, each
  after its length as a vint: key lengths, keys, value lengths, values.

Keys ascend. zlib streams (Hadoop's `DefaultCodec`) are deflated by zlib itself, at its default level, as Hadoop does:
the bytes are the same then. They are inflated by isal, which is faster; many small ones by a kernel. No more is
inflated than a batch and an entry; an entry larger than 256 MiB is refused. Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from isal import igzip_lib, isal_zlib

from offload_core.format.codec.arrays import Bytes, Longs
from offload_core.format.codec.kernels import frames
from offload_core.format.codec.kernels import mapfile as kernels
from offload_core.format.codec.kernels.c_functions import Decompressor, inflate_address
from offload_core.format.codec.mapfile.sequence_file import (
    SYNC_BYTES,
    Buffer,
    FieldReader,
    FileCompression,
    Note,
    SequenceHeader,
    unpack_vint,
    vint_bytes,
)
from offload_hooks.errors import BadLengthError, BadMagicError, DecompressionError, EntryOrderError, placed

MOST_PER_BYTE = 1032
"""Most bytes that one byte of a zlib stream inflates to."""

MAX_INFLATED_BYTES = (256 << 20) + 4
"""The most that a value may become: an entry of 256 MiB, with its length."""


def deflate(data: Buffer) -> bytes:
    """`data` as a zlib stream."""
    return zlib.compress(data)


def inflate(data: Buffer, most: int) -> bytes:
    """Inflate the zlib stream `data`, which must be the whole of it.

    Raises:
        DecompressionError: broken, cut off, more than `most` bytes, or something after it.
    """
    inflater = isal_zlib.decompressobj()
    try:
        inflated: bytes = inflater.decompress(data, most + 1)
    except isal_zlib.error as error:
        raise DecompressionError(f"a zlib stream is broken: {error}") from error
    if len(inflated) > most:
        raise DecompressionError("a zlib stream holds more than it may", expected=f"at most {most} bytes")
    if not inflater.eof or inflater.unused_data:
        raise DecompressionError(
            "a zlib stream does not end where it should",
            found=f"{len(inflater.unused_data)} bytes behind it"
            if inflater.eof
            else "a stream that is cut off",
        )
    return inflated


def most_of(stored_bytes: int) -> int:
    """Most bytes that a zlib stream of this length may inflate to; never much above 256 MiB."""
    return min(stored_bytes * MOST_PER_BYTE, MAX_INFLATED_BYTES)


class Inflater:
    """A zlib stream that is inflated bit by bit.

    `data` is the whole stream.
    """

    def __init__(self, data: Buffer) -> None:
        self._inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_ZLIB)
        self._data = data

    def read(self, length: int) -> bytes:
        """Exactly the next `length` bytes.

        Raises:
            DecompressionError: the stream is broken, or ends before.
        """
        parts = [part := self._decompress(length)]
        done = len(part)
        while done < length:
            part = self._decompress(length - done)
            if not part:
                raise DecompressionError(
                    "a zlib stream ends too early", expected=f"{length} bytes", found=f"{done} bytes"
                )
            parts.append(part)
            done += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def finish(self) -> None:
        """Check that the stream ends here, and its checksum.

        Raises:
            DecompressionError: it goes on, or something stands after it.
        """
        more = self._decompress(1)
        if more or not self._inflater.eof or self._inflater.unused_data:
            raise DecompressionError("a zlib stream goes on behind what it must hold")

    def _decompress(self, length: int) -> bytes:
        if self._inflater.eof or not length:
            return b""
        data, self._data = self._data, b""
        try:
            inflated: bytes = self._inflater.decompress(data, length)
        except igzip_lib.error as error:
            raise DecompressionError(f"a zlib stream is broken: {error}") from error
        return inflated


KEY_BYTES = 8
RECORD_HEAD_BYTES = 16
SYNC_ESCAPE = -1
SYNC_MARK_BYTES = 4 + SYNC_BYTES
LENGTH_BYTES = 4
"""Of what stands before a `BytesWritable`'s bytes."""


class Record(NamedTuple):
    """One record: its key, the begin of its value in the window, the value's length in bytes."""

    key: int
    offset: int
    length: int


def walk_records(
    window: Buffer,
    start: int,
    end: int,
    sync: bytes,
    previous_key: int,
    *,
    offset: int = 0,
    note: Note | None = None,
) -> Iterator[Record]:
    """The records in `window[start:end]`, whose keys ascend from above `previous_key`.

    `offset` is the window's place in its file, for the errors' offsets.

    Raises:
        CutOffError: a record goes on after the window, but not after `end`.
        FormatError: a subclass: the first fault there is.
    """
    reader = FieldReader(window, start, end, offset, note)
    while reader.remaining:
        place = reader.place
        length = reader.i32("a record's length")
        if length == SYNC_ESCAPE:
            check_sync(reader, sync)
            if not reader.remaining:
                return
            place = reader.place
            length = reader.i32("a record's length")
        if not KEY_BYTES <= length <= reader.remaining - 4:
            raise BadLengthError(
                "a record's length is not possible",
                offset=place,
                expected=f"{KEY_BYTES} to {reader.remaining - 4}, or a sync mark",
                found=length,
            )
        place = reader.place
        key_length = reader.i32("a record's key length")
        if key_length != KEY_BYTES:
            raise BadLengthError(
                "a key has another length", offset=place, expected=KEY_BYTES, found=key_length
            )
        place = reader.place
        key = reader.i64("a record's key")
        check_order(key, previous_key, place)
        at = reader.position
        reader.take(length - KEY_BYTES, "a record's value")
        yield Record(key, at, length - KEY_BYTES)
        previous_key = key


def check_sync(reader: FieldReader, sync: bytes) -> None:
    """Take a sync mark's 16 bytes: those of the header."""
    place = reader.place
    found = bytes(reader.take(SYNC_BYTES, "a sync mark"))
    if found != sync:
        raise BadMagicError(
            "a sync mark is not that of the file", offset=place, expected=sync.hex(), found=found.hex()
        )


def check_order(key: int, previous_key: int, place: int) -> None:
    """Refuse a key that does not come after the one before it."""
    if key <= previous_key:
        raise EntryOrderError(
            "a key is not above the one before it",
            entry_id=key,
            offset=place,
            expected=f"above {previous_key}",
            found=key,
        )


def open_value(value: Buffer, key: int) -> memoryview:
    """The bytes in a `BytesWritable` as it is stored: `i32 n`, n bytes.

    Raises:
        BadLengthError: it does not hold what it declares.
    """
    view = memoryview(value)
    length = int.from_bytes(view[:LENGTH_BYTES], "big", signed=True)
    if len(view) < LENGTH_BYTES or length != len(view) - LENGTH_BYTES:
        raise BadLengthError(
            "a value does not have the length that its record says",
            entry_id=key,
            expected=f"{len(view) - LENGTH_BYTES} bytes",
            found=f"{length} declared",
        )
    return view[LENGTH_BYTES:]


MOST_RECORDS = 1 << 23
"""A block of more is refused. Hadoop ends a block at 1 MB of keys and values, which has room for 83,000."""

MOST_VINT_BYTES = 5
"""Of a length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncBlock:
    """A block, all of it inflated but the values.

    Attributes:
        keys: int64, ascending; `lengths` int64, bytes of each value as it is stored.
        values: the zlib stream that holds the values one after another, `values_length` bytes, or its beginning.
        values_place: begin of that stream in the file.
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
        CutOffError: it goes on after the window.
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
    """The reference implementation of `kernels.read_lengths`: the lengths up to the first that is not right, and where
    it stands.
    """
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


BATCH_BYTES = 1 << 20

_RECORDS_AT_ONCE = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some entries: `array` uint8, and per entry its key and its bytes in `array`, int64.

    `place` is that of `array` in the file; None if it is inflated.
    """

    array: Bytes
    keys: Longs
    offsets: Longs
    lengths: Longs
    place: int | None


def batch_reader(header: SequenceHeader) -> _RecordReader | _BlockReader:
    """The reader for a file with this header, of one stretch, batch after batch.

    Its `read(window, position, end, previous_key, place)` answers the next batch, and where in `window` reading goes
    on; None at the stretch's end. `window` has bytes from the file's byte `place` on, and the stretch ends at `end` of
    it, or after it. `position` is where to read on, `previous_key` the last key before. Raises `CutOffError` where the
    next record or block goes on after the window, a `FormatError` with the byte, and the entry where it is known.
    """
    return _BlockReader(header) if header.compression is FileCompression.BLOCK else _RecordReader(header)


class _RecordReader:
    """Of a file whose values are stored one by one, deflated or not."""

    def __init__(self, header: SequenceHeader) -> None:
        self._sync = header.sync
        self._sync_array = np.frombuffer(header.sync, dtype=np.uint8)
        self._deflated = header.compression is FileCompression.RECORD
        self._decompressor = Decompressor()
        self._found = np.empty((3, _RECORDS_AT_ONCE), dtype=np.int64)

    def read(
        self, window: Bytes, position: int, end: int, previous_key: int, place: int
    ) -> tuple[Batch | None, int]:
        keys, offsets, lengths = self._found
        status, stop, count = kernels.locate_records(
            window,
            position,
            end,
            self._sync_array,
            previous_key,
            len(keys),
            BATCH_BYTES,
            keys,
            offsets,
            lengths,
        )
        if count == 0:
            if status != frames.ALL_READ:
                self._explain(window, position, end, previous_key, place)
            return None, stop
        array = window
        if self._deflated:
            array, sizes = self._inflate(window, keys[:count], offsets[:count], lengths[:count], place)
            if len(sizes) < count:
                count = len(sizes)
                stop = int(offsets[count - 1] + lengths[count - 1])
            lengths = sizes
            offsets = np.cumsum(lengths) - lengths
        batch = _opened(
            array,
            keys[:count].copy(),
            offsets[:count].copy(),
            lengths[:count].copy(),
            None if self._deflated else place,
        )
        return batch, stop

    def _inflate(
        self, window: Bytes, keys: Longs, offsets: Longs, lengths: Longs, place: int
    ) -> tuple[Bytes, Longs]:
        """The values, inflated, one after another, as many as make a batch; and how long each is."""
        sizes = np.empty(len(keys), dtype=np.int64)
        out: Bytes = np.empty(2 * BATCH_BYTES, dtype=np.uint8)
        count = kernels.inflate_values(
            inflate_address(),
            self._decompressor.address,
            window,
            offsets,
            lengths,
            BATCH_BYTES,
            out,
            sizes,
            np.empty(2, dtype=np.uint64),
        )
        if count:
            return out, sizes[:count]
        offset, length = int(offsets[0]), int(lengths[0])
        with placed(entry_id=int(keys[0]), offset=place + offset - RECORD_HEAD_BYTES):
            large = _as_array(inflate(window[offset : offset + length].data, most_of(length)))
        return large, np.array([len(large)], dtype=np.int64)

    def _explain(self, window: Bytes, position: int, end: int, previous_key: int, place: int) -> None:
        for _ in walk_records(window.data, position, end, self._sync, previous_key, offset=place):
            break
        raise AssertionError("the kernel refuses a record that its twin accepts")


class _BlockReader:
    """Of a block-compressed file: a block is read whole into the window, and inflated batch by batch."""

    def __init__(self, header: SequenceHeader) -> None:
        self._sync = header.sync
        self._block: SyncBlock | None = None
        self._inflater = Inflater(b"")
        self._done = 0

    def read(
        self, window: Bytes, position: int, end: int, previous_key: int, place: int
    ) -> tuple[Batch | None, int]:
        if self._block is None:
            if position >= end:
                return None, position
            reader = FieldReader(window.data, position, end, place)
            self._block = read_sync_block(reader, self._sync, previous_key)
            self._inflater = Inflater(self._block.values)
            self._done = 0
            position = reader.position
        block, first = self._block, self._done
        ends = np.cumsum(block.lengths[first:])
        count = min(int(np.searchsorted(ends, BATCH_BYTES)) + 1, len(ends))
        lengths = block.lengths[first : first + count]
        with placed(offset=block.values_place, entry_id=int(block.keys[first])):
            if int(lengths[-1]) > most_of(block.values_length):
                raise BadLengthError(
                    "a block's entry is too long",
                    expected=f"at most {most_of(block.values_length)} bytes",
                    found=int(lengths[-1]),
                )
            array = _as_array(self._inflater.read(int(ends[count - 1])))
            self._done += count
            if self._done == len(block.keys):
                self._inflater.finish()
                self._block = None
            keys = block.keys[first : first + count]
            return _opened(array, keys, np.cumsum(lengths) - lengths, lengths.copy(), None), position


def _opened(array: Bytes, keys: Longs, offsets: Longs, lengths: Longs, place: int | None) -> Batch:
    """A batch of values that are stored as `BytesWritable`; `offsets` and `lengths` are changed."""
    right = kernels.open_values(array, offsets, lengths)
    if right < len(offsets):
        begin = int(offsets[right])
        with placed(offset=None if place is None else place + begin):
            open_value(array[begin : begin + int(lengths[right])].data, int(keys[right]))
        raise AssertionError("the kernel refuses a value that its twin accepts")
    return Batch(array=array, keys=keys, offsets=offsets, lengths=lengths, place=place)


def _as_array(data: bytes) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8)
