"""JSON objects of a batch, read by the tables of `schemas.json_decoder`: each value goes to its column's cell.

What is read here is what `schemas.json_reference` reads. A payload that is wrong, or rare (a field that is there twice,
a key with escapes, a number of more than 19 digits), gets a mark: the reference reads it then.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.intrinsics import load_i64, load_u32
from offload_core.format.kernel import kernel
from offload_core.format.schemas.kernels import json_kinds as kinds
from offload_core.format.schemas.kernels import operations as op
from offload_core.format.schemas.kernels.json_text import (
    LEAST_POWER,
    MOST_POWER,
    bits_of_double,
    is_space,
    read_base64,
    read_number,
    skip_number,
    skip_text,
    text_end,
    unescape,
)

_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN_LIST, _CLOSE_LIST, _OPEN_RECORD, _CLOSE_RECORD = 91, 93, 123, 125
_NULL, _TRUE, _ALSE = 0x6E756C6C, 0x74727565, 0x616C7365


@kernel
def _skip(data, position, end, stack):
    """The position after the value at `position`; −1 if it is not one that is decided here.

    `stack` is uint8, room for what is open.

    Bounds: reads `data` below `end` only; writes `stack` where `depth < len(stack)`.
    """
    depth = 0
    while True:
        while position < end and is_space(data[position]):
            position += 1
        if position >= end:
            return np.int64(-1)
        byte = data[position]
        is_open = False
        if byte == _QUOTE:
            position = skip_text(data, position + 1, end)
            if position < 0:
                return np.int64(-1)
        elif byte in (_OPEN_RECORD, _OPEN_LIST):
            if depth >= len(stack):
                return np.int64(-1)
            stack[depth] = byte + 2  # what closes it
            depth += 1
            position = position + 1
            while position < end and is_space(data[position]):
                position += 1
            if position >= end:
                return np.int64(-1)
            is_open = data[position] != stack[depth - 1]
        elif byte == 110:
            if not (end - position >= 4 and load_u32(data, position) == _NULL):
                return np.int64(-1)
            position += 4
        elif byte == 116:
            if not (end - position >= 4 and load_u32(data, position) == _TRUE):
                return np.int64(-1)
            position += 4
        elif byte == 102:
            if not (end - position >= 5 and load_u32(data, position + 1) == _ALSE):
                return np.int64(-1)
            position += 5
        else:
            position = skip_number(data, position, end)
            if position < 0:
                return np.int64(-1)
        while not is_open:  # a value has ended
            if depth == 0:
                return position
            while position < end and is_space(data[position]):
                position += 1
            if position >= end:
                return np.int64(-1)
            if data[position] == stack[depth - 1]:
                depth -= 1
                position += 1
            elif data[position] == _COMMA:
                position += 1
                is_open = True
            else:
                return np.int64(-1)
        if stack[depth - 1] == _CLOSE_RECORD:
            while position < end and is_space(data[position]):
                position += 1
            if position >= end or data[position] != _QUOTE:
                return np.int64(-1)
            position = skip_text(data, position + 1, end)
            if position < 0:
                return np.int64(-1)
            while position < end and is_space(data[position]):
                position += 1
            if position >= end or data[position] != _COLON:
                return np.int64(-1)
            position += 1


@kernel
def _is_name(data, position, end, names, begin, length):
    """True if the bytes at `position` are a name of `names`, with the quote after it.

    Bounds: reads `data` below `end` only, and `names` from `begin` on for `length` bytes, which the caller has
    checked.
    """
    if end - position <= length or data[position + length] != _QUOTE:
        return False
    i = 0
    while i < length and data[position + i] == names[begin + i]:
        i += 1
    return i == length


@kernel
def _is_same(data, pool, left, right):
    """True if two spans have the same bytes.

    Bounds: spans of texts that were read or written before.
    """
    length = left & op.LONGEST
    if right & op.LONGEST != length:
        return False
    left_at, right_at = (left >> op.SPAN_BITS) & op.LONGEST, (right >> op.SPAN_BITS) & op.LONGEST
    for i in range(length):
        left_byte = pool[left_at + i] if left & op.IN_POOL else data[left_at + i]
        right_byte = pool[right_at + i] if right & op.IN_POOL else data[right_at + i]
        if left_byte != right_byte:
            return False
    return True


@kernel
def _is_sound(targets, levels, names, owners, powers):
    """True if all slots, targets and ranges that the tables name are there.

    Bounds: reads each table below its length.
    """
    slots = len(owners)
    if slots == 0 or len(targets) == 0 or targets.shape[1] < kinds.PARTS:
        return False
    if len(powers) < 2 * (MOST_POWER - LEAST_POWER + 1) or targets[0, kinds.KIND] != kinds.RECORD:
        return False
    for slot in range(slots):
        if owners[slot] < -1 or owners[slot] >= slot:
            return False
    for k in range(len(targets)):
        kind, slot = targets[k, kinds.KIND], targets[k, kinds.SLOT]
        if slot >= slots or slot < (-1 if kind == kinds.NULL else 0):
            return False
        first, count = targets[k, kinds.FIRST], targets[k, kinds.COUNT]
        if first < 0 or count < 0 or first + count > len(targets) or (count and first <= k):
            return False
        if (kind == kinds.LIST and count != 1) or (kind == kinds.MAP and count != 2):
            return False
        if kind == kinds.MAP and targets[first, kinds.KIND] != kinds.TEXT:
            return False
        first, count = targets[k, kinds.LEVEL], targets[k, kinds.LEVEL_COUNT]
        if first < 0 or count < 0 or first + count > len(levels):
            return False
        for i in range(first, first + count):
            if levels[i] < 0 or levels[i] >= slots or owners[levels[i]] != (-1 if k == 0 else slot):
                return False
        first, count = targets[k, kinds.NAME], targets[k, kinds.NAME_BYTES]
        if first < 0 or count < 0 or first + count > len(names) or not 0 <= targets[k, kinds.SHIFT] < 64:
            return False
    return True


@kernel
def read_objects(
    data,
    offsets,
    lengths,
    targets,
    levels,
    names,
    powers,
    owners,
    stack,
    pool,
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

    data uint8; offsets, lengths int64 per payload (length −1: null). targets to owners: `JsonTables`. powers: see
    `json_text.bits_of_double`. stack uint8: room for what is open in values without a column, a byte for each of the
    longest payload's. pool uint8 (output): texts without their escapes, and bytes; as many as all payloads have.
    base int64 (slots + 1): where each slot's cells begin, and the last one's end. Per slot, int64, zeroed: counts
    (cells used), items (of a list), need (output: the most items that a list had at once). cells int64, there uint8:
    the output. faults uint8 per payload (output): 1 if it is not decided,
    `TOO_MANY_CELLS` if it has too many by itself.

    A cell for which its slot has no room is counted and not written: with room for `need` items all are there.

    Bounds: the lengths of the arrays are checked first, the tables by `_is_sound`. Each payload's span is checked
    against `data`, and each read against the payload's end. Cells are read and written where `base[slot] <= here <
    base[slot + 1]` only; `frames` where `depth < len(frames)`.
    """
    slots = len(owners)
    if (
        len(base) != slots + 1
        or len(counts) != slots
        or len(items) != slots
        or len(need) != slots
        or base[0] < 0
        or base[slots] > min(len(cells), len(there))
        or len(lengths) != len(offsets)
        or len(faults) != len(offsets)
        or not _is_sound(targets, levels, names, owners, powers)
    ):
        raise IndexError("the arrays of a JSON layout do not fit together")
    has_lists = False
    for slot in range(slots):
        has_lists = has_lists or owners[slot] >= 0
        if base[slot + 1] - base[slot] < (len(offsets) if owners[slot] < 0 else 0):
            raise IndexError("the arrays of a JSON layout do not fit together")
    saved_counts, saved_items = np.zeros_like(counts), np.zeros_like(items)
    seen = np.zeros(len(targets), dtype=np.int64)  # per field: the last record that had it
    frames = np.zeros(
        (len(targets) + 1, 4), dtype=np.int64
    )  # target, next field, number of the record, first item
    serial = np.int64(0)
    left = np.int64(most_cells)
    used, saved_used = np.int64(0), np.int64(0)
    first, count = targets[0, kinds.LEVEL], targets[0, kinds.LEVEL_COUNT]
    for row in range(len(offsets)):
        saved_used = used
        if has_lists:
            for slot in range(slots):  # not by slices, whose code takes seconds to compile
                saved_counts[slot], saved_items[slot] = counts[slot], items[slot]
        for k in range(first, first + count):
            slot = levels[k]
            cells[base[slot] + row] = items[slot]
            there[base[slot] + row] = 0
            counts[slot] = row + 1
        faults[row] = 0
        if lengths[row] < 0:
            continue
        position = offsets[row]
        # Compiled, a sum that overflows may be anything: it is not made before it is known to fit.
        right = 0 <= position <= len(data) - lengths[row]
        end = position + lengths[row] if right else position
        full = False
        if right:
            while position < end and is_space(data[position]):
                position += 1
            right = position < end and data[position] == _OPEN_RECORD
        depth = 0
        target = np.int64(0)
        at = targets[0, kinds.FIRST]
        is_first = True
        kind = np.int64(kinds.RECORD)
        serial += 1
        record, item = serial, np.int64(0)
        if right:
            there[base[targets[0, kinds.SLOT]] + row] = 1
            position += 1
        while right:
            while position < end and is_space(data[position]):
                position += 1
            if position >= end:
                right = False
                break
            byte = data[position]
            closing = _CLOSE_LIST if kind == kinds.LIST else _CLOSE_RECORD
            if byte == closing:
                position += 1
                if kind != kinds.RECORD:
                    slot = targets[target, kinds.SLOT]
                    here = base[slot] + counts[slot] - 1
                    if base[slot] <= here < base[slot + 1]:
                        cells[here] = items[slot]
                if depth == 0:
                    while position < end and is_space(data[position]):
                        position += 1
                    right = position == end
                    break
                depth -= 1
                target = frames[depth, 0]
                at = frames[depth, 1]
                record = frames[depth, 2]
                item = frames[depth, 3]
                kind = targets[target, kinds.KIND]
                is_first = False
                continue
            if not is_first:
                if byte != _COMMA:
                    right = False
                    break
                position = position + 1
                while position < end and is_space(data[position]):
                    position += 1
                if position >= end:
                    right = False
                    break
                byte = data[position]
            is_first = False

            child = np.int64(-1)
            if kind == kinds.RECORD:
                if byte != _QUOTE:
                    right = False
                    break
                position += 1
                begin = targets[target, kinds.FIRST]
                stop = begin + targets[target, kinds.COUNT]
                # which field it is: most come in the order of the schema
                word = load_i64(data, position) if end - position >= 8 else np.int64(0)
                if (
                    at < stop
                    and np.uint64(word ^ targets[at, kinds.WORD]) >> np.uint64(targets[at, kinds.SHIFT]) == 0
                    and (
                        targets[at, kinds.NAME_BYTES] < 8
                        or _is_name(
                            data, position, end, names, targets[at, kinds.NAME], targets[at, kinds.NAME_BYTES]
                        )
                    )
                ):
                    child = at
                else:
                    for k in range(begin, stop):
                        if _is_name(
                            data, position, end, names, targets[k, kinds.NAME], targets[k, kinds.NAME_BYTES]
                        ):
                            child = np.int64(k)
                            break
                if child >= 0:
                    position += targets[child, kinds.NAME_BYTES] + 1
                    right = seen[child] != record
                    seen[child] = record
                    at = child + 1
                else:
                    stop = skip_text(data, position, end)
                    right = stop >= 0
                    while position < stop:  # with escapes it may be a field's name
                        right = right and data[position] != _BACKSLASH
                        position += 1
                if not right:
                    break
                while position < end and is_space(data[position]):
                    position += 1
                if position >= end or data[position] != _COLON:
                    right = False
                    break
                position = position + 1
                while position < end and is_space(data[position]):
                    position += 1
                if position >= end:
                    right = False
                    break
                byte = data[position]
                if child < 0:
                    position = _skip(data, position, end, stack)
                    right = position >= 0
                    continue
            else:
                child = targets[target, kinds.FIRST] + targets[target, kinds.COUNT] - 1
                slot = targets[target, kinds.SLOT]
                left -= targets[target, kinds.LEVEL_COUNT]
                if left < 0:
                    full = True
                    right = False
                    break
                items[slot] += 1
                need[slot] = max(need[slot], items[slot])
                begin = targets[target, kinds.LEVEL]
                for k in range(begin, begin + targets[target, kinds.LEVEL_COUNT]):
                    other = levels[k]
                    here = base[other] + counts[other]
                    if here < base[other + 1]:
                        cells[here] = items[other]
                        there[here] = 0
                    counts[other] += 1

            # the value of `child`, or a key of a map before it
            is_key = kind == kinds.MAP
            if is_key:
                child -= 1
                if byte != _QUOTE:
                    right = False
                    break
            while True:
                of_child = targets[child, kinds.KIND]
                slot = targets[child, kinds.SLOT]
                here = base[slot] + counts[slot] - 1 if slot >= 0 else np.int64(-1)
                has_room = slot >= 0 and base[slot] <= here < base[slot + 1]
                if byte == 110:
                    right = end - position >= 4 and load_u32(data, position) == _NULL
                    position += 4
                elif of_child == kinds.TEXT or of_child == kinds.BYTES:
                    if byte != _QUOTE:
                        right = False
                        break
                    begin = position + 1
                    stop, has_escapes = text_end(data, begin, end)
                    if stop < 0:
                        right = False
                        break
                    position = stop + 1
                    value = begin << op.SPAN_BITS | (stop - begin)
                    if has_escapes or of_child == kinds.BYTES:
                        if of_child == kinds.BYTES:
                            after = read_base64(data, begin, stop, pool, used)
                        else:
                            after = unescape(data, begin, stop, pool, used)
                        if after < 0:
                            right = False
                            break
                        value = op.IN_POOL | used << op.SPAN_BITS | (after - used)
                        used = after
                    if has_room:
                        cells[here] = value
                        there[here] = 1
                elif of_child in (kinds.WHOLE, kinds.DOUBLE):
                    digits, power, is_negative, is_whole, position, right = read_number(data, position, end)
                    if not right:
                        break
                    if of_child == kinds.DOUBLE:
                        value, right = bits_of_double(digits, power, powers)
                        if is_negative and not (is_whole and digits == 0):  # an integer has no minus zero
                            value |= np.int64(-(2**63))
                        fits = True
                    else:
                        limit = np.uint64(targets[child, kinds.LIMIT]) + np.uint64(is_negative)
                        right = is_whole and digits <= limit
                        value = -np.int64(digits) if is_negative else np.int64(digits)
                        fits = targets[child, kinds.LOW] <= value <= targets[child, kinds.HIGH]
                        value *= targets[child, kinds.FACTOR]
                    if not right:
                        break
                    if fits and has_room:
                        cells[here] = value
                        there[here] = 1
                elif of_child == kinds.BOOLEAN:
                    if end - position >= 4 and load_u32(data, position) == _TRUE:
                        position += 4
                        value = np.int64(1)
                    elif byte == 102 and (end - position >= 5 and load_u32(data, position + 1) == _ALSE):
                        position += 5
                        value = np.int64(0)
                    else:
                        right = False
                        break
                    if has_room:
                        cells[here] = value
                        there[here] = 1
                elif of_child == kinds.NULL or depth >= len(frames):
                    right = False
                else:
                    if byte != (_OPEN_LIST if of_child == kinds.LIST else _OPEN_RECORD):
                        right = False
                        break
                    position += 1
                    if has_room:
                        there[here] = 1
                    frames[depth, 0] = target
                    frames[depth, 1] = at
                    frames[depth, 2] = record
                    frames[depth, 3] = item
                    depth += 1
                    target = child
                    kind = of_child
                    is_first = True
                    at = targets[target, kinds.FIRST]
                    serial += 1
                    record = serial
                    item = items[slot]
                if not is_key or not right:
                    break
                # The key is read: is it there for the first time? Then its value follows.
                key = base[slot] + counts[slot] - 1
                begin = base[slot] + item
                if key - begin > kinds.MOST_KEYS:
                    right = False
                    break
                if base[slot] <= key < base[slot + 1]:
                    for k in range(begin, key):
                        if _is_same(data, pool, cells[k], cells[key]):
                            right = False
                            break
                if not right:
                    break
                while position < end and is_space(data[position]):
                    position += 1
                if position >= end or data[position] != _COLON:
                    right = False
                    break
                position = position + 1
                while position < end and is_space(data[position]):
                    position += 1
                if position >= end:
                    right = False
                    break
                byte = data[position]
                child += 1
                is_key = False
        if full and len(offsets) > 1:
            return np.int64(row)
        if not right:
            faults[row] = op.TOO_MANY_CELLS if full else np.uint8(1)
            used = saved_used
            if has_lists:
                for slot in range(slots):
                    items[slot] = saved_items[slot]
                    if owners[slot] >= 0:
                        counts[slot] = saved_counts[slot]
            for k in range(first, first + count):
                slot = levels[k]
                cells[base[slot] + row] = items[slot]
                there[base[slot] + row] = 0
    return np.int64(-1)
