"""Compiled walks over the entry frames of a block; the reference implementation is
`offload_core.format.codec.block_layout`.

At bytes that are not right a kernel does not raise: it stops at the first such frame and answers its position with
`BAD_FRAME`; the reference implementation then names the fault. Every length is checked against the block before it is
used. Arguments that do not fit one another are an `IndexError`, before anything is read or written out of bounds.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.intrinsics import (
    address_of,
    call_checksum,
    copy_bytes,
    load_i32,
    load_i64,
    load_u32,
    store_i32,
    store_i64,
)
from offload_core.format.kernel import kernel

ALL_READ = 1
"""The walk came to the block's end, or to its padding, which is right."""
OUT_OF_ROOM = 0
"""The output arrays are full; call again from the answered position."""
BAD_FRAME = 2
"""At the answered position there is neither an entry nor right padding."""
CUT_OFF = 3
"""The frame or padding at the answered position goes on after the window."""

INT32_MAX = 2**31 - 1

_FRAME = 12
_PADDING = np.uint32(0xFEDCDEAD)
_PADDING_BYTES = (0xFE, 0xDC, 0xDE, 0xAD)


@kernel
def are_borders(borders, first, last, size):
    """True if `borders[first]` … `borders[last]` ascend, from 0 on at least, to `size` at most.

    Bounds: reads these borders and no others, if 0 ≤ `first` ≤ `last` < the length of `borders`; else it answers False.
    """
    if not 0 <= first <= last < len(borders) or borders[first] < 0 or borders[last] > size:
        return False
    right = True
    for i in range(first, last):
        right &= borders[i] <= borders[i + 1]
    return right


@kernel
def _padding_is_right(block, position, end):
    """True when the padding pattern fills `block[position:end]`, from its own start.

    Bounds: reads bytes `position` … `end` − 1, which the caller has checked.
    """
    start = position
    while end - position >= 4:
        if load_u32(block, position) != _PADDING:
            return False
        position += 4
    while position < end:
        if block[position] != _PADDING_BYTES[(position - start) % 4]:
            return False
        position += 1
    return True


@kernel(inline=True)
def _frame_length(block, position, end, block_end, next_entry_id, gaps):
    """Length of the entry framed at `position` of a window that ends at `end`, in a block that ends at `block_end`.

    Its id is `next_entry_id`, or with `gaps` at least that. Else minus a status: the block's end or right padding, a
    bad frame, or a frame or padding that is cut off.
    Bounds: reads from `position` ≥ 0 on, which the caller has checked, a head only if 12 bytes are left before `end`.
    """
    remaining = end - position
    if remaining >= _FRAME:
        length = np.int64(load_i32(block, position))
        if 0 <= length <= block_end - position - _FRAME:
            entry_id = load_i64(block, position + 4)
            if entry_id != next_entry_id and (not gaps or entry_id < next_entry_id):
                return np.int64(-BAD_FRAME)
            return length if length <= remaining - _FRAME else np.int64(-CUT_OFF)
    if end < block_end:
        if remaining < _FRAME or load_u32(block, position) == _PADDING:
            return np.int64(-CUT_OFF)
        return np.int64(-BAD_FRAME)
    if _padding_is_right(block, position, end):
        return np.int64(-ALL_READ)
    return np.int64(-BAD_FRAME)


@kernel
def _number(entry_ids, first, count):
    """The ids of consecutive entries: apart from the walk, where it costs next to nothing.

    Bounds: writes `count` ids, for which the caller has checked the room.
    """
    for i in range(count):
        entry_ids[i] = first + i


@kernel
def find_entries(
    block, position, block_end, next_entry_id, stop_entry_id, gaps, byte_room, entry_ids, offsets, lengths
):
    """Find the payloads of the next entries below `stop_entry_id`, and their ids, as many as fit the outputs.

    No further one once their payloads have reached `byte_room` bytes. Ids are consecutive, with `gaps` only ascending.
    `block` uint8, a window that begins in the block, which ends at `block_end` of it; `entry_ids`, `offsets` and
    `lengths`: int64 (outputs). Answers (status, position, the least id that can come next, count); `OUT_OF_ROOM` also
    if the next entry is not below `stop_entry_id`, which is then the least id.
    Bounds: `count` < `room`, the least of the outputs' lengths; a payload lies in `block`, by `_frame_length`.
    """
    if position < 0:
        raise IndexError("a walk begins before its window")
    count = 0
    used = np.int64(0)
    end = np.int64(len(block))
    room = min(len(entry_ids), len(offsets), len(lengths))
    if not gaps:
        room = min(room, stop_entry_id - next_entry_id)
    first = next_entry_id
    status = OUT_OF_ROOM
    while count < room and (not gaps or next_entry_id < stop_entry_id):
        length = _frame_length(block, position, end, block_end, next_entry_id, gaps)
        if length < 0:
            status = -length
            break
        if gaps:
            entry_id = load_i64(block, position + 4)
            if entry_id >= stop_entry_id:
                next_entry_id = stop_entry_id
                break
        if used >= byte_room:
            break
        if gaps:
            entry_ids[count] = next_entry_id = entry_id
        offsets[count] = position + _FRAME
        lengths[count] = length
        used += length
        count += 1
        position += _FRAME + length
        next_entry_id += 1
    if not gaps:
        _number(entry_ids, first, count)
    return status, position, next_entry_id, count


@kernel
def copy_entries(
    block, position, block_end, next_entry_id, stop_entry_id, gaps, values, value_offsets, entry_ids
):
    """Copy the payloads of the next entries one after another, as Arrow's binary layout has them.

    As many as fit `entry_ids` (int64) and `values` (uint8); `value_offsets` int32, one more (outputs). Other arguments
    and the answer as of `find_entries`.
    Bounds: `count` < `room`, the lesser of the outputs' lengths; a payload lies in `block`, by `_frame_length`, and
    ends in `values` before `value_room`, which an int32 can hold.
    """
    if position < 0 or len(value_offsets) < 1:
        raise IndexError("a walk begins before its window, or has no room for offsets")
    count = 0
    used = np.int64(0)
    end = np.int64(len(block))
    value_room = min(len(values), INT32_MAX)
    room = min(len(entry_ids), len(value_offsets) - 1)
    if not gaps:
        room = min(room, stop_entry_id - next_entry_id)
    first = next_entry_id
    status = OUT_OF_ROOM
    value_offsets[0] = 0
    while count < room and (not gaps or next_entry_id < stop_entry_id):
        length = _frame_length(block, position, end, block_end, next_entry_id, gaps)
        if length < 0:
            status = -length
            break
        if gaps:
            entry_id = load_i64(block, position + 4)
            if entry_id >= stop_entry_id:
                next_entry_id = stop_entry_id
                break
        if used + length > value_room:
            break
        if gaps:
            entry_ids[count] = next_entry_id = entry_id
        copy_bytes(values, used, block, position + _FRAME, length)
        used += length
        count += 1
        value_offsets[count] = used
        position += _FRAME + length
        next_entry_id += 1
    if not gaps:
        _number(entry_ids, first, count)
    return status, position, next_entry_id, count


@kernel
def frame_entries(values, value_offsets, entry_ids, first, last, block, position):
    """Write the entries `first` … `last` − 1 as frames into `block` from `position`; answers the end.

    `values` uint8 with the payloads one after another, `value_offsets` and `entry_ids` (of each of them) int64.
    Bounds: `position` lies in `block`, payloads in `values`, by `are_borders`; each frame is checked against what is
    left of `block`.
    """
    if not are_borders(value_offsets, first, last, len(values)) or last > len(entry_ids):
        raise IndexError("entries to be framed do not fit their payloads")
    if not 0 <= position <= len(block):
        raise IndexError("frames begin outside of their block")
    for i in range(first, last):
        length = np.int64(value_offsets[i + 1]) - np.int64(value_offsets[i])
        if length > min(len(block) - position - _FRAME, INT32_MAX):
            raise IndexError("a block has no room for a frame")
        store_i32(block, position, np.int32(length))
        store_i64(block, position + 4, entry_ids[i])
        copy_bytes(block, position + _FRAME, values, value_offsets[i], length)
        position += _FRAME + length
    return position


@kernel
def fill_padding(block, position, end):
    """Fill `block[position:end]` with the padding pattern from its own start.

    Bounds: 0 ≤ `position` ≤ `end` ≤ the block's length.
    """
    if not 0 <= position <= end <= len(block):
        raise IndexError("padding does not fit its block")
    while end - position >= 4:
        store_i32(block, position, np.int32(-19079507))
        position += 4
    start = position
    while position < end:
        block[position] = _PADDING_BYTES[position - start]
        position += 1


@kernel
def copy_kept(data, offsets, dropped, out, out_offsets):
    """Copy the payloads that are not `dropped` to `out`; answers how many.

    `data` uint8; `offsets` int64, one more than there are payloads, ascending and within `data`; `dropped` bool, of
    each. `out` has room for `offsets[-1] - offsets[0]` bytes; `out_offsets` (int64, as long as `offsets`) is filled
    up to one after the answer.
    Bounds: payloads lie in `data`, by `are_borders`; all of them fit `out`, and `out_offsets` has one more than there
    are payloads, so that what is kept of them fits as well.
    """
    count = len(dropped)
    if (
        not are_borders(offsets, 0, count, len(data))
        or offsets[count] - offsets[0] > len(out)
        or count >= len(out_offsets)
    ):
        raise IndexError("payloads to be copied do not fit their offsets or the output")
    kept, place = 0, np.int64(0)
    run = offsets[0]  # what is kept from there on is still to be copied to `place`
    out_offsets[0] = 0
    for i in range(count):
        if dropped[i]:
            copy_bytes(out, place, data, run, offsets[i] - run)
            place += offsets[i] - run
            run = offsets[i + 1]
        else:
            kept += 1
            out_offsets[kept] = place + offsets[i + 1] - run
    copy_bytes(out, place, data, run, offsets[count] - run)
    return kept


@kernel
def checksum_entries(array, offsets, lengths, checksum, seed):
    """Checksum of all payloads as if they lay one after another; that of none is `seed`.

    `array` uint8, `offsets` and `lengths` int64; `checksum` the address of CRC-32C (uint64), `seed` what it begins with
    (uint32).
    Bounds: a payload lies in `array`, or it is an `IndexError` before any of its bytes is read.
    """
    if len(offsets) != len(lengths):
        raise IndexError("each payload has a place and a length")
    for i in range(len(offsets)):
        if offsets[i] < 0 or not 0 <= lengths[i] <= len(array) - offsets[i]:
            raise IndexError("a payload is not within the array")
        seed = call_checksum(checksum, seed, address_of(array, offsets[i], lengths[i]), lengths[i])
    return seed
