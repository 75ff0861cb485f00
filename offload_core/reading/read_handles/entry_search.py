"""Find a range of entries in the blocks of one object, and read as little as that takes.

A block is walked from the nearest place where a frame is known to begin: its own first frame, the end of the last read,
one that an earlier walk has passed, or one of the object's entry directory. The begin of a frame is never guessed: a
payload may hold bytes that look like frames. Bytes come in windows: the data object cut at multiples of the read
buffer, each fetched by one range. All readers of the process share windows; bytes larger than one are not kept.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from offload_core.format.codec.arrays import Bytes, LocatedEntries, Longs, read_only
from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, FRAME_HEADER_BYTES, walk_frames
from offload_core.format.codec.blocks import header_faults
from offload_core.format.codec.entry_directory import (
    Anchors,
    first_of_each_stride,
    no_anchors,
    parse_directory,
)
from offload_core.format.codec.extent import EntryCursor
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.kernels import frames as kernels
from offload_core.reading.read_handles.cold_copy import ColdExtent
from offload_core.reading.read_handles.read_memory import Fetch, ReadMemory
from offload_hooks.errors import EntryOrderError, FormatError, placed

WALK_WINDOWS = 8
"""The number of windows that one range reads where a walk only passes over them."""


class Windows:
    """Reads an extent's data object.

    Args:
        window_bytes: how long each window is, but the last.
    """

    def __init__(self, extent: ColdExtent, memory: ReadMemory, window_bytes: int) -> None:
        self.extent = extent
        self._memory = memory
        self.window_bytes = window_bytes

    def read(self, offset: int, stop: int, *, ahead: bool = False) -> memoryview:
        """Read from `offset` to the end of its window, or to `stop`; with `ahead` the next window is sent for."""
        number = offset // self.window_bytes
        begin = number * self.window_bytes
        data = self._memory.window(*self._window(number))
        if ahead and begin + self.window_bytes < self.extent.data_length:
            self._memory.prefetch(*self._window(number + 1))
        return data[offset - begin : stop - begin]

    def read_past(self, offset: int, stop: int) -> memoryview:
        """Read exactly these bytes, and do not keep them."""
        return self.extent.tier.read_range(self.extent.data_key, offset, stop - offset)

    def _window(self, number: int) -> tuple[Hashable, int, Fetch]:
        begin = number * self.window_bytes
        end = min(begin + self.window_bytes, self.extent.data_length)
        key = (self.extent.token, self.window_bytes, number)
        return key, end - begin, partial(self.read_past, begin, end)


class FrameHead(NamedTuple):
    """The begin of a frame that is cut off by the end of what was read: its entry, its length with the head."""

    entry_id: int
    frame_bytes: int


class BlockBytes:
    """A part of a block that moves on with a walk: `array` (uint8), whose first byte is the object's byte `base`."""

    def __init__(self, windows: Windows, block: IndexedBlock, begin: int, *, ahead: bool) -> None:
        self._windows = windows
        self._ahead = ahead
        self.block_end = block.offset + block.length
        self.base = begin
        self.array: Bytes = read_only(b"")

    def drop(self, count: int) -> None:
        """Drop this many bytes."""
        self.array, self.base = self.array[count:], self.base + count

    def frame_head(self, at: int) -> FrameHead | None:
        """The frame at `at`; None if not even its head is there, or it is the block's padding."""
        head = self.array[at : at + FRAME_HEADER_BYTES].tobytes()
        length = int.from_bytes(head[:4], "big", signed=True)
        if len(head) < FRAME_HEADER_BYTES or length < 0:
            return None
        return FrameHead(int.from_bytes(head[4:], "big", signed=True), FRAME_HEADER_BYTES + length)

    def is_far(self, at: int) -> bool:
        """True if a place is so far after the bytes read that those between need not be fetched."""
        return at > len(self.array) + self._windows.window_bytes

    def jump(self, at: int) -> None:
        """Go on at a place after the bytes read."""
        self.base += at
        self.array = read_only(b"")

    def extend(self, at: int, *, far: int | None = None) -> None:
        """Drop what is before `at`, and read on: to the end of the next window.

        `far`: bytes before this place of the object are only walked over. Then more is read by one range, but
        for the first window, in which the walk may end.
        """
        begin = self.base + len(self.array)
        if far is not None and len(self.array) and far - begin > 2 * self._windows.window_bytes:
            stop = min(far, begin + WALK_WINDOWS * self._windows.window_bytes)
            self._append(at, self._windows.read_past(begin, stop))
        else:
            self._append(at, self._windows.read(begin, self.block_end, ahead=self._ahead))

    def reach(self, at: int, count: int) -> None:
        """Drop what is before `at`, and read on until `count` bytes are there, which the block has."""
        self.drop(at)
        while (missing := count - len(self.array)) > 0:
            begin = self.base + len(self.array)
            if missing > self._windows.window_bytes:
                self._append(0, self._windows.read_past(begin, begin + missing))
            else:
                self._append(0, self._windows.read(begin, self.block_end, ahead=self._ahead))

    def _append(self, at: int, data: memoryview) -> None:
        rest = self.array[at:]
        self.base += at
        self.array = (
            read_only(data) if not len(rest) else read_only(np.concatenate([rest, read_only(data)]).data)
        )


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The begin of a walk.

    Attributes:
        entry_id: the least entry that can stand there; that very one if `is_exact`.
        place: the byte in the object.
        is_block_begin: a block's header stands there, and then the entry.
        walk_to: the next known place after the entry that is searched for, or the block's end.
    """

    entry_id: int
    place: int
    is_exact: bool
    is_block_begin: bool
    walk_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEnd:
    """The end of a read: before the frame of `entry_id`, or of the next one that exists."""

    token: Hashable
    block_offset: int
    entry_id: int
    place: int


class KnownPlaces:
    """The known places of the objects of one ledger."""

    def __init__(self, memory: ReadMemory, window_bytes: int) -> None:
        self._memory = memory
        self._window_bytes = window_bytes
        self.last_end: ReadEnd | None = None

    def start(self, extent: ColdExtent, block: IndexedBlock, entry_id: int) -> Start:
        """The place to begin to walk to this entry of the block."""
        last = self.last_end
        nearest = (block.first_entry_id, block.offset)
        is_anchor = False
        in_block = last is not None and (last.token, last.block_offset) == (extent.token, block.offset)
        if last is not None and in_block and nearest[0] < last.entry_id <= entry_id:
            nearest = (last.entry_id, last.place)
        block_end = block.offset + block.length
        walk_to = block_end
        if entry_id > nearest[0] and block_end - nearest[1] > self._window_bytes:
            anchors = self._anchors(extent)
            known = anchors.before(entry_id)
            if known is not None and known[0] > nearest[0] and block.offset < known[1] < block_end:
                nearest, is_anchor = known, True
            walk_to = min(anchors.behind(entry_id) or block_end, block_end)
        return Start(
            entry_id=nearest[0],
            place=nearest[1],
            is_exact=is_anchor,
            is_block_begin=nearest[1] == block.offset,
            walk_to=walk_to,
        )

    def passed(self, extent: ColdExtent, entry_ids: Longs, frames: Longs) -> None:
        """A walk has passed these entries, which follow one another; their frames begin at these places."""
        key = _key(extent)
        known = self._memory.anchors(key)
        if extent.directory is not None and (known is None or len(known.entry_ids)):
            return
        new = first_of_each_stride(entry_ids, frames, self._window_bytes)
        if known is not None:
            new = _in_other_strides(new, known, self._window_bytes)
        if len(new.entry_ids):
            self._memory.learn(key, new)

    def _anchors(self, extent: ColdExtent) -> Anchors:
        key = _key(extent)
        known = self._memory.anchors(key)
        if known is None and extent.directory is not None:
            known = _read_directory(extent)
            self._memory.learn(key, known)
        return no_anchors() if known is None else known


def _key(extent: ColdExtent) -> Hashable:
    return (extent.token, extent.ledger_id)


def _in_other_strides(new: Anchors, known: Anchors, stride_bytes: int) -> Anchors:
    """The anchors of `new` in strides of the object that have no known anchor."""
    begins = new.offsets // stride_bytes * stride_bytes
    first, last = (np.searchsorted(known.offsets, each) for each in (begins, begins + stride_bytes))
    fresh = first == last
    return Anchors(entry_ids=new.entry_ids[fresh], offsets=new.offsets[fresh])


def _read_directory(extent: ColdExtent) -> Anchors:
    """The object's directory; nothing if it is damaged, for it is an aid."""
    place = extent.directory
    assert place is not None
    data = extent.tier.read_range(extent.object_key.index_key, place.offset, place.length)
    try:
        return parse_directory(data, extent.data_length)
    except FormatError as error:
        _log.warning("the entry directory of %s is not used: %s", extent.object_key.index_key, error)
        return no_anchors()


_AT_ONCE = 16384
_ANY_BYTES = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtentBlock:
    """A block of an extent, with its bytes. From `stop_entry_id` on, if it is set, the next extent counts."""

    windows: Windows
    block: IndexedBlock
    stop_entry_id: int | None

    @property
    def extent(self) -> ColdExtent:
        """The extent."""
        return self.windows.extent


def read_block(
    of: ExtentBlock, places: KnownPlaces, first_entry_id: int, stop_entry_id: int, *, ahead: bool = False
) -> Iterator[LocatedEntries]:
    """The block's entries from `first_entry_id` to below `stop_entry_id`, as far as they exist, in order.

    Args:
        ahead: the next window is fetched meanwhile.

    Raises:
        FormatError: with object, ledger, block, entry and byte.
        StoreError: the tier fails.
    """
    extent, block = of.extent, of.block
    for end in (of.stop_entry_id, block.end_entry_id):
        stop_entry_id = stop_entry_id if end is None else min(stop_entry_id, end)
    if not block.length:
        return
    with placed(key=extent.data_key, ledger_id=extent.ledger_id, block=block.part_number):
        if extent.sequence_file is not None:
            yield from _read_mapfile(of, first_entry_id, stop_entry_id, ahead)
            return
        start = places.start(extent, block, first_entry_id)
        yield from _walk(of, places, start, first_entry_id, stop_entry_id, ahead)


def _walk(
    of: ExtentBlock, places: KnownPlaces, start: Start, first: int, stop: int, ahead: bool
) -> Iterator[LocatedEntries]:
    extent, block = of.extent, of.block
    entry_id, exact = start.entry_id, start.is_exact
    data = BlockBytes(of.windows, block, start.place, ahead=ahead)
    if start.is_block_begin:
        data.reach(0, BLOCK_HEADER_BYTES)
        for fault in header_faults(data.array.data, extent.object_format, extent.ledger_id, block):
            raise fault
        data.drop(BLOCK_HEADER_BYTES)
    at = 0
    columns = tuple(np.empty(_AT_ONCE, dtype=np.int64) for _ in range(3))
    while True:
        target = first if entry_id < first else stop
        room = 1 if exact else _AT_ONCE  # exactly that entry begins here
        status, at, entry_id, count = kernels.find_entries(
            data.array,
            at,
            data.block_end - data.base,
            entry_id,
            target,
            extent.marks.has_gaps and not exact,
            _ANY_BYTES,
            *(column[:room] for column in columns),
        )
        at, entry_id, count = int(at), int(entry_id), int(count)
        if count:
            exact = False
            ids, offsets, lengths = (column[:count].copy() for column in columns)
            places.passed(extent, ids, offsets + (data.base - FRAME_HEADER_BYTES))
            if target == stop:
                yield LocatedEntries(data.array, data.base, ids, offsets, lengths)
        if status == kernels.OUT_OF_ROOM or (status == kernels.BAD_FRAME and count):
            if entry_id >= stop:
                _check_after(of, data.frame_head(at), data.base + at)
                return
        elif status == kernels.ALL_READ:
            _check_end(of, entry_id, data.base + at)
            return
        elif status == kernels.BAD_FRAME:
            _explain(data, at, entry_id, gaps=extent.marks.has_gaps and not exact)
        else:
            head = data.frame_head(at)
            if head is not None and head.entry_id >= stop:
                _check_after(of, head, data.base + at)
                return
            if head is not None and head.entry_id >= first:
                data.reach(at, head.frame_bytes)
            elif head is not None and data.is_far(at + head.frame_bytes):
                data.jump(at + head.frame_bytes)
                entry_id, exact = head.entry_id + 1, False
            else:
                data.extend(at, far=start.walk_to if entry_id < first else None)
            at = 0


def _check_after(of: ExtentBlock, head: FrameHead | None, place: int) -> None:
    """Check, if ids may be missing, that the frame after a read, if fetched, is of an entry that the block can have."""
    end = of.block.end_entry_id
    if head is None or end is None or head.entry_id < end or not of.extent.marks.has_gaps:
        return
    raise EntryOrderError(
        "an entry has an id that its block cannot have",
        entry_id=head.entry_id,
        offset=place,
        expected=f"entries up to {end - 1}",
        found=f"entry id {head.entry_id}",
    )


def _check_end(of: ExtentBlock, entry_id: int, place: int) -> None:
    """Check that a block ends with the entry that its index states, unless entries were left out on purpose."""
    end = of.block.end_entry_id
    if of.extent.marks.has_gaps or entry_id == end or (end is None and entry_id > of.block.first_entry_id):
        return
    raise EntryOrderError(
        "a block does not end with the entry that its index says",
        entry_id=entry_id,
        offset=place,
        expected="an entry" if end is None else f"entries up to {end - 1}",
        found=f"the end after entry {entry_id - 1}",
    )


def _explain(data: BlockBytes, at: int, entry_id: int, *, gaps: bool) -> None:
    for _ in walk_frames(
        data.array.data, at, data.block_end - data.base, entry_id, block_offset=data.base, gaps=gaps
    ):
        break
    raise AssertionError("the kernel refuses a frame that the reference implementation accepts")


def _read_mapfile(of: ExtentBlock, first: int, stop: int, ahead: bool) -> Iterator[LocatedEntries]:
    block, place = of.block, of.block.offset
    end = block.offset + block.length
    cursor = EntryCursor(replace(of.extent, begin_entry_id=first, stop_entry_id=stop))
    while place < end and (place == block.offset or not cursor.block_is_done):
        data = of.windows.read(place, end, ahead=ahead)
        cursor.feed(block, data, place)
        place += len(data)
        for located in cursor.located():
            columns = (located.entry_ids, located.offsets, located.lengths)
            yield LocatedEntries(located.array, None, *(column.copy() for column in columns))
