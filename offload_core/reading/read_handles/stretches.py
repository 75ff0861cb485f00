"""The entries of one block, or of one stretch of a MapFile, from any of them on, wherever its bytes have to be read.

A block is walked from the nearest place that is known to be a frame's begin: its own first frame, where the last read
ended, one that an earlier walk has passed, or one of the object's entry directory. Where a frame begins is never
guessed: a payload may hold what looks like frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from offload_core.format.codec.block_header import BLOCK_HEADER_BYTES
from offload_core.format.codec.blocks import find_header_faults
from offload_core.format.codec.byte_arrays import Bytes
from offload_core.format.codec.cursor import open_cursor
from offload_core.format.codec.entry_directory import Longs
from offload_core.format.codec.frames import FRAME_HEADER_BYTES, walk_frames
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.kernels import frames as kernels
from offload_core.reading.read_handles.cold_copy import ColdPiece
from offload_core.reading.read_handles.known_places import KnownPlaces, Start
from offload_core.reading.read_handles.windows import BlockBytes, FrameHead, Windows
from offload_hooks.errors import EntryOrderError, placed

_AT_ONCE = 16384
_ANY_BYTES = 1 << 40


class Located(NamedTuple):
    """Entries in order, ids ascending: the payload of the i-th is `array[offsets[i] : offsets[i] + lengths[i]]`.

    `base` is the place of `array` in the data object; None if it holds no bytes of it, but inflated ones.
    """

    entry_ids: Longs
    array: Bytes
    offsets: Longs
    lengths: Longs
    base: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A block of a piece, whose bytes `windows` read. From `stop_entry_id` on, if it is set, another piece counts."""

    piece: ColdPiece
    windows: Windows
    block: IndexedBlock
    stop_entry_id: int | None


def read_stretch(
    stretch: Stretch,
    places: KnownPlaces,
    first_entry_id: int,
    stop_entry_id: int,
    *,
    ahead: bool = False,
) -> Iterator[Located]:
    """The stretch's entries from `first_entry_id` to below `stop_entry_id`, those that there are, in order.

    Args:
        ahead: the next window is fetched meanwhile.

    Raises:
        FormatError: with object, ledger, block, entry and byte.
        StoreError: the tier fails.
    """
    piece, block = stretch.piece, stretch.block
    for end in (stretch.stop_entry_id, block.end_entry_id):
        stop_entry_id = stop_entry_id if end is None else min(stop_entry_id, end)
    if not block.length:
        return
    with placed(key=piece.key.data_key, ledger_id=piece.ledger.ledger_id, block=block.part_number):
        if piece.sequence_file is not None:
            yield from _read_mapfile(stretch, first_entry_id, stop_entry_id, ahead)
            return
        start = places.start(piece, block, first_entry_id)
        yield from _walk(stretch, places, start, first_entry_id, stop_entry_id, ahead)


def _walk(
    stretch: Stretch,
    places: KnownPlaces,
    start: Start,
    first: int,
    stop: int,
    ahead: bool,
) -> Iterator[Located]:
    piece, block = stretch.piece, stretch.block
    entry_id, exact = start.entry_id, start.is_exact
    data = BlockBytes(stretch.windows, block, start.place, ahead=ahead)
    if start.is_block_begin:
        data.reach(0, BLOCK_HEADER_BYTES)
        for fault in find_header_faults(data.array.data, piece.object_format, piece.ledger.ledger_id, block):
            raise fault
        data.drop(BLOCK_HEADER_BYTES)
    at = 0
    columns = tuple(np.empty(_AT_ONCE, dtype=np.int64) for _ in range(3))
    while True:
        target = first if entry_id < first else stop
        room = 1 if exact else _AT_ONCE  # what is known to begin here is exactly that entry
        status, at, entry_id, count = kernels.find_entries(
            data.array,
            at,
            data.block_end - data.base,
            entry_id,
            target,
            piece.has_gaps and not exact,
            _ANY_BYTES,
            *(column[:room] for column in columns),
        )
        at, entry_id, count = int(at), int(entry_id), int(count)
        if count:
            exact = False
            ids, offsets, lengths = (column[:count].copy() for column in columns)
            places.passed(piece, ids, offsets + (data.base - FRAME_HEADER_BYTES))
            if target == stop:
                yield Located(ids, data.array, offsets, lengths, data.base)
        if status == kernels.OUT_OF_ROOM or (status == kernels.BAD_FRAME and count):
            if entry_id >= stop:
                _check_behind(stretch, data.frame_head(at), data.base + at)
                return
        elif status == kernels.ALL_READ:
            _check_end(stretch, entry_id, data.base + at)
            return
        elif status == kernels.BAD_FRAME:
            _explain(data, at, entry_id, gaps=piece.has_gaps and not exact)
        else:
            head = data.frame_head(at)
            if head is not None and head.entry_id >= stop:
                _check_behind(stretch, head, data.base + at)
                return
            if head is not None and head.entry_id >= first:
                data.reach(at, head.frame_bytes)
            elif head is not None and data.is_far(at + head.frame_bytes):
                data.jump(at + head.frame_bytes)
                entry_id, exact = head.entry_id + 1, False
            else:
                data.extend(at, far=start.walk_to if entry_id < first else None)
            at = 0


def _check_behind(stretch: Stretch, head: FrameHead | None, place: int) -> None:
    """Where ids may be missing, what stands behind a read is no entry that the block cannot have; if it was fetched."""
    end = stretch.block.end_entry_id
    if head is None or end is None or head.entry_id < end or not stretch.piece.has_gaps:
        return
    raise EntryOrderError(
        "an entry has an id that its block cannot have",
        entry_id=head.entry_id,
        offset=place,
        expected=f"entries up to {end - 1}",
        found=f"entry id {head.entry_id}",
    )


def _check_end(stretch: Stretch, entry_id: int, place: int) -> None:
    """At a block's end: unless entries were left out on purpose, it ends with the entry that its index says."""
    end = stretch.block.end_entry_id
    if stretch.piece.has_gaps or entry_id == end or (end is None and entry_id > stretch.block.first_entry_id):
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
    raise AssertionError("the kernel refuses a frame that its twin accepts")


def _read_mapfile(stretch: Stretch, first: int, stop: int, ahead: bool) -> Iterator[Located]:
    piece, block = stretch.piece, stretch.block
    end = block.offset + block.length
    data = stretch.windows.read(block.offset, end, ahead=ahead)
    place = block.offset + len(data)
    cursor = open_cursor(
        data,
        piece.object_format,
        piece.ledger.ledger_id,
        block,
        sequence_file=piece.sequence_file,
        stop_entry_id=stop,
        more=place < end,
    )
    ids, offsets, lengths = (np.empty(_AT_ONCE, dtype=np.int64) for _ in range(3))
    while True:
        cursor.skip_to(first)
        count = cursor.locate(ids, offsets, lengths, _ANY_BYTES)
        if count:
            located = ids[:count].copy(), cursor.array, offsets[:count].copy(), lengths[:count].copy()
            yield Located(*located, None)
        elif cursor.done:
            return
        else:
            data = stretch.windows.read(place, end, ahead=ahead)
            cursor.feed(data, place)
            place += len(data)
