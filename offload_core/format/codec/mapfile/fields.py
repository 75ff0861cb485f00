"""The small fields of a SequenceFile: big-endian integers, Hadoop's variable-length integers, texts, byte strings.

A reader walks over a window of the file: what goes on behind the window, but not behind the stretch of the file that is
read, is `CutOffError`, which says how much is needed; what goes on behind the stretch is a `TruncatedError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from offload_hooks.errors import BadLengthError, TruncatedError

Buffer = bytes | bytearray | memoryview
Note = Callable[[int, int, str], None]

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class CutOffError(Exception):
    """A unit goes on behind the window; its next field ends at byte `needed` of the window."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class FieldReader:
    """Takes one field after another out of `window`, from byte `position` on.

    Args:
        window: bytes of the file; they begin at the file's byte `offset`.
        end: where in the window's count the stretch ends that is read; it may lie behind the window.
        note: told of each field that is taken: its place, its length, its name.
    """

    def __init__(
        self, window: Buffer, position: int, end: int, offset: int, note: Note | None = None
    ) -> None:
        self._window = memoryview(window)
        self.position = position
        self._end = end
        self._offset = offset
        self._note = note

    @property
    def place(self) -> int:
        """Where the next field begins in the file."""
        return self._offset + self.position

    @property
    def remaining(self) -> int:
        """Bytes up to the end of the stretch."""
        return self._end - self.position

    def take(self, length: int, what: str) -> memoryview:
        """The next `length` bytes. `what` names the field, for errors."""
        self._check(length, what)
        stop = self.position + length
        if stop > len(self._window):
            raise CutOffError(stop)
        if self._note is not None:
            self._note(self.place, length, what)
        taken = self._window[self.position : stop]
        self.position = stop
        return taken

    def peek(self, length: int, what: str) -> memoryview:
        """Of the next `length` bytes those that the window has; the reader stays where it is."""
        self._check(length, what)
        return self._window[self.position : self.position + length]

    def i32(self, what: str) -> int:
        """An `i32`."""
        return int(_I32.unpack(self.take(4, what))[0])

    def i64(self, what: str) -> int:
        """An `i64`."""
        return int(_I64.unpack(self.take(8, what))[0])

    def vint(self, what: str) -> int:
        """One of Hadoop's variable-length integers."""
        first = self.take(1, what)[0]
        follow = vint_bytes(first) - 1
        return unpack_vint(first, self.take(follow, what))

    def counted(self, what: str) -> memoryview:
        """Bytes after their number as a variable-length integer."""
        length = self.vint(f"the length of {what}")
        return self.take(length, what)

    def _check(self, length: int, what: str) -> None:
        if length < 0:
            raise BadLengthError(
                f"{what} has a negative length", offset=self.place, expected="0 or more", found=length
            )
        if length > self.remaining:
            raise TruncatedError(
                f"{what} is cut off",
                offset=self.place,
                expected=f"{length} bytes",
                found=f"{self.remaining} bytes",
            )


def vint_bytes(first: int) -> int:
    """How many bytes the variable-length integer has that begins with the byte `first` (0 … 255)."""
    signed = first - 256 if first > 127 else first
    if signed >= -112:
        return 1
    return -111 - signed if signed >= -120 else -119 - signed


def unpack_vint(first: int, follow: bytes | memoryview) -> int:
    """The value of a variable-length integer: its first byte and those that follow."""
    signed = first - 256 if first > 127 else first
    if signed >= -112:
        return signed
    value = int.from_bytes(follow, "big")
    return value if signed >= -120 else ~value


def pack_vint(value: int) -> bytes:
    """An integer of at most 64 bits as Hadoop's variable-length integer."""
    if -112 <= value <= 127:
        return (value & 0xFF).to_bytes(1, "big")
    magnitude = ~value if value < 0 else value
    follow = (magnitude.bit_length() + 7) // 8
    mark = (-120 if value < 0 else -112) - follow
    return (mark & 0xFF).to_bytes(1, "big") + magnitude.to_bytes(follow, "big")


def pack_counted(data: bytes) -> bytes:
    """Bytes behind their number as a variable-length integer."""
    return pack_vint(len(data)) + data
