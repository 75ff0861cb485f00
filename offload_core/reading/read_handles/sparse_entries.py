"""Entries of a ledger of which some may be missing, and what range of ids they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from offload_core.format.codec.byte_arrays import Bytes
from offload_core.format.codec.entry_directory import Longs
from offload_hooks.ledger_stores import EntryBatch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseEntries:
    """All entries that the copy has of the ids from `first_entry_id` to below `stop_entry_id`: perhaps none.

    The next read begins with `stop_entry_id`, which is always greater than `first_entry_id`.

    Attributes:
        entry_ids: int64, ascending.
        data: uint8, the payloads behind one another.
        offsets: int64, where each begins in `data`, and the end of the last: one more than entries.
    """

    first_entry_id: int
    stop_entry_id: int
    entry_ids: Longs
    data: Bytes
    offsets: Longs

    def __len__(self) -> int:
        return len(self.entry_ids)

    def runs(self) -> Iterator[EntryBatch]:
        """The same as batches of entries whose ids follow one another."""
        if not len(self):
            return
        borders = [0, *(np.flatnonzero(np.diff(self.entry_ids) != 1) + 1).tolist(), len(self)]
        for begin, end in pairwise(borders):
            yield self._batch(begin, end)

    def dense(self) -> EntryBatch:
        """All of it as one batch, if no id is missing between the first entry and the last.

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
