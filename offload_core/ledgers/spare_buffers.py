"""Buffers that are used again: to have their memory anew from the system costs more than to fill it."""

from __future__ import annotations

from collections import deque

MAX_BYTES = 8 << 20
"""What is larger is not kept; nor are more than four."""

_spare: deque[bytearray] = deque(maxlen=4)


def take(size: int) -> bytearray:
    """A buffer of at least `size` bytes, with anything in it."""
    try:
        buffer = _spare.pop()
    except IndexError:
        return bytearray(size)
    return buffer if len(buffer) >= size else bytearray(size)


def give(buffer: bytearray) -> None:
    """It is not used any more, by nobody."""
    if 0 < len(buffer) <= MAX_BYTES:
        _spare.append(buffer)
