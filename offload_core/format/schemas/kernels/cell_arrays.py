"""Helpers of the kernels that fill cells, and of bytes and decimals made of cells (`schemas.cells`)."""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.intrinsics import copy_bytes
from offload_core.format.kernel import kernel
from offload_core.format.schemas.kernels import operations as op

_MOST = np.int64(op.LONGEST)


@kernel
def is_text(data, position, end):
    """True if the bytes from `position` to `end` are UTF-8.

    Bounds: reads `data` below `end` only, which the caller has checked.
    """
    while position < end:
        byte = data[position]
        position += 1
        if byte < 0x80:
            continue
        low, high = np.uint8(0x80), np.uint8(0xBF)
        if 0xC2 <= byte <= 0xDF:
            following = 1
        elif 0xE0 <= byte <= 0xEF:
            following = 2
            if byte == 0xE0:
                low = np.uint8(0xA0)
            elif byte == 0xED:
                high = np.uint8(0x9F)
        elif 0xF0 <= byte <= 0xF4:
            following = 3
            if byte == 0xF0:
                low = np.uint8(0x90)
            elif byte == 0xF4:
                high = np.uint8(0x8F)
        else:
            return False
        for i in range(following):
            if position >= end:
                return False
            byte = data[position]
            if i == 0 and (byte < low or byte > high):
                return False
            if byte < 0x80 or byte > 0xBF:
                return False
            position += 1
    return True


@kernel
def spanned_bytes(cells, there):
    """Number of bytes that the spans have together; `cells` int64 and `there` uint8 are of one length.

    Bounds: that of the shorter one.
    """
    total = np.int64(0)
    for i in range(min(len(cells), len(there))):
        if there[i]:
            total += cells[i] & _MOST
    return total


@kernel
def gather_cells(data, pool, cells, there, values, value_offsets):
    """Copy the bytes that spans name, one after another; whether all of them are there.

    `cells` int64, `there` and `values` uint8, `value_offsets` int32 (cells + 1, output).

    Bounds: the lengths of the arrays are checked first; each span against `data` or `pool`, and against what is left of
    `values`, before it is copied.
    """
    used = np.int64(0)
    if len(there) != len(cells) or len(value_offsets) != len(cells) + 1:
        return False
    value_offsets[0] = 0
    for i in range(len(cells)):
        if there[i]:
            cell = cells[i]
            length = cell & _MOST
            offset = (cell >> op.SPAN_BITS) & _MOST
            is_pooled = cell & op.IN_POOL
            if offset + length > (len(pool) if is_pooled else len(data)) or used + length > len(values):
                return False
            if is_pooled:  # not one name for either: that would count references in each step
                copy_bytes(values, used, pool, offset, length)
            else:
                copy_bytes(values, used, data, offset, length)
            used += length
        value_offsets[i + 1] = used
    return True


@kernel
def widen_decimals(data, pool, cells, there, words):
    """Big-endian numbers of any length to Arrow's 128 bits; whether the bytes of all are there.

    `cells` int64, `there` uint8, `words` uint64 (cells × 2, output), low word first.

    Bounds: the lengths of the arrays are checked first, each span against `data` or `pool` before it is read.
    """
    if len(there) != len(cells) or len(words) != len(cells) or words.shape[1] != 2:
        return False
    for i in range(len(cells)):
        low = np.uint64(0)
        high = np.uint64(0)
        if there[i]:
            cell = cells[i]
            length = cell & _MOST
            offset = (cell >> op.SPAN_BITS) & _MOST
            source = pool if cell & op.IN_POOL else data
            if offset + length > len(source):
                return False
            if length > 0 and source[offset] >= 128:
                low = high = np.uint64(0xFFFFFFFFFFFFFFFF)
            for k in range(length):
                high = (high << np.uint64(8)) | (low >> np.uint64(56))
                low = (low << np.uint64(8)) | np.uint64(source[offset + k])
        words[i, 0] = low
        words[i, 1] = high
    return True
