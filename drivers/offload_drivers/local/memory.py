"""Memory for large reads, which comes back by itself when nobody looks at it any more, and is used again.

New memory has to be cleared and mapped page by page when it is first touched: that takes several times as long as to
read a cached file into memory that is there. What is kept is bounded.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque

RANGE_BYTES = 2 << 20
"""What the ranges of a bulk read should be: it stays in the processor's cache until it is decoded."""

ROOM_BYTES = RANGE_BYTES + (512 << 10)
"""Size of the buffers that are used again; smaller and larger reads get memory of their own."""

LEAST_BYTES = 256 << 10

_free: deque[bytearray] = deque(maxlen=4)


def room_for(length: int) -> memoryview:
    """`length` writable bytes, with whatever was in them before."""
    if not LEAST_BYTES <= length <= ROOM_BYTES:
        return memoryview(bytearray(length))
    try:
        buffer = _free.pop()
    except IndexError:
        buffer = bytearray(ROOM_BYTES)
    lease = (ctypes.c_ubyte * length).from_buffer(
        buffer
    )  # views keep it alive; when it goes, the buffer is free
    weakref.finalize(lease, _free.append, buffer).atexit = False
    return memoryview(lease).cast("B")
