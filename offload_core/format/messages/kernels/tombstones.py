"""Tombstones in the place of entries that are dropped, the others copied, run by run.

At an entry that is not right a kernel does not raise: it stops there. The reference implementation is
`entry.pack_tombstone`. Arguments that do not fit one another are an `IndexError`, before anything is read or written
out of bounds.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.frames import are_borders
from offload_core.format.codec.kernels.intrinsics import (
    address_of,
    call_checksum,
    copy_bytes,
    load_i32,
    load_u32,
    store_i32,
)
from offload_core.format.kernel import kernel
from offload_core.format.messages.kernels.entries import read_entry
from offload_core.format.messages.kernels.entry_fields import E_MARKER_TYPE, E_PUBLISH_TIME

_BROKER_MAGIC = np.uint32(0x0E02)
_CHECKSUM_BYTES = 6
_LENGTH_BYTES = 4
_VARINT_BYTES = 10


@kernel
def replace(data, offsets, dropped, checksum, before, after, row, out, out_offsets):
    """Copy entries to `out`, a tombstone in the place of each that is `dropped`, but for markers, which stay.

    `data` uint8; `offsets` int64, one more than there are entries, ascending and within `data`; `dropped` bool, one per
    entry: of a marker it is set to false. A tombstone's metadata is `before`, its entry's publish time as a varint,
    `after` (uint8). `row` is int64 scratch, `E_FIELDS` long; `checksum` as of `read_entry`, not 0. `out` has room
    for all entries and a tombstone for each that is dropped; `out_offsets` (int64) is filled as `offsets` is. What a
    broker put before an entry stays there.
    Answers how many entries are done before the first dropped one that is not right.
    Bounds: entries lie in `data`, by `are_borders`; before each copy and each tombstone, what is left of `out` is
    checked for both.
    """
    count = len(dropped)
    if not are_borders(offsets, 0, count, len(data)) or count >= len(out_offsets):
        raise IndexError("entries do not fit their offsets or the output")
    most = _CHECKSUM_BYTES + _LENGTH_BYTES + len(before) + _VARINT_BYTES + len(after)
    run, place = offsets[0], np.int64(0)  # what is kept from `run` on is still to be copied to `place`
    for i in range(count):
        out_offsets[i] = place + offsets[i] - run
        if not dropped[i]:
            continue
        start, end = offsets[i], offsets[i + 1]
        if not read_entry(data, start, end, checksum, row):
            return i
        if row[E_MARKER_TYPE] >= 0:
            dropped[i] = False
            continue
        if end - start >= _CHECKSUM_BYTES and load_u32(data, start) >> 16 == _BROKER_MAGIC:
            start += _CHECKSUM_BYTES + load_i32(data, start + 2)
        if start - run > len(out) - place - most:
            raise IndexError("a tombstone has no room")
        copy_bytes(out, place, data, run, start - run)
        place = _write_tombstone(out, place + start - run, row[E_PUBLISH_TIME], checksum, before, after)
        run = end
    if offsets[count] - run > len(out) - place:
        raise IndexError("entries have no room")
    copy_bytes(out, place, data, run, offsets[count] - run)
    out_offsets[count] = place + offsets[count] - run
    return count


@kernel
def _write_tombstone(out, start, publish_time, checksum, before, after):
    """Write one; answers its end.

    Bounds: `replace` has checked the room for the most that it can take, with ten bytes of a varint.
    """
    body = start + _CHECKSUM_BYTES
    metadata = body + _LENGTH_BYTES
    copy_bytes(out, metadata, before, 0, len(before))
    place = metadata + len(before)
    rest = np.uint64(publish_time)
    while rest >= 128:
        out[place] = np.uint8(rest & np.uint64(127) | np.uint64(128))
        rest >>= np.uint64(7)
        place += 1
    out[place] = np.uint8(rest)
    copy_bytes(out, place + 1, after, 0, len(after))
    place += 1 + len(after)
    store_i32(out, body, np.int32(place - metadata))
    found = call_checksum(checksum, np.uint32(0), address_of(out, body, place - body), place - body)
    out[start], out[start + 1] = 0x0E, 0x01
    store_i32(out, start + 2, np.int32(found))
    return place
