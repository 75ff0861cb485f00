"""The program of a schema, run over a batch's datums: each value goes to the cells of its column (`schemas.cells`).

A datum that is not right gets a mark and nulls, never an error. The reference implementation is `avro_reference`.
Source: the AVRO specification 1.12, "Binary Encoding".
"""

from __future__ import annotations

import numpy as np

from offload_core.format.kernel import kernel
from offload_core.format.schemas.kernels import operations as op
from offload_core.format.schemas.kernels.cell_arrays import is_text

_LAST_MS = np.int64((2**63 - 1) // 1000)


@kernel
def _read_long(data, position, end):
    """The zigzag varint at `position`, and the position after it; −1 if it is not right.

    Bounds: reads `data` below `end` only.
    """
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
    """Whether a big-endian number is less than the limit, and more than its negative.

    Bounds: reads `data` from `position` to `end` only.
    """
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
def _is_sound(program, numbers, slots):
    """Whether all slots, addresses and ranges that a program names are there, no size is negative, and it ends.

    Bounds: reads `program` below its length; `numbers` is not read.
    """
    steps = len(program)
    if steps == 0 or program.shape[1] < 6 or program[steps - 1, 0] != op.END:
        return False
    for at in range(steps):
        operation, slot = program[at, 0], program[at, 1]
        if slot < -1 or slot >= slots:
            return False
        first, count = program[at, 2], program[at, 3]
        if (operation == op.VALID or operation == op.CONSTANT or operation == op.ITEMS) and slot < 0:
            return False
        if (operation == op.JUMP or operation == op.NEXT) and (first < 0 or first >= steps):
            return False
        if operation == op.NEXT and (count < 0 or program[at, 4] < -1 or program[at, 4] >= slots):
            return False
        if operation == op.FIXED and first < 0:
            return False
        if operation == op.ITEMS and (first < 0 or count < 0):
            return False
        names_range = operation == op.UNION or operation == op.NULLS or (operation == op.ENUM and slot >= 0)
        if names_range and (first < 0 or count < 0 or first + count > len(numbers)):
            return False
    return True


@kernel
def read_datums(
    data,
    offsets,
    lengths,
    program,
    numbers,
    most_depth,
    top_level,
    nested,
    check_text,
    base,
    most_cells,
    counts,
    items,
    need,
    cells,
    doubles,
    there,
    faults,
):
    """Read every datum; answers −1, or the row at which more than `most_cells` cells would be in lists.

    data uint8; offsets, lengths int64 per datum (length −1: null). program int64 (instructions × 6), numbers int64;
    most_depth: how deep its lists nest. top_level, nested: int64, the slots outside and inside of lists. base int64
    (slots + 1): where each slot's cells begin, and the last one's end. Per slot, int64: counts (output: cells used),
    items (of a list, zeroed), need (output, zeroed: the most items that a list had at once). cells int64, doubles the
    same memory as float64, there uint8: the output. faults uint8 per datum (output): 1 if it is not right,
    `TOO_MANY_CELLS` if it has too many by itself.

    A cell for which its slot has no room is counted and not written: with room for `need` items all are there.

    Bounds: the lengths of the arrays are checked first, `program` by `_is_sound`. Each datum's span is checked against
    `data`, and each read against the datum's end. Cells are written where `base[slot] <= here < base[slot + 1]` only:
    `following` begins with the first and only grows; `stack` where `depth < len(stack)`. Addresses and slots in
    `numbers` are checked as they are read.
    """
    slots, rows = len(counts), len(offsets)
    if (
        len(base) != slots + 1
        or len(items) != slots
        or len(need) != slots
        or base[0] < 0
        or base[slots] > min(len(cells), len(doubles), len(there))
        or len(lengths) != rows
        or len(faults) != rows
        or len(top_level) + len(nested) != slots
        or not _is_sound(program, numbers, slots)
    ):
        raise IndexError("the arrays of an AVRO program do not fit together")
    for slot in range(slots):
        if base[slot] > base[slot + 1]:
            raise IndexError("the arrays of an AVRO program do not fit together")
    for k in range(len(top_level)):
        slot = top_level[k]
        if slot < 0 or slot >= slots or base[slot + 1] - base[slot] < rows:
            raise IndexError("the arrays of an AVRO program do not fit together")
    for k in range(len(nested)):
        if nested[k] < 0 or nested[k] >= slots:
            raise IndexError("the arrays of an AVRO program do not fit together")
    has_lists = False
    for k in range(len(program)):
        has_lists = has_lists or program[k, 0] == op.LIST or program[k, 0] == op.ITEMS
    bits = np.zeros(1, dtype=np.uint32)
    single = bits.view(np.float32)
    following = base[:slots].copy()  # per slot, its next cell
    saved_following, saved_items = np.zeros_like(following), np.zeros_like(items)
    stack = np.zeros(most_depth, dtype=np.int64)
    left = np.int64(most_cells)
    for row in range(rows):
        faults[row] = 0
        right = lengths[row] >= 0
        for k in range(len(nested)):
            saved_following[nested[k]] = following[nested[k]]
        if has_lists:
            saved_items[:] = items
        position = offsets[row]
        # Compiled, a sum that overflows may be anything: it is not made before it is known to fit.
        right = right and 0 <= position <= len(data) - lengths[row]
        end = position + lengths[row] if right else position
        at = np.int64(0)
        depth = 0
        full = False
        budget = lengths[row]  # an item takes a byte at least; those that take none are bounded by it as well
        while right:
            operation = program[at, 0]
            slot = program[at, 1]
            here, stores = np.int64(0), False
            if slot >= 0:
                here = following[slot]
                stores = here < base[slot + 1]
                following[slot] = here + 1
            if operation == op.INT or operation == op.LONG:
                value, position = _read_long(data, position, end)
                if position < 0 or (operation == op.INT and (value < -(2**31) or value >= 2**31)):
                    right = False
                    break
                if stores:
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
                at += 1
            elif operation == op.SPAN:
                length, position = _read_long(data, position, end)
                if position < 0 or length < 0 or length > end - position:
                    right = False
                    break
                if check_text and program[at, 2] and not is_text(data, position, position + length):
                    right = False
                    break
                if stores:
                    cells[here] = position << op.SPAN_BITS | length
                    there[here] = 1
                position += length
                at += 1
            elif operation == op.UNION:
                branch, position = _read_long(data, position, end)
                if position < 0 or branch < 0 or branch >= program[at, 3]:
                    right = False
                    break
                at = numbers[program[at, 2] + branch]
                if at < 0 or at >= len(program):
                    right = False
            elif operation == op.NULLS:
                first = program[at, 2]
                for k in range(first, first + program[at, 3]):
                    other = numbers[k]
                    if other < 0 or other >= slots:
                        right = False
                        break
                    cell = following[other]
                    if cell < base[other + 1]:
                        cells[cell] = items[other]
                        there[cell] = 0
                    following[other] = cell + 1
                at += 1
            elif operation == op.JUMP:
                at = program[at, 2]
            elif operation == op.DOUBLE:
                if end - position < 8:
                    right = False
                    break
                if stores:
                    word = np.uint64(0)
                    for k in range(8):
                        word |= np.uint64(data[position + k]) << np.uint64(8 * k)
                    cells[here] = np.int64(word)
                    there[here] = 1
                position += 8
                at += 1
            elif operation == op.FLOAT:
                if end - position < 4:
                    right = False
                    break
                if stores:
                    half = np.uint32(0)
                    for k in range(4):
                        half |= np.uint32(data[position + k]) << np.uint32(8 * k)
                    bits[0] = half
                    doubles[here] = single[0]
                    there[here] = 1
                position += 4
                at += 1
            elif operation == op.BOOLEAN:
                if position >= end or data[position] > 1:
                    right = False
                    break
                if stores:
                    cells[here] = data[position]
                    there[here] = 1
                position += 1
                at += 1
            elif operation == op.VALID:
                if stores:
                    cells[here] = 0
                    there[here] = 1
                at += 1
            elif operation == op.FIXED:
                size = program[at, 2]
                if size > end - position:
                    right = False
                    break
                if stores:
                    cells[here] = position << op.SPAN_BITS | size
                    there[here] = 1
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
                if stores:
                    cells[here] = position << op.SPAN_BITS | size
                    there[here] = 1
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
                    if stores:
                        cells[here] = symbol
                        there[here] = 1
                at += 1
            elif operation == op.LIST:
                if depth >= len(stack):
                    right = False
                    break
                stack[depth] = 0
                depth += 1
                at += 1
            elif operation == op.NEXT:
                if depth == 0:
                    right = False
                    break
                of = program[at, 4]
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
                        if of >= 0:
                            here = following[of]
                            if here < base[of + 1]:
                                cells[here] = items[of]
                                there[here] = 1
                            following[of] = here + 1
                        depth -= 1
                        at = program[at, 2]
                        continue
                    if of >= 0:
                        if count * program[at, 3] > left:
                            right, full = False, True
                            break
                        left -= count * program[at, 3]
                        need[of] = max(need[of], items[of] + count)
                    stack[depth - 1] = count
                stack[depth - 1] -= 1
                if of >= 0:
                    items[of] += 1
                at += 1
            elif operation == op.CONSTANT:
                if stores:
                    cells[here] = program[at, 2]
                    there[here] = 1
                at += 1
            elif operation == op.ITEMS:
                if program[at, 2] * program[at, 3] > left:
                    right, full = False, True
                    break
                left -= program[at, 2] * program[at, 3]
                items[slot] += program[at, 2]
                need[slot] = max(need[slot], items[slot])
                if stores:
                    cells[here] = items[slot]
                    there[here] = 1
                at += 1
            elif operation == op.END:
                right = position == end
                break
            else:
                right = False
        if full and rows > 1:
            return np.int64(row)
        if not right:
            faults[row] = op.TOO_MANY_CELLS if full else np.uint8(lengths[row] >= 0)
            for k in range(len(nested)):
                following[nested[k]] = saved_following[nested[k]]
            if has_lists:
                items[:] = saved_items
            for k in range(len(top_level)):
                other = top_level[k]
                cell = base[other] + row
                cells[cell] = items[other]
                there[cell] = 0
                following[other] = cell + 1
    for slot in range(slots):
        counts[slot] = following[slot] - base[slot]
    return np.int64(-1)
