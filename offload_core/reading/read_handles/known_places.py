"""Where a walk may begin: the places in a data object that are known to be the begin of an entry's frame.

Of an object with an entry directory, the directory's, read when first they are needed; of another, those that walks
have passed. All are in `ReadMemory`, under its budget; beside them, where this reader's last read ended.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from offload_core.format.codec.entry_directory import (
    Anchors,
    Longs,
    first_of_each_stride,
    no_anchors,
    parse_directory,
)
from offload_core.format.codec.index import IndexedBlock
from offload_core.reading.read_handles.cold_copy import ColdPiece
from offload_core.reading.read_handles.memory import ReadMemory
from offload_hooks.errors import FormatError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a walk begins.

    Attributes:
        entry_id: the least entry that can stand there; that very one if `is_exact`.
        place: the byte in the object.
        is_block_begin: a block's header stands there, and then the entry.
        walk_to: the next known place behind the entry that is looked for, or the block's end.
    """

    entry_id: int
    place: int
    is_exact: bool
    is_block_begin: bool
    walk_to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEnd:
    """Where a read has ended: before the frame of `entry_id`, or of the next one that there is."""

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

    def start(self, piece: ColdPiece, block: IndexedBlock, entry_id: int) -> Start:
        """Where to begin to walk to this entry of the block."""
        last = self.last_end
        nearest = (block.first_entry_id, block.offset)
        is_anchor = False
        in_block = last is not None and (last.token, last.block_offset) == (piece.token, block.offset)
        if last is not None and in_block and nearest[0] < last.entry_id <= entry_id:
            nearest = (last.entry_id, last.place)
        block_end = block.offset + block.length
        walk_to = block_end
        if entry_id > nearest[0] and block_end - nearest[1] > self._window_bytes:
            anchors = self._anchors(piece)
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

    def passed(self, piece: ColdPiece, entry_ids: Longs, frames: Longs) -> None:
        """A walk has passed these entries, which follow one another; their frames begin at these places."""
        key = _key(piece)
        known = self._memory.anchors(key)
        if piece.directory is not None and (known is None or len(known.entry_ids)):
            return
        new = first_of_each_stride(entry_ids, frames, self._window_bytes)
        if known is not None:
            new = _in_other_strides(new, known, self._window_bytes)
        if len(new.entry_ids):
            self._memory.learn(key, new)

    def _anchors(self, piece: ColdPiece) -> Anchors:
        key = _key(piece)
        known = self._memory.anchors(key)
        if known is None and piece.directory is not None:
            known = _read_directory(piece)
            self._memory.learn(key, known)
        return no_anchors() if known is None else known


def _key(piece: ColdPiece) -> Hashable:
    return (piece.token, piece.ledger.ledger_id)


def _in_other_strides(new: Anchors, known: Anchors, stride_bytes: int) -> Anchors:
    """Those of `new` in whose stride of the object none is known."""
    begins = new.offsets // stride_bytes * stride_bytes
    first, last = (np.searchsorted(known.offsets, each) for each in (begins, begins + stride_bytes))
    fresh = first == last
    return Anchors(entry_ids=new.entry_ids[fresh], offsets=new.offsets[fresh])


def _read_directory(piece: ColdPiece) -> Anchors:
    """The object's directory; nothing if it is damaged, for it is an aid."""
    place = piece.directory
    assert place is not None
    data = piece.tier.read_range(piece.key.index_key, place.offset, place.length)
    try:
        return parse_directory(data, piece.data_length)
    except FormatError as error:
        _log.warning("the entry directory of %s is not used: %s", piece.key.index_key, error)
        return no_anchors()
