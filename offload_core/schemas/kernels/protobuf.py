"""Protobuf messages of a batch, read by the tables of `schemas.protobuf.layout`: each value goes to its column's cell.

A frame begins with all its cells, of what a field has that is not there; fields that come replace them. Nothing is
raised: a payload that is not right gets a mark and nulls. The plain twin is `schemas.protobuf.plain`.
Source: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import numpy as np

from offload_core.kernel import kernel
from offload_core.schemas.kernels import operations as op
from offload_core.schemas.kernels import wire
from offload_core.schemas.kernels.cells import is_text


@kernel
def _read_varint(data, position, end):
    """The varint at `position`, uint64, and the position after it; −1 if it is not right."""
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
    """The length at `position`, and the position after it; −1 if there are not so many bytes."""
    value, position = _read_varint(data, position, end)
    if position < 0 or value > np.uint64(end - position):
        return np.int64(0), np.int64(-1)
    return np.int64(value), position


@kernel
def _skip(data, position, end, wire_type, number, groups):
    """The position behind a value that nobody wants, −1 if it is not right; `groups` is room for their numbers."""
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
            if depth == wire.MOST_GROUPS:
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
    """The cell of a number, of a float its own bits, and the position after it; −1 if it is not right."""
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
    """Whether a closed enum has this number."""
    low, high = first, first + count
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < first + count and numbers[low] == value


@kernel
def _clear(first, last, owner, owners, is_list, initial, initially_there, base, counts, items, cells, there):
    """Take back a member of a oneof: the slots from `first` to `last`, and all items in them."""
    for slot in range(first, last):
        if owners[slot] == owner:
            here = base[slot] + counts[slot] - 1
            cells[here] = initial[slot]
            there[here] = initially_there[slot]
            if is_list[slot]:
                items[slot] = cells[here - 1] if counts[slot] > 1 else np.int64(0)
        else:
            counts[slot] = items[owners[slot]]
            if is_list[slot]:
                items[slot] = cells[base[slot] + counts[slot] - 1] if counts[slot] else np.int64(0)


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
    room,
    counts,
    items,
    cells,
    there,
    faults,
):
    """Read every payload; answers the slot of a list that has no room for its items, or −1.

    data uint8; offsets, lengths int64 per payload (length −1: null). messages to initially_there: a `Layout`. Per slot,
    int64: base (its first cell), room (of a list: cells of the slots in it), counts (cells used) and items (of a list),
    both zeroed. cells int64, there uint8: the output. faults uint8 per payload (output): 1 if it is not right.
    """
    slots = len(owners)
    saved_counts, saved_items = np.zeros_like(counts), np.zeros_like(items)
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
        position = offsets[row]
        end = position + lengths[row]
        message = np.int64(0)
        group = np.int64(0)
        at = messages[0, wire.FIRST]
        depth = 0
        dropped = False  # an entry of a map whose closed enum has another number
        while right:
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
                    cells[base[slot] + counts[slot] - 1] = items[slot]
                if dropped and messages[message, wire.IS_ENTRY]:
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
                for k in range(begin, begin + 2 * fields[at, wire.CLEARS_COUNT], 2):
                    _clear(
                        numbers[k], numbers[k + 1], owners[numbers[k]],
                        owners, is_list, initial, initially_there, base, counts, items, cells, there,
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
                    if items[slot] >= room[slot]:
                        return np.int64(slot)
                    items[slot] += 1
                    begin = messages[inner, wire.SLOTS]
                    for k in range(begin, begin + messages[inner, wire.SLOTS_COUNT]):
                        other = numbers[k]
                        here = base[other] + counts[other]
                        cells[here] = initial[other]
                        there[here] = initially_there[other]
                        counts[other] += 1
                else:
                    there[base[slot] + counts[slot] - 1] = 1
                stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3] = message, end, group, at
                depth += 1
                message, end = inner, inner_end
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
                    if items[slot] >= room[slot]:
                        return np.int64(slot)
                    items[slot] += 1
                    here = base[slot + 1] + counts[slot + 1]
                    cells[here] = value
                    there[here] = 1
                    counts[slot + 1] += 1
                else:
                    if symbols_count:
                        dropped = False
                        begin = fields[at, wire.CLEARS]
                        for k in range(begin, begin + 2 * fields[at, wire.CLEARS_COUNT], 2):
                            _clear(
                                numbers[k], numbers[k + 1], owners[numbers[k]],
                                owners, is_list, initial, initially_there, base, counts, items, cells, there,
                            )  # fmt: skip
                    here = base[slot] + counts[slot] - 1
                    cells[here] = value
                    there[here] = 1
                if not is_packed:
                    break
        if not right:
            faults[row] = lengths[row] >= 0
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
