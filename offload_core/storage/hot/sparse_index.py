"""Offsets of some entries of a ledger file: enough to find any other by a short walk.

There is a point at least every `stride` bytes of frames. When a ledger gets too many, every second one is dropped and
the stride doubles, so an index never has more than `layout.MAX_POINTS` of them, 512 KiB.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

import numpy as np

from offload_core.storage.hot.ledger_layout import FRAMES_OFFSET, MAX_POINTS, Points
from offload_hooks.bounded_cache import BoundedCache

STRIDE_BYTES = 1 << 16


class SparseIndex:
    """Grows with a ledger, in its order; may be asked meanwhile."""

    def __init__(self, points: Points | None = None) -> None:
        self._lock = threading.Lock()
        self._stride = STRIDE_BYTES
        self._entry_ids = array("q", [0])
        self._offsets = array("q", [FRAMES_OFFSET])
        if points is not None and len(points):
            self._entry_ids = array("q", points[:, 0].tolist())
            self._offsets = array("q", points[:, 1].tolist())

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def next_offset(self) -> int:
        """No entry before this byte is taken as a further point."""
        return self._offsets[-1] + self._stride

    def add(self, entry_id: int, offset: int) -> None:
        """Add the offset of an entry's frame as a point, if it is far enough from the last one."""
        if offset < self.next_offset:
            return
        with self._lock:
            if offset < self.next_offset:  # another thread has added it meanwhile
                return
            self._entry_ids.append(entry_id)
            self._offsets.append(offset)
            if len(self._offsets) > MAX_POINTS:
                self._entry_ids = self._entry_ids[::2]
                self._offsets = self._offsets[::2]
                self._stride *= 2

    def at_or_before(self, entry_id: int) -> tuple[int, int]:
        """The last point at or before an entry: its entry id and offset."""
        with self._lock:
            place = bisect_right(self._entry_ids, entry_id) - 1
            return self._entry_ids[place], self._offsets[place]

    def offset_behind(self, entry_id: int) -> int | None:
        """The offset of the first point after an entry, if there is one."""
        with self._lock:
            place = bisect_left(self._entry_ids, entry_id + 1)
            return self._offsets[place] if place < len(self._offsets) else None

    def points(self, end: int) -> Points:
        """All points before the byte `end`, int64, a row of entry id and offset each."""
        with self._lock:
            count = bisect_left(self._offsets, end)
            rows = [self._entry_ids[:count], self._offsets[:count]]
        return np.array(rows, dtype=np.int64).T.copy()


class Indexes:
    """The indexes of a store's ledgers: those of ledgers that are being written, and those used lately.

    Args:
        max_points: how many points the latter may have together, 16 bytes each.
    """

    def __init__(self, max_points: int) -> None:
        self._growing: dict[int, SparseIndex] = {}
        self._used: BoundedCache[int, SparseIndex] = BoundedCache(max_points, size_of=len)

    def begin(self, ledger_id: int, index: SparseIndex) -> None:
        """A ledger is written here, and its writer keeps the index."""
        self._growing[ledger_id] = index

    def end(self, ledger_id: int) -> None:
        """Forget a ledger: its writer has ended, or it was deleted."""
        self._growing.pop(ledger_id, None)
        self._used.pop(ledger_id)

    def find(self, ledger_id: int, make: Callable[[], SparseIndex]) -> SparseIndex:
        """The index of a ledger; `make` is called where there is none yet."""
        index = self._growing.get(ledger_id)
        if index is None:
            index = self._used.load(ledger_id, make)
            self._used.put(ledger_id, index)  # it may have grown
        return index
