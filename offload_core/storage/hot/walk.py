"""A walk over the entries of a ledger file, window by window: to pass them, to copy them, to find the first fault.

Every entry that is passed or copied is checked. The index learns where entries are. Buffers are used again: to have
memory anew from the system costs more than to fill it.
"""

from __future__ import annotations

import struct
from collections import deque

import numpy as np
import numpy.typing as npt
import xxhash

from offload_core.format.codec.arrays import Bytes, read_only
from offload_core.format.codec.crc32c import crc32c_address
from offload_core.format.codec.kernels.hot_frames import (
    BAD_FRAME,
    CUT_OFF,
    FULL,
    PASSED,
    copy_frames,
    pass_frames,
)
from offload_core.storage.hot.file_calls import read_into
from offload_core.storage.hot.ledger_frames import FRAME_HEAD_BYTES, MAX_ENTRY_BYTES, ledger_seed, walk_frames
from offload_core.storage.hot.ledger_layout import Mark
from offload_core.storage.hot.sparse_index import SparseIndex
from offload_hooks.errors import FormatError, TruncatedError
from offload_hooks.ledger_stores import EntryBatch

MAX_BYTES = 8 << 20
"""Larger ones are not kept, nor more than four."""

_spare: deque[bytearray] = deque(maxlen=4)


def take_buffer(size: int) -> bytearray:
    """A buffer of at least `size` bytes, with anything in it."""
    try:
        buffer = _spare.pop()
    except IndexError:
        return bytearray(size)
    return buffer if len(buffer) >= size else bytearray(size)


def give_buffer(buffer: bytearray) -> None:
    """Release it: no thread uses it any more."""
    if 0 < len(buffer) <= MAX_BYTES:
        _spare.append(buffer)


WINDOW_BYTES = 1 << 20
MAX_WINDOW_BYTES = 8 << 20
_LENGTH = struct.Struct(">I")


class EntryWalk:
    """Goes over entries once, in order; `entry_id` comes next, at the byte `position`.

    Args:
        index: of the ledger; the walk begins at its last point at or before `first_entry_id`.
        stop: the byte where the last entry ends.
        window_bytes: how much to read at once; more where one entry is larger.
        digest: takes in the frames that `skip_to` passes.
    """

    def __init__(
        self,
        descriptor: int,
        ledger_id: int,
        index: SparseIndex,
        *,
        first_entry_id: int,
        stop: int,
        window_bytes: int = WINDOW_BYTES,
        digest: xxhash.xxh3_128 | None = None,
    ) -> None:
        self.entry_id, self.position = index.at_or_before(first_entry_id)
        self._descriptor = descriptor
        self._ledger_id = ledger_id
        self._seed = np.uint32(ledger_seed(ledger_id))
        self._checksum = crc32c_address()
        self._index = index
        self._stop = stop
        self._window_bytes = window_bytes
        self._digest = digest
        self._buffer = bytearray()
        self._window = memoryview(self._buffer)[:0]
        self._array: Bytes = read_only(self._window)
        self._begin = self.position
        self._loaded = -1

    @property
    def mark(self) -> Mark:
        """Offset of its frame."""
        return Mark(entry_count=self.entry_id, offset=self.position)

    def skip_to(self, entry_id: int) -> None:
        """Pass entries up to `entry_id`, or to the end. Raises `FormatError` for the first that is not whole."""
        while self.entry_id < entry_id and self.position < self._stop:
            at = self.position - self._begin
            self._index.add(self.entry_id, self.position)
            border = min(len(self._window), self._index.next_offset - self._begin)
            status, end, self.entry_id, _ = pass_frames(
                self._array,
                at,
                max(border, at + 1),
                self.entry_id,
                entry_id,
                MAX_ENTRY_BYTES,
                self._checksum,
                self._seed,
            )
            if self._digest is not None:
                self._digest.update(self._window[at:end])
            self._move(status, end)

    def copy(self, stop_entry_id: int, max_bytes: int) -> EntryBatch:
        """The next entries, to `stop_entry_id` or the end, of at most `max_bytes`, but at least one.

        Raises `FormatError` for one that is not whole.
        """
        first, used = self.entry_id, 0
        values: list[Bytes] = []
        offsets: list[npt.NDArray[np.int64]] = [np.zeros(1, np.int64)]
        status = PASSED
        while status != FULL and self.entry_id < stop_entry_id and self.position < self._stop:
            at = self.position - self._begin
            left = len(self._window) - at
            copied = np.empty(left, np.uint8)
            found = np.empty(min(stop_entry_id - self.entry_id, left // FRAME_HEAD_BYTES) + 1, np.int64)
            room = max(max_bytes, self._next_length(at)) if self.entry_id == first else max_bytes - used
            status, end, count = copy_frames(
                self._array,
                at,
                self.entry_id,
                stop_entry_id,
                MAX_ENTRY_BYTES,
                self._checksum,
                self._seed,
                room,
                copied,
                found,
            )
            self._index.add(self.entry_id, self.position)
            if count:
                values.append(copied[: found[count]])
                offsets.append(found[1 : count + 1] + used)
            used += int(found[count])
            self.entry_id += count
            self._move(status, end)
        if not values:
            raise self._fault()
        as_it_is = (
            len(values) == 1 and 2 * used >= self._window_bytes
        )  # else it would keep much that is unused
        data = values[0] if as_it_is else np.concatenate(values)
        borders = np.concatenate(offsets)
        return EntryBatch(first, data.data.toreadonly(), borders.data.cast("B").cast("q").toreadonly())

    def close(self) -> None:
        """Leave the window's memory to another; the walk is over."""
        give_buffer(self._buffer)
        self._buffer = bytearray()

    def _next_length(self, at: int) -> int:
        """Payload bytes of the next entry as its frame has it; 0 if that is not in the window."""
        whole = len(self._window) - at >= FRAME_HEAD_BYTES
        return int(_LENGTH.unpack_from(self._window, at + 4)[0]) if whole else 0

    def _move(self, status: int, at: int) -> None:
        """Go on at a place of the window, in which the kernel stopped."""
        self.position = self._begin + at
        if status == BAD_FRAME:
            raise self._fault()
        if status == CUT_OFF and self.position < self._stop:
            self._load()

    def _load(self) -> None:
        """Load a window from here that has the next entry; a larger one if the last one from here was too short."""
        room = self._stop - self.position
        size = min(self._window_bytes, room)
        again = self._loaded == self.position
        if again:
            length = self._next_length(0)
            size = min(FRAME_HEAD_BYTES + length, room)
            if size <= len(self._window) or length > MAX_ENTRY_BYTES:
                raise self._fault()
        before = len(self._window)
        if len(self._buffer) < size:
            self._buffer = take_buffer(size)
        window = memoryview(self._buffer)[:size]
        self._window = window[: read_into(self._descriptor, window, self.position)]
        if again and len(self._window) <= before:
            raise self._fault()
        self._array = read_only(self._window)
        self._begin = self._loaded = self.position

    def _fault(self) -> FormatError:
        """The fault of the next entry."""
        at = self.position - self._begin
        seed = int(self._seed)
        try:
            if at == len(self._window):
                raise TruncatedError(
                    "a ledger's file ends before its entries do", entry_id=self.entry_id, offset=self.position
                )
            next(walk_frames(self._window, at, self.entry_id, seed, file_offset=self._begin))
        except FormatError as error:
            return error.at(ledger_id=self._ledger_id)  # type: ignore[return-value]
        raise AssertionError("the kernel and its twin differ")
