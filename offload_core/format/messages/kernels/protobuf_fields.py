"""Protobuf's wire format for the kernels: varints, and stepping over fields.

A position of −1 in an answer means that the bytes are not protobuf, or end too early.
Bounds: bytes from `position` to below `end` are read, and no others; callers have checked that 0 ≤ `position` and that
`end` is at most the length of `data`. A position that is answered is at most `end`.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.kernel import kernel

LAST_FIELD = 2**29 - 1
"""The largest field number that there is."""


@kernel
def read_varint(data, position, end):
    """The varint at `position`, as int64 (the low 64 bits), and the position after it."""
    if position >= end:
        return np.int64(0), np.int64(-1)
    byte = np.uint64(data[position])
    position += 1
    if byte < 128:
        return np.int64(byte), np.int64(position)
    value = byte & np.uint64(127)
    shift = np.uint64(7)
    while position < end and shift < 64:
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(127)) << shift
        if byte < 128:
            if shift == 63 and byte > 1:
                return np.int64(0), np.int64(-1)
            return np.int64(value), np.int64(position)
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@kernel
def skip_field(data, position, end, tag):
    """The position after the value of a field whose tag was just read."""
    wire_type = tag & 7
    if not 0 < tag >> 3 <= LAST_FIELD:
        return np.int64(-1)
    if wire_type == 0:
        _, position = read_varint(data, position, end)
        return position
    if wire_type == 2:
        length, position = read_varint(data, position, end)
        if position < 0 or length < 0 or length > end - position:
            return np.int64(-1)
        return position + length
    size = 8 if wire_type == 1 else 4
    if wire_type not in (1, 5) or size > end - position:
        return np.int64(-1)
    return np.int64(position + size)
