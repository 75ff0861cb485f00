"""The part of a stretch that is in memory, and how far it was read.

Windows come one after another; what the last one left over is joined with the next only when there is enough for the
next record or block, so that a large one is copied once.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.byte_arrays import Bytes, read_only

MOST_AGAIN_BYTES = 1 << 20


class StretchWindow:
    """Bytes of the stretch that begins at the file's byte `begin` and ends before `stretch_end`.

    `array` (uint8, read only) begins at the file's byte `place`; `position` is how far in it was read.
    """

    def __init__(self, data: bytes | bytearray | memoryview, begin: int, stretch_end: int) -> None:
        self.array = read_only(data)
        self.place = begin
        self.position = 0
        self._stretch_end = stretch_end
        self._needed = 0
        self._waiting: list[Bytes] = []

    @property
    def end(self) -> int:
        """Where the stretch ends, counted from the array's begin."""
        return self._stretch_end - self.place

    @property
    def reached(self) -> int:
        """The place in the file up to which it was read."""
        return self.place + self.position

    @property
    def wanted(self) -> int:
        """The place in the file from which on the next window should have its bytes.

        To have a little that is left over again saves a copy of the window; much of it would be fetched in vain.
        """
        held = len(self.array) - self.position + sum(map(len, self._waiting))
        return self.reached if held < MOST_AGAIN_BYTES else self.reached + held

    def need(self, needed: int) -> None:
        """Reading cannot go on before the array has its byte `needed` − 1."""
        self._needed = needed

    def feed(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """The next bytes, from the file's byte `offset` on: what follows all before, or from before `reached`."""
        window = read_only(data)
        if offset <= self.reached:
            reached = self.reached
            self.array, self.place, self.position = window, offset, reached - offset
            self._needed, self._waiting = 0, []
        else:
            self._waiting.append(window)

    def join(self) -> bool:
        """Put together what has come; False if that is not enough."""
        if len(self.array) + sum(map(len, self._waiting)) < self._needed:
            return False
        if not self._waiting:
            return True
        rest = self.array[self.position :]
        self.place, self.position = self.reached, 0
        self.array = read_only(np.concatenate([rest, *self._waiting]).data)
        self._needed, self._waiting = 0, []
        return True
