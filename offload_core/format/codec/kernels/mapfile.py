"""Compiled walks over the records of a SequenceFile; the reference implementations are in
`offload_core.format.codec.mapfile`.

At bytes that are not right a kernel does not raise: it stops at the first such thing and answers its position with
`BAD_FRAME`; the reference implementation then names the fault. Every length is checked before it is used. Arguments
that do not fit one another are an `IndexError`, before anything is read or written out of bounds.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.c_functions import INFLATED
from offload_core.format.codec.kernels.frames import ALL_READ, BAD_FRAME, CUT_OFF, INT32_MAX, OUT_OF_ROOM
from offload_core.format.codec.kernels.intrinsics import (
    address_of,
    call_checksum,
    call_inflate,
    copy_bytes,
    load_i32,
    load_i64,
    store_i32,
)
from offload_core.format.kernel import kernel

_KEY = 8
_RECORD_HEAD = 16
_SYNC_MARK = 20
_MARK_OF_NEGATIVES = 136
"""First bytes of a variable-length integer: below, 128 … 135 and from 144 on it is negative; 136 … 143: positive, of
as many bytes more as are missing to 144."""


@kernel
def locate_records(window, position, end, sync, previous_key, room, byte_room, keys, offsets, lengths):
    """Find the values of the next records; reference implementation: `walk_records`.

    At most `room` of them; no further one once they have reached `byte_room` bytes. `window` uint8 from the stretch,
    which ends at `end` of it; `sync` 16 bytes uint8; `keys`, `offsets`, `lengths` int64 (outputs). Answers (status,
    position, count).
    Bounds: `count` < `room`, which is no more than the outputs' lengths; whatever is read of a record is checked
    against `have`, the bytes of the window.
    """
    if position < 0 or len(sync) < 16:
        raise IndexError("a walk begins before its window, or without a sync mark")
    room = min(room, len(keys), len(offsets), len(lengths))
    count = 0
    used = np.int64(0)
    have = np.int64(len(window))
    while position < end:
        if count == room or used >= byte_room:
            return OUT_OF_ROOM, position, count
        at = np.int64(position)
        if end - at < 4:
            return BAD_FRAME, position, count
        if have - at < 4:
            return CUT_OFF, position, count
        length = np.int64(load_i32(window, at))
        if length == -1:
            if end - at < _SYNC_MARK:
                return BAD_FRAME, position, count
            if have - at < _SYNC_MARK:
                return CUT_OFF, position, count
            for i in range(16):
                if window[at + 4 + i] != sync[i]:
                    return BAD_FRAME, position, count
            at += _SYNC_MARK
            if at == end:
                return ALL_READ, at, count
            if end - at < 4:
                return BAD_FRAME, position, count
            if have - at < 4:
                return CUT_OFF, position, count
            length = np.int64(load_i32(window, at))
        if length < _KEY or length > end - at - 8:
            return BAD_FRAME, position, count
        if have - at < 8:
            return CUT_OFF, position, count
        if load_i32(window, at + 4) != _KEY:
            return BAD_FRAME, position, count
        if have - at < _RECORD_HEAD:
            return CUT_OFF, position, count
        key = load_i64(window, at + 8)
        if key <= previous_key:
            return BAD_FRAME, position, count
        if have - at < 8 + length:
            return CUT_OFF, position, count
        keys[count] = key
        offsets[count] = at + _RECORD_HEAD
        lengths[count] = length - _KEY
        used += length - _KEY
        previous_key = key
        count += 1
        position = at + 8 + length
    return ALL_READ, position, count


@kernel
def inflate_values(inflate, decompressor, window, offsets, lengths, enough, out, sizes, counts):
    """Inflate zlib streams of `window` (uint8) one after another into `out` (uint8); reference implementation:
    `inflate`.

    `inflate` and `decompressor`: addresses, see `c_functions`. `offsets` and `lengths` int64, inside the window;
    `sizes` int64 (output): bytes of each when inflated; `counts` two uint64 to work with. Stops at the first stream
    that is not right, or for which `out` has no room, or once they have `enough` bytes. Answers how many it inflated.
    Bounds: each stream is checked against the window before the call, which writes at most what is left of `out`, and
    two numbers to `counts`; `lengths` and `sizes` have as many as `offsets`.
    """
    if len(lengths) < len(offsets) or len(sizes) < len(offsets) or len(counts) < 2:
        raise IndexError("streams to be inflated do not fit the output")
    used = np.int64(0)
    for i in range(len(offsets)):
        if offsets[i] < 0 or not 0 <= lengths[i] <= len(window) - offsets[i]:
            raise IndexError("a stream to be inflated is not in the window")
        status = call_inflate(
            inflate,
            decompressor,
            address_of(window, offsets[i], lengths[i]),
            np.uint64(lengths[i]),
            address_of(out, used, len(out) - used),
            np.uint64(len(out) - used),
            np.uint64(counts.ctypes.data),
            np.uint64(counts.ctypes.data) + np.uint64(8),
        )
        if status != INFLATED or counts[0] != lengths[i]:
            return i
        sizes[i] = counts[1]
        used += sizes[i]
        if used >= enough:
            return i + 1
    return len(offsets)


@kernel
def make_checksums(crc32, data, chunk_bytes, checksums):
    """The CRC-32 of each `chunk_bytes` bytes of `data` (uint8), big-endian into `checksums` (uint8, four bytes each).

    `crc32` is the address of a function, see `c_functions`. The last chunk may be shorter.
    Bounds: there are no more checksums than chunks that begin in `data`.
    """
    if chunk_bytes < 1 or len(checksums) // 4 > (len(data) + chunk_bytes - 1) // chunk_bytes:
        raise IndexError("more checksums than chunks")
    for i in range(len(checksums) // 4):
        begin = np.int64(i) * chunk_bytes
        length = min(chunk_bytes, len(data) - begin)
        crc = call_checksum(crc32, np.uint32(0), address_of(data, begin, length), length)
        store_i32(checksums, 4 * np.int64(i), np.int32(crc))


@kernel
def open_values(array, offsets, lengths):
    """Turn the places of `BytesWritable` values into those of the bytes in them; reference implementation:
    `open_value`.

    `offsets` and `lengths` int64 (in and out), inside `array` (uint8). Answers how many were right.
    Bounds: a value that is not in `array` is not right; `lengths` has as many as `offsets`.
    """
    if len(lengths) < len(offsets):
        raise IndexError("values have no lengths")
    for i in range(len(offsets)):
        if offsets[i] < 0 or lengths[i] > len(array) - offsets[i]:
            return i
        if lengths[i] < 4 or load_i32(array, offsets[i]) != lengths[i] - 4:
            return i
        offsets[i] += 4
        lengths[i] -= 4
    return len(offsets)


@kernel
def copy_values(array, offsets, lengths, room, values, value_offsets):
    """Copy at most `room` values one after another into `values`, as Arrow's binary layout has them; how many.

    `value_offsets` int32 gets their borders.
    Bounds: `room` is no more than the arrays' lengths, each value is checked against `array`, and against what is left
    of `values` as far as an int32 can hold its end.
    """
    if len(value_offsets) < 1 or room > min(len(offsets), len(lengths), len(value_offsets) - 1):
        raise IndexError("values to be copied do not fit the output")
    used = np.int64(0)
    value_room = min(len(values), INT32_MAX)
    value_offsets[0] = 0
    for i in range(room):
        if offsets[i] < 0 or not 0 <= lengths[i] <= len(array) - offsets[i]:
            raise IndexError("a value to be copied is not in its array")
        if lengths[i] > value_room - used:
            return i
        copy_bytes(values, used, array, offsets[i], lengths[i])
        used += lengths[i]
        value_offsets[i + 1] = used
    return room


@kernel
def read_lengths(data, lengths):
    """Read `len(lengths)` variable-length integers; reference implementation: `read_lengths_plainly`.

    Stops at one that is negative, has more than 31 bits or is cut off. Answers (how many, where it stopped).
    Bounds: each byte's place is checked against `have` before it is read.
    """
    position = np.int64(0)
    have = np.int64(len(data))
    for i in range(len(lengths)):
        if position >= have:
            return i, position
        first = np.int64(data[position])
        if first < 128:
            lengths[i] = first
            position += 1
            continue
        if first < _MARK_OF_NEGATIVES or first >= 144:
            return i, position
        follow = 144 - first
        if have - position <= follow:
            return i, position
        value = np.uint64(0)
        for j in range(follow):
            value = (value << np.uint64(8)) | np.uint64(data[position + 1 + j])
        if value >= np.uint64(1 << 31):
            return i, position
        lengths[i] = np.int64(value)
        position += 1 + follow
    return len(lengths), position
