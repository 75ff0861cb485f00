"""Protobuf messages of a batch, read by the tables of `schemas.protobuf_decoder`: each value goes to its column's cell.

A frame begins with all its cells, of what a field has that is not there; fields that come replace them. A payload that
is not right gets a mark and nulls, never an error. The reference implementation is `schemas.protobuf_reference`.
Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import numpy as np

from offload_core.format.kernel import kernel
from offload_core.format.schemas.kernels import operations as op
from offload_core.format.schemas.kernels import wire
from offload_core.format.schemas.kernels.cell_arrays import is_text


@kernel
def _read_varint(data, position, end):
    """The varint at `position`, uint64, and the position after it; −1 if it is not right.

    Bounds: reads `data` below `end` only.
    """
    value = np.uint64(0)
    shift = np.uint64(0)
    while shift < 70:
        if position >= end:
            return value, np.int64(-1)
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(127)) << shift
        if byte < 128:
            return value, position
        shift += np.uint64(7)
    return value, np.int64(-1)


@kernel
def _read_length(data, position, end):
    """The length at `position`, and the position after it; −1 if there are fewer bytes than that."""
    value, position = _read_varint(data, position, end)
    if position < 0 or value > np.uint64(end - position):
        return np.int64(0), np.int64(-1)
    return np.int64(value), position


@kernel
def _skip(data, position, end, wire_type, number, groups):
    """The position after a value that is skipped, −1 if it is not right; `groups` is room for their numbers.

    Bounds: reads `data` below `end` only; writes `groups` where `depth < len(groups)`.
    """
    depth = 0
    while True:
        if wire_type == wire.VARINT:
            _, position = _read_varint(data, position, end)
        elif wire_type == wire.FIXED64:
            position = position + 8 if end - position >= 8 else np.int64(-1)
        elif wire_type == wire.FIXED32:
            position = position + 4 if end - position >= 4 else np.int64(-1)
        elif wire_type == wire.LENGTH:
            length, position = _read_length(data, position, end)
            if position >= 0:
                position += length
        elif wire_type == wire.START_GROUP:
            if depth >= len(groups):
                return np.int64(-1)
            groups[depth] = number
            depth += 1
        elif wire_type == wire.END_GROUP:
            if depth == 0 or groups[depth - 1] != number:
                return np.int64(-1)
            depth -= 1
        else:
            return np.int64(-1)
        if position < 0 or depth == 0:
            return position
        tag, position = _read_varint(data, position, end)
        if position < 0 or tag > np.uint64(0xFFFFFFFF) or tag < 8:
            return np.int64(-1)
        wire_type, number = np.int64(tag) & 7, np.int64(tag) >> 3


@kernel
def _read_number(data, position, end, kind):
    """The cell of a number, of a float its own bits, and the position after it; −1 if it is not right.

    Bounds: reads `data` below `end` only.
    """
    if kind <= wire.ENUM:
        value, position = _read_varint(data, position, end)
        if kind == wire.INT64 or kind == wire.UINT64:
            return np.int64(value), position
        if kind == wire.INT32 or kind == wire.ENUM:
            return np.int64(np.int32(np.uint32(value & np.uint64(0xFFFFFFFF)))), position
        if kind == wire.BOOL:
            return np.int64(value != 0), position
        if kind == wire.SINT64:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        low = np.int64(value & np.uint64(0xFFFFFFFF))
        return low if kind == wire.UINT32 else (low >> 1) ^ -(low & 1), position
    size = 4 if kind <= wire.FLOAT else 8
    if end - position < size:
        return np.int64(0), np.int64(-1)
    if size == 8:
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(data[position + k]) << np.uint64(8 * k)
        return np.int64(word), position + 8
    half = np.uint32(0)
    for k in range(4):
        half |= np.uint32(data[position + k]) << np.uint32(8 * k)
    return np.int64(np.int32(half)) if kind == wire.SFIXED_32 else np.int64(half), position + 4


@kernel
def _is_known(numbers, first, count, value):
    """True if a closed enum has this number.

    Bounds: reads `numbers` from `first` to `first + count`, which `_is_sound` has checked.
    """
    low, high = first, first + count
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < first + count and numbers[low] == value


@kernel
def _clear(
    own, first, count, numbers, owners, is_list, initial, initially_there, base, counts, items, begins,
    cells, there,
):  # fmt: skip
    """Take back the other members of a oneof, and all items in them; answers how many slots they have.

    `own` is the slot of the member that stays. The range of `numbers` has the members' slots as pairs of bounds.

    Bounds: slots are checked as they are read from `numbers`; cells are read and written where
    `base[slot] <= here < base[slot + 1]` only.
    """
    work = np.int64(0)
    if count == 0 or numbers[first] < 0 or numbers[first] >= len(owners):
        return work
    owner = owners[numbers[first]]
    for k in range(first, first + 2 * count, 2):
        if numbers[k] == own or numbers[k] < 0 or numbers[k + 1] > len(owners):
            continue
        work += numbers[k + 1] - numbers[k]
        for slot in range(numbers[k], numbers[k + 1]):
            if owners[slot] == owner:
                here = base[slot] + counts[slot] - 1
                if base[slot] <= here < base[slot + 1]:
                    cells[here] = initial[slot]
                    there[here] = initially_there[slot]
                if is_list[slot]:
                    items[slot] = begins[slot]
            else:
                counts[slot] = items[owners[slot]]
                if is_list[slot]:
                    here = base[slot] + counts[slot] - 1
                    if counts[slot] == 0:
                        items[slot] = 0
                    elif here < base[slot + 1]:
                        items[slot] = cells[here]
    return work


@kernel
def _is_sound(messages, fields, numbers, owners, is_list):
    """True if all slots, fields, messages and ranges that a layout names are there.

    Bounds: reads each table below its length.
    """
    slots = len(owners)
    if slots == 0 or len(messages) == 0:
        return False
    if messages.shape[1] < wire.MESSAGE_PARTS or fields.shape[1] < wire.FIELD_PARTS:
        return False
    for slot in range(slots):
        if owners[slot] < -1 or owners[slot] >= slot or (owners[slot] >= 0 and not is_list[owners[slot]]):
            return False
    for k in range(len(messages)):
        first, count = messages[k, wire.FIRST], messages[k, wire.COUNT]
        if first < 0 or count < 0 or first + count > len(fields):
            return False
        for part in (wire.SLOTS, wire.LISTS):
            first, count = messages[k, part], messages[k, part + 1]
            if first < 0 or count < 0 or first + count > len(numbers):
                return False
            for i in range(first, first + count):
                if numbers[i] < 0 or numbers[i] >= slots or (k == 0) != (owners[numbers[i]] < 0):
                    return False
    for k in range(len(fields)):
        slot, repeats, kind = fields[k, wire.SLOT], fields[k, wire.REPEATS], fields[k, wire.KIND]
        if slot < -1 or slot >= slots or (slot >= 0 and repeats and slot + 1 >= slots):
            return False
        if kind >= wire.MESSAGE and slot >= 0 and not 0 <= fields[k, wire.INNER] < len(messages):
            return False
        first, count = fields[k, wire.CLEARS], 2 * fields[k, wire.CLEARS_COUNT]
        if first < 0 or count < 0 or first + count > len(numbers):
            return False
        first, count = fields[k, wire.SYMBOLS], fields[k, wire.SYMBOLS_COUNT]
        if first < 0 or count < 0 or first + count > len(numbers):
            return False
    return True


@kernel
def read_messages(
    data,
    offsets,
    lengths,
    messages,
    fields,
    numbers,
    owners,
    is_list,
    initial,
    initially_there,
    base,
    most_cells,
    counts,
    items,
    need,
    cells,
    there,
    faults,
):
    """Read every payload; answers −1, or the row at which more than `most_cells` cells would be in lists.

    data uint8; offsets, lengths int64 per payload (length −1: null). messages to initially_there: `ProtobufTables`.
    base int64 (slots + 1): where each slot's cells begin, and the last one's end. Per slot, int64, zeroed: counts
    (cells used), items (of a list), need (output: the most items that a list had at once). cells int64, there uint8:
    the output. faults uint8 per payload (output): 1 if it is not right, `TOO_MANY_CELLS` if it has too many by itself.

    A cell for which its slot has no room is counted and not written: with room for `need` items all are there.

    Bounds: the lengths of the arrays are checked first, the layout by `_is_sound`. Each payload's span is checked
    against `data`, and each read against the message's end. Cells are read and written where `base[slot] <= here <
    base[slot + 1]` only; `stack` is written where `depth < len(stack)`.
    """
    if (
        len(base) != len(owners) + 1
        or len(is_list) != len(owners)
        or len(initial) != len(owners)
        or len(initially_there) != len(owners)
        or len(counts) != len(owners)
        or len(items) != len(owners)
        or len(need) != len(owners)
        or base[0] < 0
        or base[len(owners)] > min(len(cells), len(there))
        or len(lengths) != len(offsets)
        or len(faults) != len(offsets)
        or not _is_sound(messages, fields, numbers, owners, is_list)
    ):
        raise IndexError("the arrays of a Protobuf layout do not fit together")
    for slot in range(len(owners)):
        if base[slot + 1] - base[slot] < (len(offsets) if owners[slot] < 0 else 0):
            raise IndexError("the arrays of a Protobuf layout do not fit together")
    slots = len(owners)
    saved_counts, saved_items = np.zeros_like(counts), np.zeros_like(items)
    begins = np.zeros_like(items)  # of a list: where the items of its last cell begin
    left = np.int64(most_cells)
    stack = np.zeros(
        (len(messages) + 1, 4), dtype=np.int64
    )  # message, its end, its group's number, the field
    groups = np.zeros(wire.MOST_GROUPS, dtype=np.int64)
    bits, doubles = np.zeros(1, dtype=np.uint32), np.zeros(1, dtype=np.float64)
    single, word_of_double = bits.view(np.float32), doubles.view(np.int64)
    has_lists = is_list.max() > 0
    first, count = messages[0, wire.SLOTS], messages[0, wire.SLOTS_COUNT]
    for row in range(len(offsets)):
        faults[row] = 0
        right = lengths[row] >= 0
        if has_lists:
            saved_counts[:] = counts
            saved_items[:] = items
        for k in range(first, first + count):
            slot = numbers[k]
            here = base[slot] + row
            cells[here] = initial[slot]
            there[here] = initially_there[slot]
            counts[slot] = row + 1
            begins[slot] = items[slot]
        position = offsets[row]
        # Compiled, a sum that overflows may be anything: it is not made before it is known to fit.
        right = right and 0 <= position <= len(data) - lengths[row]
        end = position + lengths[row] if right else position
        message = np.int64(0)
        group = np.int64(0)
        at = messages[0, wire.FIRST]
        depth = 0
        dropped = False  # an entry of a map whose closed enum has another number
        full = False
        while right:
            if left < 0:
                right, full = False, True
                break
            closes = False
            number = np.int64(0)
            wire_type = np.int64(0)
            if position == end:
                if group:
                    right = False
                    break
                if depth == 0:
                    break
                closes = True
            else:
                tag, position = _read_varint(data, position, end)
                if position < 0 or tag > np.uint64(0xFFFFFFFF) or tag < 8:
                    right = False
                    break
                wire_type, number = np.int64(tag) & 7, np.int64(tag) >> 3
                if wire_type == wire.END_GROUP:
                    if number != group:
                        right = False
                        break
                    closes = True
            if closes:
                begin = messages[message, wire.LISTS]
                for k in range(begin, begin + messages[message, wire.LISTS_COUNT]):
                    slot = numbers[k]
                    here = base[slot] + counts[slot] - 1
                    if base[slot] <= here < base[slot + 1]:
                        cells[here] = items[slot]
                if dropped and messages[message, wire.IS_ENTRY] and messages[message, wire.SLOTS_COUNT]:
                    begin = messages[message, wire.SLOTS]
                    items[owners[numbers[begin]]] -= 1
                    for k in range(begin, begin + messages[message, wire.SLOTS_COUNT]):
                        counts[numbers[k]] -= 1
                dropped = False
                depth -= 1
                message, end, group, at = stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3]
                continue

            # which field it is: most come in the order of their numbers
            begin = messages[message, wire.FIRST]
            stop = begin + messages[message, wire.COUNT]
            if at >= stop or fields[at, wire.NUMBER] != number:
                at += 1
                if at >= stop or fields[at, wire.NUMBER] != number:
                    low, high = begin, stop
                    while low < high:
                        middle = (low + high) // 2
                        if fields[middle, wire.NUMBER] < number:
                            low = middle + 1
                        else:
                            high = middle
                    at = low
            kind = np.int64(-1)
            fits = False
            if at < stop and fields[at, wire.NUMBER] == number:
                kind = fields[at, wire.KIND]
                fits = fields[at, wire.WIRE_TYPE] == wire_type
            repeats = kind >= 0 and fields[at, wire.REPEATS] != 0
            is_packed = not fits and repeats and wire_type == wire.LENGTH and kind < wire.STRING
            if not fits and not is_packed:
                position = _skip(data, position, end, wire_type, number, groups)
                right = position >= 0
                continue

            slot = fields[at, wire.SLOT]
            begin = fields[at, wire.CLEARS]
            if kind != wire.ENUM or not fields[at, wire.SYMBOLS_COUNT]:  # else it is known later what it is
                left -= _clear(
                    slot, begin, fields[at, wire.CLEARS_COUNT], numbers, owners,
                    is_list, initial, initially_there, base, counts, items, begins, cells, there,
                )  # fmt: skip
            if slot < 0:
                position = _skip(data, position, end, wire_type, number, groups)
                right = position >= 0
                continue
            if kind >= wire.MESSAGE:
                inner_end = end
                if kind == wire.MESSAGE:
                    length, position = _read_length(data, position, end)
                    if position < 0:
                        right = False
                        break
                    inner_end = position + length
                inner = fields[at, wire.INNER]
                if repeats:
                    left -= messages[inner, wire.SLOTS_COUNT]
                    if left < 0:
                        continue
                    items[slot] += 1
                    need[slot] = max(need[slot], items[slot])
                    begin = messages[inner, wire.SLOTS]
                    for k in range(begin, begin + messages[inner, wire.SLOTS_COUNT]):
                        other = numbers[k]
                        here = base[other] + counts[other]
                        if here < base[other + 1]:
                            cells[here] = initial[other]
                            there[here] = initially_there[other]
                        counts[other] += 1
                        begins[other] = items[other]
                else:
                    here = base[slot] + counts[slot] - 1
                    if base[slot] <= here < base[slot + 1]:
                        there[here] = 1
                if depth >= len(stack):
                    right = False
                    break
                stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = message, end, group, at
                depth += 1
                message, end = inner, inner_end
                dropped = False
                group = number if kind == wire.GROUP else np.int64(0)
                at = messages[message, wire.FIRST]
                continue

            last = position  # of packed values: where they end
            if kind >= wire.STRING or is_packed:
                length, position = _read_length(data, position, end)
                if position < 0:
                    right = False
                    break
                last = position + length
            symbols, symbols_count = fields[at, wire.SYMBOLS], fields[at, wire.SYMBOLS_COUNT]
            while not is_packed or position < last:
                if kind >= wire.STRING:
                    if kind == wire.STRING and not is_text(data, position, last):
                        right = False
                        break
                    value = position << op.SPAN_BITS | (last - position)
                    position = last
                else:
                    value, position = _read_number(data, position, last if is_packed else end, kind)
                    if position < 0:
                        right = False
                        break
                    if kind == wire.FLOAT:
                        bits[0] = np.uint32(value)
                        doubles[0] = single[0]
                        value = word_of_double[0]
                if symbols_count and not _is_known(numbers, symbols, symbols_count, value):
                    dropped = True
                elif repeats:
                    left -= 1
                    items[slot] += 1
                    need[slot] = max(need[slot], items[slot])
                    here = base[slot + 1] + counts[slot + 1]
                    if here < base[slot + 2]:
                        cells[here] = value
                        there[here] = 1
                    counts[slot + 1] += 1
                else:
                    if symbols_count:
                        dropped = False
                        begin = fields[at, wire.CLEARS]
                        left -= _clear(
                            slot, begin, fields[at, wire.CLEARS_COUNT], numbers, owners,
                            is_list, initial, initially_there, base, counts, items, begins, cells, there,
                        )  # fmt: skip
                    here = base[slot] + counts[slot] - 1
                    if base[slot] <= here < base[slot + 1]:
                        cells[here] = value
                        there[here] = 1
                if not is_packed:
                    break
        if full and len(offsets) > 1:
            return np.int64(row)
        if not right:
            faults[row] = op.TOO_MANY_CELLS if full else np.uint8(lengths[row] >= 0)
            if has_lists:
                for slot in range(slots):
                    if owners[slot] >= 0:
                        counts[slot] = saved_counts[slot]
                items[:] = saved_items
            for k in range(first, first + count):
                slot = numbers[k]
                cells[base[slot] + row] = initial[slot]
                there[base[slot] + row] = initially_there[slot]
            there[base[0] + row] = 0
        if has_lists:
            begin = messages[0, wire.LISTS]
            for k in range(begin, begin + messages[0, wire.LISTS_COUNT]):
                slot = numbers[k]
                cells[base[slot] + row] = items[slot]
    return np.int64(-1)
