"""Compiled walks over bookies' answers; the reference implementations are `bookie_frames` and `digests` of
`offload_core.format.codec.bookkeeper`.

At bytes that are not right a kernel does not raise: it stops at the first such entry and answers its number; the
reference implementation then names the fault. Every length is checked against the window before it is used. Arguments
that do not fit one another are an `IndexError`, before anything is read or written out of bounds.
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
)
from offload_core.format.kernel import kernel

ALL_FOUND = 0
"""The walk came to its end."""
BAD_BYTES = 1
"""What is at the answered place is no answer to what was asked, or no entry that it should be."""
FULL = 2
"""The next entry is one too many, or has bytes too many."""

NOT_ANSWERED = -1
DAMAGED = -2
"""In place of a bookie's code."""

_READ_ANSWER = 28
_READ_HEADER = 0x02020000
_HEAD = 32


@kernel
def find_in_batch(window, position, stop, offsets, lengths):
    """Where the stored entries of a batch answer are, whose first one's length is at `position`, up to `stop`.

    `window` uint8; outputs: `offsets` and `lengths` int64. Answers (status, count); `FULL` where there are more.
    Bounds: 0 ≤ `position` ≤ `stop` ≤ length of `window`; each length is read only if four bytes are left, and taken
    only if the rest holds it; `offsets` and `lengths` are written below their own lengths.
    """
    if not 0 <= position <= stop <= len(window):
        raise IndexError("an answer does not lie in its window")
    room = min(len(offsets), len(lengths))
    count = 0
    while position < stop:
        if stop - position < 4:
            return BAD_BYTES, count
        length = np.int64(load_i32(window, position))
        if length < 0 or length > stop - position - 4:
            return BAD_BYTES, count
        if count == room:
            return FULL, count
        offsets[count] = position + 4
        lengths[count] = length
        count += 1
        position += 4 + length
    return ALL_FOUND, count


@kernel
def find_answers(window, position, stop, ledger_id, first_entry_id, max_frame_bytes, codes, offsets, lengths):
    """Find the answers to single reads, which come in any order, in the frames from `position` to `stop`.

    Entry `first_entry_id` + i was asked for where `codes[i]` (int32) is `NOT_ANSWERED`; its code is written there, and
    where its stored entry is into `offsets` and `lengths` (int64). Answers (status, position after the last whole
    frame, number of answers).
    Bounds: 0 ≤ `position` ≤ `stop` ≤ length of `window`; a frame's header is read only if it lies before `stop`; i is
    checked against the lengths of all three outputs.
    """
    if not 0 <= position <= stop <= len(window):
        raise IndexError("answers do not lie in their window")
    room = min(len(codes), min(len(offsets), len(lengths)))
    count = 0
    while stop - position >= 4:
        length = np.int64(load_i32(window, position))
        if length < _READ_ANSWER - 4 or length > max_frame_bytes:
            return BAD_BYTES, position, count
        if length > stop - position - 4:
            return ALL_FOUND, position, count
        i = load_i64(window, position + 20) - first_entry_id
        if load_i32(window, position + 4) != _READ_HEADER or load_i64(window, position + 12) != ledger_id:
            return BAD_BYTES, position, count
        if i < 0 or i >= room or codes[i] != NOT_ANSWERED:
            return BAD_BYTES, position, count
        code = load_i32(window, position + 8)
        if code < 0:
            return BAD_BYTES, position, count
        codes[i] = code
        offsets[i] = position + _READ_ANSWER
        lengths[i] = length - (_READ_ANSWER - 4)
        count += 1
        position += 4 + length
    return ALL_FOUND, position, count


@kernel
def check_entries(
    window, codes, offsets, lengths, ledger_id, first_entry_id, payload_offset, checks_crc32c, checksum
):
    """Check the stored entries whose code is 0, and write `DAMAGED` as the code of those that are not right.

    `window` uint8, with entry `first_entry_id` + i at `offsets[i]`, `lengths[i]` bytes (int64); `codes` int32. The
    payload begins at `payload_offset` of an entry; `checks_crc32c`: whether its digest is CRC-32C, and is checked by
    the function at the address `checksum` (uint64). Answers the number of damaged entries.
    Bounds: all three arrays have the same length; an entry must lie in `window` and have `payload_offset` bytes, 36 at
    least where CRC-32C is checked.
    """
    if len(codes) != len(offsets) or len(codes) != len(lengths):
        raise IndexError("codes, offsets and lengths are not of the same entries")
    if payload_offset < _HEAD + (4 if checks_crc32c else 0):
        raise IndexError("a payload begins after its digest")
    damaged = 0
    for i in range(len(codes)):
        if codes[i] != 0:
            continue
        at = offsets[i]
        length = lengths[i]
        right = 0 <= at <= len(window) and payload_offset <= length <= len(window) - at
        if right:
            right = load_i64(window, at) == ledger_id and load_i64(window, at + 8) == first_entry_id + i
        if right and checks_crc32c:
            size = length - payload_offset
            found = call_checksum(checksum, np.uint32(0), address_of(window, at, _HEAD), _HEAD)
            found = call_checksum(checksum, found, address_of(window, at + payload_offset, size), size)
            right = found == load_u32(window, at + _HEAD)
        if not right:
            codes[i] = DAMAGED
            damaged += 1
    return damaged


@kernel
def join_payloads(window, offsets, lengths, payload_offset, values, value_offsets):
    """Copy the payloads of stored entries one after another; answers their bytes.

    Outputs: `values` uint8 and `value_offsets` int64, one more than entries; for the rest see `check_entries`.
    Bounds: each entry must lie in `window` and have `payload_offset` bytes; a payload is copied only if `values` has
    room; otherwise an `IndexError`.
    """
    if len(offsets) != len(lengths) or len(value_offsets) != len(offsets) + 1 or payload_offset < 0:
        raise IndexError("there is another number of offsets than of entries")
    used = np.int64(0)
    value_offsets[0] = 0
    for i in range(len(offsets)):
        at = offsets[i]
        size = lengths[i] - payload_offset
        if at < 0 or at > len(window) or size < 0 or lengths[i] > len(window) - at:
            raise IndexError("an entry does not lie in its window")
        if size > len(values) - used:
            raise IndexError("there is no room for a payload")
        copy_bytes(values, used, window, at + payload_offset, size)
        used += size
        value_offsets[i + 1] = used
    return used
