"""Stretches of a data file → batches of entries of about 1 MiB: arrays of bytes, ids, places and lengths.

One reader for files whose records stand alone, one for block-compressed files. What is inflated is never more than a
batch and an entry; an entry that is larger than 256 MiB is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.kernels import frames
from offload_core.format.codec.kernels import mapfile as kernels
from offload_core.format.codec.kernels.c_functions import Decompressor, inflate_address
from offload_core.format.codec.mapfile.fields import FieldReader
from offload_core.format.codec.mapfile.header import FileCompression, SequenceHeader
from offload_core.format.codec.mapfile.records import RECORD_HEAD_BYTES, open_value, walk_records
from offload_core.format.codec.mapfile.sync_blocks import SyncBlock, read_sync_block
from offload_core.format.codec.mapfile.zlib_streams import Inflater, inflate, most_of
from offload_hooks.errors import BadLengthError, placed

Bytes = npt.NDArray[np.uint8]
Longs = npt.NDArray[np.int64]

BATCH_BYTES = 1 << 20

_RECORDS_AT_ONCE = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some entries: `array` uint8, and per entry its key and its bytes in `array`, int64.

    `place` is where `array` stands in the file; None if it is inflated.
    """

    array: Bytes
    keys: Longs
    offsets: Longs
    lengths: Longs
    place: int | None


class BatchReader(Protocol):
    """Reads one stretch of a file, batch after batch."""

    def read(
        self, window: Bytes, position: int, end: int, previous_key: int, place: int
    ) -> tuple[Batch | None, int]:
        """The next batch, and where in `window` reading goes on; None at the stretch's end.

        Args:
            window: bytes from the file's byte `place` on; the stretch ends at `end` of it, or behind it.
            position: where to read on, as answered by the last call.
            previous_key: the last key before.

        Raises:
            CutOffError: the next record or block goes on behind the window.
            FormatError: a subclass, with the byte, and the entry where it is known.
        """
        ...


def batch_reader(header: SequenceHeader) -> BatchReader:
    """The reader for a file with this header."""
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
        """The values, inflated, behind one another, as many as make a batch; and how long each is."""
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
