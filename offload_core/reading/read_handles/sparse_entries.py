"""The entries of one read, copied one after another, up to the limits of the read; ids may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from offload_core.format.codec.arrays import Bytes, LocatedEntries, Longs, read_only
from offload_core.format.codec.block_layout import FRAME_HEADER_BYTES
from offload_core.format.codec.kernels.frames import INT32_MAX
from offload_core.format.codec.kernels.mapfile import copy_values
from offload_hooks.ledger_stores import EntryBatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseEntries:
    """The entries that the copy has of the ids from `first_entry_id` to below `stop_entry_id`: perhaps none.

    The next read begins with `stop_entry_id`, which is always greater than `first_entry_id`.

    Attributes:
        entry_ids: int64, ascending.
        data: uint8, the payloads one after another.
        offsets: int64, where each begins in `data`, and the end of the last: one more than entries.
    """

    first_entry_id: int
    stop_entry_id: int
    entry_ids: Longs
    data: Bytes
    offsets: Longs

    def __len__(self) -> int:
        return len(self.entry_ids)

    def located(self) -> LocatedEntries:
        """Return where they lie in `data`."""
        return LocatedEntries(self.data, None, self.entry_ids, self.offsets[:-1], np.diff(self.offsets))

    def runs(self) -> Iterator[EntryBatch]:
        """Split into batches of entries with consecutive ids."""
        if not len(self):
            return
        borders = [0, *(np.flatnonzero(np.diff(self.entry_ids) != 1) + 1).tolist(), len(self)]
        for begin, end in pairwise(borders):
            yield self._batch(begin, end)

    def dense(self) -> EntryBatch:
        """Return one batch, if no id is missing between the first entry and the last.

        Without an entry, an empty batch at `stop_entry_id`.
        """
        if not len(self):
            return EntryBatch.of(self.stop_entry_id, [])
        return self._batch(0, len(self))

    def _batch(self, begin: int, end: int) -> EntryBatch:
        borders = self.offsets[begin : end + 1] - self.offsets[begin]
        data = self.data[self.offsets[begin] : self.offsets[end]]
        offsets = borders.data.cast("B").cast("q").toreadonly()
        return EntryBatch(int(self.entry_ids[begin]), data.data.toreadonly(), offsets)


MOST_ENTRIES = 1 << 20
"""The most entries that one read gives, however small they are."""


class End(NamedTuple):
    """The end of a read: an offset in the object where the frame of `entry_id`, or of the next one, begins."""

    entry_id: int
    place: int


class CollectedEntries:
    """The entries of one read, at least one if there is any.

    Args:
        first_entry_id, stop_entry_id: the range that is asked for, half-open. `stop_entry_id` becomes what was covered.
        max_bytes: of payloads; 2 GiB at most.
        dense: only entries whose ids follow one another.
    """

    def __init__(self, first_entry_id: int, stop_entry_id: int, max_bytes: int, *, dense: bool) -> None:
        self.first_entry_id = first_entry_id
        self.stop_entry_id = stop_entry_id
        self.is_full = False
        self._room = min(max_bytes, INT32_MAX)
        self._dense = dense
        self._count = 0
        self._ids: list[Longs] = []
        self._lengths: list[Longs] = []
        self._values: list[Bytes] = []

    def add(self, located: LocatedEntries) -> End | None:
        """Take as many entries as there is room for; return the offset of the next one, if known."""
        count = self._fitting(located)
        if count:
            self._take(located, count)
        if count == len(located.entry_ids):
            last = count - 1
            place = int(located.offsets[last] + located.lengths[last])
        else:
            self.is_full = True
            self.stop_entry_id = int(located.entry_ids[count])
            place = int(located.offsets[count]) - FRAME_HEADER_BYTES
        if located.base is None:
            return None
        return End(int(self._ids[-1][-1]) + 1, located.base + place)

    def entries(self) -> SparseEntries:
        """The entries that were taken."""
        offsets = np.zeros(self._count + 1, dtype=np.int64)
        if self._count:
            np.cumsum(np.concatenate(self._lengths), out=offsets[1:])
        none = np.empty(0, dtype=np.int64)
        one = len(self._values) == 1
        return SparseEntries(
            first_entry_id=self.first_entry_id,
            stop_entry_id=self.stop_entry_id,
            entry_ids=np.concatenate([none, *self._ids]),
            data=self._values[0] if one else np.concatenate([np.empty(0, dtype=np.uint8), *self._values]),
            offsets=offsets,
        )

    def _fitting(self, located: LocatedEntries) -> int:
        ids = located.entry_ids
        count = min(
            int(np.searchsorted(np.cumsum(located.lengths), self._room, side="right")),
            MOST_ENTRIES - self._count,
        )
        if not self._count:
            count = max(count, 1)
        if self._dense:
            if self._count and ids[0] != self._ids[-1][-1] + 1:
                return 0
            breaks = np.flatnonzero(np.diff(ids[:count]) != 1)
            count = int(breaks[0]) + 1 if len(breaks) else count
        return count

    def _take(self, located: LocatedEntries, count: int) -> None:
        lengths = located.lengths[:count]
        size = int(lengths.sum())
        values = np.empty(size, dtype=np.uint8)
        borders = np.empty(count + 1, dtype=np.int32)
        copy_values(located.array, located.offsets[:count], lengths, count, values, borders)
        self._values.append(read_only(values.data))
        self._ids.append(located.entry_ids[:count])
        self._lengths.append(lengths)
        self._count += count
        self._room -= size
