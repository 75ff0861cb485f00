"""The bytes of one data object, by windows: the object cut at multiples of the read buffer, each fetched by one range.

Windows are shared by all readers of the process; what is larger than one is read past them.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import NamedTuple

import numpy as np

from offload_core.format.codec.byte_arrays import Bytes, read_only
from offload_core.format.codec.frames import FRAME_HEADER_BYTES
from offload_core.format.codec.index import IndexedBlock
from offload_core.reading.read_handles.cold_copy import ColdPiece
from offload_core.reading.read_handles.memory import Fetch, ReadMemory

WALK_WINDOWS = 8
"""How many windows are read by one range where a walk only passes over them."""


class Windows:
    """Reads a piece's data object.

    Args:
        window_bytes: how long each window is, but the last.
    """

    def __init__(self, piece: ColdPiece, memory: ReadMemory, window_bytes: int) -> None:
        self.piece = piece
        self._memory = memory
        self.window_bytes = window_bytes

    def read(self, offset: int, stop: int, *, ahead: bool = False) -> memoryview:
        """From `offset` to the end of its window, or to `stop`; with `ahead` the next window is sent for."""
        number = offset // self.window_bytes
        begin = number * self.window_bytes
        data = self._memory.window(*self._window(number))
        if ahead and begin + self.window_bytes < self.piece.data_length:
            self._memory.prefetch(*self._window(number + 1))
        return data[offset - begin : stop - begin]

    def read_past(self, offset: int, stop: int) -> memoryview:
        """Exactly these bytes, which nobody keeps."""
        return self.piece.tier.read_range(self.piece.key.data_key, offset, stop - offset)

    def _window(self, number: int) -> tuple[Hashable, int, Fetch]:
        begin = number * self.window_bytes
        end = min(begin + self.window_bytes, self.piece.data_length)
        key = (self.piece.token, self.window_bytes, number)
        return key, end - begin, partial(self.read_past, begin, end)


class FrameHead(NamedTuple):
    """The begin of a frame that is cut off by the end of what was read: its entry, its length with the head."""

    entry_id: int
    frame_bytes: int


class BlockBytes:
    """A part of a block that moves on with a walk: `array` (uint8), whose first byte is the object's byte `base`."""

    def __init__(self, windows: Windows, block: IndexedBlock, begin: int, *, ahead: bool) -> None:
        self._windows = windows
        self._ahead = ahead
        self.block_end = block.offset + block.length
        self.base = begin
        self.array: Bytes = read_only(b"")

    def drop(self, count: int) -> None:
        """Leave so many bytes behind."""
        self.array, self.base = self.array[count:], self.base + count

    def frame_head(self, at: int) -> FrameHead | None:
        """The frame at `at`; None if not even its head is there, or it is the block's padding."""
        head = self.array[at : at + FRAME_HEADER_BYTES].tobytes()
        length = int.from_bytes(head[:4], "big", signed=True)
        if len(head) < FRAME_HEADER_BYTES or length < 0:
            return None
        return FrameHead(int.from_bytes(head[4:], "big", signed=True), FRAME_HEADER_BYTES + length)

    def is_far(self, at: int) -> bool:
        """Whether a place is so far behind what was read that what is between need not be fetched."""
        return at > len(self.array) + self._windows.window_bytes

    def jump(self, at: int) -> None:
        """Go on at a place behind what was read."""
        self.base += at
        self.array = read_only(b"")

    def extend(self, at: int, *, far: int | None = None) -> None:
        """Leave what is before `at` behind, and read on: to the end of the next window.

        `far`: what is before this place of the object is wanted to walk over it. Then more is read by one range, but
        for the first window, in which the walk may end.
        """
        begin = self.base + len(self.array)
        if far is not None and len(self.array) and far - begin > 2 * self._windows.window_bytes:
            stop = min(far, begin + WALK_WINDOWS * self._windows.window_bytes)
            self._append(at, self._windows.read_past(begin, stop))
        else:
            self._append(at, self._windows.read(begin, self.block_end, ahead=self._ahead))

    def reach(self, at: int, count: int) -> None:
        """Leave what is before `at` behind, and read on until `count` bytes are there, which the block has."""
        self.drop(at)
        while (missing := count - len(self.array)) > 0:
            begin = self.base + len(self.array)
            if missing > self._windows.window_bytes:
                self._append(0, self._windows.read_past(begin, begin + missing))
            else:
                self._append(0, self._windows.read(begin, self.block_end, ahead=self._ahead))

    def _append(self, at: int, data: memoryview) -> None:
        rest = self.array[at:]
        self.base += at
        self.array = (
            read_only(data) if not len(rest) else read_only(np.concatenate([rest, read_only(data)]).data)
        )
