"""Entries found from the end of a block backwards.

Frames are linked forwards only. Backwards, a frame is taken if it ends exactly where the next one begins, has the id
before that one's, and its payload is an entry of Pulsar's, by its checksum where it has one. Arguments that do not fit
one another are an `IndexError`, before anything is read out of bounds.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.frames import _padding_is_right
from offload_core.format.codec.kernels.intrinsics import load_i32, load_i64
from offload_core.format.kernel import kernel
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.kernels.entries import read_entry

_FRAME = 12


@kernel
def find_last_entries(data, next_entry_id, least_entry_id, gaps, checksum, row):
    """Find the begin of the earliest frame in `data` that is linked to its end.

    `data` (uint8) ends with a block, its padding included, or where a frame begins. `next_entry_id` is one past the id
    of the last entry, −1 if that is not known; no entry has an id below `least_entry_id`. With `gaps` ids need not be
    consecutive. `checksum` and `row` as of `read_entry`. Answers (begin, its entry's id); (the length of `data`,
    `next_entry_id`) if there is none.
    Bounds: a frame's head is read from 0 ≤ `position` ≤ the length − 12 on; its payload, and padding, lie before `end`.
    """
    if len(row) < f.E_FIELDS:
        raise IndexError("a table's rows are too short")
    least_entry_id = max(least_entry_id, np.int64(0))
    end = np.int64(len(data))
    found = end
    position = end - _FRAME
    while position >= 0 and (next_entry_id < 0 or next_entry_id > least_entry_id):
        is_one_id = next_entry_id >= 0 and not gaps
        if is_one_id:  # most positions differ in its last byte already
            last_byte = np.uint8((next_entry_id - 1) & 0xFF)
            while position >= 0 and data[position + _FRAME - 1] != last_byte:
                position -= 1
            if position < 0:
                break
        entry_id = load_i64(data, position + 4)
        if not is_one_id:
            fits = entry_id >= least_entry_id and (next_entry_id < 0 or entry_id < next_entry_id)
        else:
            fits = entry_id == next_entry_id - 1
        begin = position + _FRAME
        length = np.int64(load_i32(data, position)) if fits else np.int64(-1)
        if 0 <= length <= end - begin:
            stop = begin + length
            linked = stop == end or (end == len(data) and _padding_is_right(data, stop, end))
            if linked and read_entry(data, begin, stop, checksum, row):
                found, end, next_entry_id = position, position, entry_id
                position = end - _FRAME
                continue
        position -= 1
    return found, next_entry_id
