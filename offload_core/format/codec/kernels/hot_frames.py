"""Compiled walks over the frames of a ledger file; the reference implementation is
`offload_core.storage.hot.ledger_frames`.

At bytes that are not right a kernel does not raise: it stops at the first such frame and answers its position; the
reference implementation then names the fault. Every length is checked against the window before it is used. Arguments
that do not fit one another are an `IndexError`, before anything is read or written out of bounds.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.frames import INT32_MAX, are_borders
from offload_core.format.codec.kernels.intrinsics import (
    address_of,
    call_checksum,
    copy_bytes,
    load_i64,
    load_u32,
    store_i32,
    store_i64,
)
from offload_core.format.kernel import kernel

PASSED = 0
"""The walk came to where it was to stop."""
BAD_FRAME = 1
"""The bytes at the answered position are not the frame of the next entry."""
CUT_OFF = 2
"""The frame or padding at the answered position goes on after the window."""
FULL = 3
"""The next entry is one too many, or has bytes too many."""

_HEAD = 16


@kernel(inline=True)
def _frame_length(window, position, entry_id, max_bytes, checksum, seed):
    """Payload bytes of the frame at `position`, which must be that of `entry_id`; else minus a status.

    Bounds: reads a head, and then a payload, only if the window holds it from `position` on. The caller has checked
    that `position` ≥ 0.
    """
    remaining = len(window) - position
    if remaining < _HEAD:
        return np.int64(-CUT_OFF)
    length = np.int64(load_u32(window, position + 4))
    if length > max_bytes or load_i64(window, position + 8) != entry_id:
        return np.int64(-BAD_FRAME)
    if length > remaining - _HEAD:
        return np.int64(-CUT_OFF)
    found = call_checksum(
        checksum, seed, address_of(window, position + 4, length + _HEAD - 4), length + _HEAD - 4
    )
    if found != load_u32(window, position):
        return np.int64(-BAD_FRAME)
    return length


@kernel
def pass_frames(window, position, stop, entry_id, stop_entry_id, max_bytes, checksum, seed):
    """Check frames until one begins at or after `stop`, or is that of `stop_entry_id`.

    `window` uint8; `checksum` the address of CRC-32C (uint64), `seed` what it begins with (uint32). Answers (status,
    position, entry id, payload bytes passed).
    Bounds: `position` ≥ 0, and each frame by `_frame_length`.
    """
    if position < 0:
        raise IndexError("a walk begins before its window")
    passed = np.int64(0)
    while position < stop and entry_id < stop_entry_id:
        length = _frame_length(window, position, entry_id, max_bytes, checksum, seed)
        if length < 0:
            return -length, position, entry_id, passed
        passed += length
        entry_id += 1
        position += _HEAD + length
    return PASSED, position, entry_id, passed


@kernel
def copy_frames(
    window, position, entry_id, stop_entry_id, max_bytes, checksum, seed, byte_room, values, value_offsets
):
    """Check frames and copy their payloads one after another, up to `stop_entry_id`.

    No further one once they would have more than `byte_room` bytes. Outputs: `values` uint8, as long as the window has
    bytes left, and `value_offsets` int64. Answers (status, position, count).
    Bounds: each frame by `_frame_length`; a payload is copied only if `values` and `value_offsets` have room for it.
    """
    if position < 0 or len(value_offsets) < 1:
        raise IndexError("a walk begins before its window, or has no room for offsets")
    value_room = min(byte_room, len(values))
    count = 0
    used = np.int64(0)
    value_offsets[0] = 0
    while entry_id + count < stop_entry_id:
        length = _frame_length(window, position, entry_id + count, max_bytes, checksum, seed)
        if length < 0:
            return -length, position, count
        if count + 1 == len(value_offsets) or used + length > value_room:
            return FULL, position, count
        copy_bytes(values, used, window, position + _HEAD, length)
        used += length
        count += 1
        value_offsets[count] = used
        position += _HEAD + length
    return PASSED, position, count


@kernel
def frame_entries(values, value_offsets, first, last, first_entry_id, checksum, seed, frames):
    """Write the entries `first` … `last` − 1 as frames to the beginning of `frames` (uint8); answers the end.

    `values` uint8 with the payloads one after another, `value_offsets` int64; entry `first` has the id
    `first_entry_id`.
    Bounds: payloads lie in `values`, by `are_borders`; each frame is checked against what is left of `frames`.
    """
    if not are_borders(value_offsets, first, last, len(values)):
        raise IndexError("entries to be framed do not fit their payloads")
    position = np.int64(0)
    for i in range(first, last):
        length = value_offsets[i + 1] - value_offsets[i]
        if length > min(len(frames) - position - _HEAD, INT32_MAX):
            raise IndexError("there is no room for a frame")
        store_i32(frames, position + 4, np.int32(length))
        store_i64(frames, position + 8, first_entry_id + (i - first))
        copy_bytes(frames, position + _HEAD, values, value_offsets[i], length)
        found = call_checksum(
            checksum, seed, address_of(frames, position + 4, length + _HEAD - 4), length + _HEAD - 4
        )
        store_i32(frames, position, np.int32(found))
        position += _HEAD + length
    return position
