"""The program of a schema, run over a batch's datums: each value goes to the cells of its column (`schemas.cells`).

Nothing is raised: a datum that is not right gets a mark and nulls. The plain twin is `schemas.avro.plain`.
Source: the AVRO specification 1.12, "Binary Encoding".
"""

from __future__ import annotations

import numpy as np

from offload_core.kernel import kernel
from offload_core.schemas.kernels import operations as op
from offload_core.schemas.kernels.cells import is_text

_LAST_MS = np.int64((2**63 - 1) // 1000)


@kernel
def _read_long(data, position, end):
    """The zigzag varint at `position`, and the position after it; −1 if it is not right."""
    if position >= end:
        return np.int64(0), np.int64(-1)
    byte = np.uint64(data[position])
    position += 1
    value = byte & np.uint64(127)
    shift = np.uint64(7)
    while byte > 127:
        if position >= end or shift > 63:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(data[position])
        position += 1
        if shift == 63 and byte > 1:
            return np.int64(0), np.int64(-1)
        value |= (byte & np.uint64(127)) << shift
        shift += np.uint64(7)
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position


@kernel
def _decimal_fits(data, position, end, limit_high, limit_low):
    """Whether a big-endian number is less than the limit, and more than its negative."""
    negative = position < end and data[position] >= 128
    fill = np.uint8(255) if negative else np.uint8(0)
    while end - position > 16:
        if data[position] != fill:
            return False
        position += 1
    high = np.uint64(0xFFFFFFFFFFFFFFFF) if negative else np.uint64(0)
    low = high
    while position < end:
        high = (high << np.uint64(8)) | (low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(data[position])
        position += 1
    if (np.int64(high) < 0) != negative:
        return False
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(1 if low == 0 else 0)
    return high < np.uint64(limit_high) or (high == np.uint64(limit_high) and low < np.uint64(limit_low))


@kernel
def read_datums(
    data,
    offsets,
    lengths,
    program,
    numbers,
    top_level,
    nested,
    check_text,
    base,
    room,
    counts,
    items,
    cells,
    doubles,
    there,
    faults,
):
    """Read every datum; answers the slot of a list that has no room for its items, or −1.

    data uint8; offsets, lengths int64 per datum (length −1: null); program int64 (instructions × 6), numbers int64.
    top_level, nested: int64, the slots outside and inside of lists. Per slot, int64: base (its first cell), room (of a
    list: cells of the slots in it), counts (cells used) and items (of a list), both zeroed. cells int64, doubles the
    same memory as float64, there uint8: the output. faults uint8 per datum (output): 1 if it is not right.
    """
    bits = np.zeros(1, dtype=np.uint32)
    single = bits.view(np.float32)
    saved_counts, saved_items = np.zeros_like(counts), np.zeros_like(items)
    stack = np.zeros(len(counts) + 1, dtype=np.int64)
    for row in range(len(offsets)):
        faults[row] = 0
        right = lengths[row] >= 0
        for k in range(len(nested)):
            saved_counts[nested[k]] = counts[nested[k]]
        if len(nested):
            saved_items[:] = items
        position = offsets[row]
        end = position + lengths[row]
        at = np.int64(0)
        depth = 0
        budget = lengths[row]  # an item takes a byte at least; those that take none are bounded by it as well
        while right:
            operation = program[at, 0]
            slot = program[at, 1]
            here = base[slot] + counts[slot] if slot >= 0 else np.int64(0)
            if operation == op.INT or operation == op.LONG:
                value, position = _read_long(data, position, end)
                if position < 0 or (operation == op.INT and (value < -(2**31) or value >= 2**31)):
                    right = False
                    break
                if slot >= 0:
                    conversion = program[at, 2]
                    known = True
                    if conversion == op.TO_DOUBLE:
                        doubles[here] = value
                    else:
                        if conversion == op.TO_MICROSECONDS:
                            known = -_LAST_MS <= value <= _LAST_MS
                            value *= 1000
                        elif conversion == op.TIME_OF_DAY:
                            known = 0 <= value < program[at, 3]
                        cells[here] = value if known else np.int64(0)
                    there[here] = known
                    counts[slot] += 1
                at += 1
            elif operation == op.SPAN:
                length, position = _read_long(data, position, end)
                if position < 0 or length < 0 or length > end - position:
                    right = False
                    break
                if check_text and program[at, 2] and not is_text(data, position, position + length):
                    right = False
                    break
                if slot >= 0:
                    cells[here] = position << op.SPAN_BITS | length
                    there[here] = 1
                    counts[slot] += 1
                position += length
                at += 1
            elif operation == op.UNION:
                branch, position = _read_long(data, position, end)
                if position < 0 or branch < 0 or branch >= program[at, 3]:
                    right = False
                    break
                at = numbers[program[at, 2] + branch]
            elif operation == op.NULLS:
                first = program[at, 2]
                for k in range(first, first + program[at, 3]):
                    other = numbers[k]
                    cell = base[other] + counts[other]
                    cells[cell] = items[other]
                    there[cell] = 0
                    counts[other] += 1
                at += 1
            elif operation == op.JUMP:
                at = program[at, 2]
            elif operation == op.DOUBLE:
                if end - position < 8:
                    right = False
                    break
                if slot >= 0:
                    word = np.uint64(0)
                    for k in range(8):
                        word |= np.uint64(data[position + k]) << np.uint64(8 * k)
                    cells[here] = np.int64(word)
                    there[here] = 1
                    counts[slot] += 1
                position += 8
                at += 1
            elif operation == op.FLOAT:
                if end - position < 4:
                    right = False
                    break
                if slot >= 0:
                    half = np.uint32(0)
                    for k in range(4):
                        half |= np.uint32(data[position + k]) << np.uint32(8 * k)
                    bits[0] = half
                    doubles[here] = single[0]
                    there[here] = 1
                    counts[slot] += 1
                position += 4
                at += 1
            elif operation == op.BOOLEAN:
                if position >= end or data[position] > 1:
                    right = False
                    break
                if slot >= 0:
                    cells[here] = data[position]
                    there[here] = 1
                    counts[slot] += 1
                position += 1
                at += 1
            elif operation == op.VALID:
                cells[here] = 0
                there[here] = 1
                counts[slot] += 1
                at += 1
            elif operation == op.FIXED:
                size = program[at, 2]
                if size > end - position:
                    right = False
                    break
                if slot >= 0:
                    cells[here] = position << op.SPAN_BITS | size
                    there[here] = 1
                    counts[slot] += 1
                position += size
                at += 1
            elif operation == op.DECIMAL:
                size = program[at, 2]
                if size < 0:
                    size, position = _read_long(data, position, end)
                    if position < 0:
                        right = False
                        break
                if size < 0 or size > end - position:
                    right = False
                    break
                if not _decimal_fits(data, position, position + size, program[at, 3], program[at, 4]):
                    right = False
                    break
                if slot >= 0:
                    cells[here] = position << op.SPAN_BITS | size
                    there[here] = 1
                    counts[slot] += 1
                position += size
                at += 1
            elif operation == op.ENUM:
                symbol, position = _read_long(data, position, end)
                if position < 0 or symbol < 0 or symbol >= program[at, 3]:
                    right = False
                    break
                if slot >= 0:
                    symbol = numbers[program[at, 2] + symbol]
                    if symbol < 0:
                        right = False
                        break
                    cells[here] = symbol
                    there[here] = 1
                    counts[slot] += 1
                at += 1
            elif operation == op.LIST:
                stack[depth] = 0
                depth += 1
                at += 1
            elif operation == op.NEXT:
                if stack[depth - 1] == 0:
                    count, position = _read_long(data, position, end)
                    if position < 0:
                        right = False
                        break
                    if count < 0:
                        _, position = _read_long(data, position, end)
                        if position < 0:
                            right = False
                            break
                        count = -count
                    if count < 0 or count > budget:
                        right = False
                        break
                    budget -= count
                    if count == 0:
                        if slot >= 0:
                            cells[here] = items[slot]
                            there[here] = 1
                            counts[slot] += 1
                        depth -= 1
                        at = program[at, 2]
                        continue
                    if slot >= 0 and items[slot] + count > room[slot]:
                        return np.int64(slot)
                    stack[depth - 1] = count
                stack[depth - 1] -= 1
                if slot >= 0:
                    items[slot] += 1
                at += 1
            elif operation == op.CONSTANT:
                cells[here] = program[at, 2]
                there[here] = 1
                counts[slot] += 1
                at += 1
            elif operation == op.ITEMS:
                if items[slot] + program[at, 2] > room[slot]:
                    return np.int64(slot)
                items[slot] += program[at, 2]
                cells[here] = items[slot]
                there[here] = 1
                counts[slot] += 1
                at += 1
            elif operation == op.END:
                right = position == end
                break
            else:
                right = False
        if not right:
            faults[row] = lengths[row] >= 0
            for k in range(len(nested)):
                counts[nested[k]] = saved_counts[nested[k]]
            if len(nested):
                items[:] = saved_items
            for k in range(len(top_level)):
                other = top_level[k]
                cell = base[other] + row
                cells[cell] = items[other]
                there[cell] = 0
                counts[other] = row + 1
    return np.int64(-1)
