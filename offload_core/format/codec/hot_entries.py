"""The entries of a ledger's hot copy, as a ledger store gives them: its blocks, and the cursor over a batch.

A hot copy has no bytes that could be fetched by their place: a store is asked for entries. Its blocks are ranges of
entries, by which it is divided into tasks and searched by time; their sizes are estimated.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes, Longs, read_only
from offload_core.format.codec.index import BlockTable, ranges_as_blocks
from offload_hooks.ledger_stores import EntryBatch

HOT_BLOCK_BYTES = 256 << 10
"""About as many bytes of entries are a block of a hot copy."""


def hot_blocks(entry_count: int, size_bytes: int) -> BlockTable:
    """The blocks of a ledger with so many entries, and bytes in them: as if all entries were of one size."""
    if not entry_count:
        return ranges_as_blocks(np.empty(0, np.int64), 0, 0)
    count = max(1, min(entry_count, -(-size_bytes // HOT_BLOCK_BYTES)))
    return ranges_as_blocks(np.arange(count) * entry_count // count, entry_count, size_bytes)


class BatchCursor:
    """An `EntryCursor` over one batch.

    Args:
        batch: entries of a ledger that follow one another.
        stop_entry_id: do not go on to this entry (half-open); None walks to the batch's end.

    `offset` is None: the entries have no place in an object.
    """

    def __init__(self, batch: EntryBatch, stop_entry_id: int | None) -> None:
        self.array: Bytes = read_only(batch.data)
        self.offset: int | None = None
        self.starved = False
        self.reached = 0
        self.payload_bytes = 0
        self._first = batch.first_entry_id
        self._borders: Longs = np.frombuffer(batch.offsets, dtype=np.int64)
        stop = batch.stop_entry_id if stop_entry_id is None else min(stop_entry_id, batch.stop_entry_id)
        self._count = max(0, stop - self._first)
        self._at = 0

    @property
    def done(self) -> bool:
        """True after the last entry."""
        return self._at >= self._count

    @property
    def next_entry_id(self) -> int:
        """The id of the next entry."""
        return self._first + self._at

    @property
    def next_length(self) -> int:
        """Payload bytes of the next entry (only where there is one)."""
        return int(self._borders[self._at + 1] - self._borders[self._at])

    def skip_to(self, entry_id: int) -> None:
        """See `EntryCursor`."""
        self._at = min(max(self._at, entry_id - self._first), max(self._count, self._at))

    def locate(self, entry_ids: Longs, offsets: Longs, lengths: Longs, byte_room: int) -> int:
        """See `EntryCursor`."""
        at, borders = self._at, self._borders
        ends = borders[at + 1 : at + 1 + min(len(entry_ids), self._count - at)]
        room = min(byte_room, len(self.array))
        count = min(len(ends), int(np.searchsorted(ends, borders[at] + room)) + 1)
        offsets[:count] = borders[at : at + count]
        lengths[:count] = ends[:count] - borders[at : at + count]
        return self._pass(entry_ids, count)

    def copy(self, values: Bytes, value_offsets: npt.NDArray[np.int32], entry_ids: Longs) -> int:
        """See `EntryCursor`."""
        at, borders = self._at, self._borders
        most = min(len(entry_ids), len(value_offsets) - 1, self._count - at)
        ends = borders[at + 1 : at + 1 + most]
        count = int(np.searchsorted(ends, borders[at] + len(values), side="right"))
        begin, end = int(borders[at]), int(borders[at + count])
        values[: end - begin] = self.array[begin:end]
        value_offsets[: count + 1] = borders[at : at + count + 1] - begin
        return self._pass(entry_ids, count)

    def _pass(self, entry_ids: Longs, count: int) -> int:
        at, borders = self._at, self._borders
        entry_ids[:count] = np.arange(self._first + at, self._first + at + count)
        self.payload_bytes += int(borders[at + count] - borders[at])
        self._at += count
        return count
