"""Ranges of entries of one ledger, in a compact form that is hashed, compared and pickled as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EntryRanges:
    """Half-open ranges of entry ids, ascending and apart from one another.

    `packed` has them as pairs of int64, first and stop, in the order of bytes of this machine.
    """

    packed: bytes = b""

    @classmethod
    def of(cls, bounds: Longs) -> Self:
        """The ranges of an int64 array, a row (first, stop) each; those that adjoin are joined."""
        if len(bounds) == 0:
            return cls()
        begins = np.append(True, bounds[1:, 0] > bounds[:-1, 1])
        ends = np.append(begins[1:], True)
        joined = np.stack([bounds[begins, 0], bounds[ends, 1]], axis=1)
        return cls(np.ascontiguousarray(joined, dtype=np.int64).tobytes())

    @property
    def bounds(self) -> Longs:
        """The ranges as int64, a row (first, stop) each."""
        return np.frombuffer(self.packed, dtype=np.int64).reshape(-1, 2)

    def within(self, first: int, stop: int | None) -> EntryRanges:
        """Those that overlap the entries `first` … `stop` − 1."""
        if not self.packed:
            return self
        bounds = self.bounds
        begin = int(np.searchsorted(bounds[:, 1], first, side="right"))
        end = len(bounds) if stop is None else int(np.searchsorted(bounds[:, 0], stop))
        return EntryRanges(bounds[begin:end].tobytes())

    def mask(self, entry_ids: Longs) -> npt.NDArray[np.bool_] | None:
        """Which of these entries (ids that ascend) lie in one of them; None if none does."""
        bounds = self.within(int(entry_ids[0]), int(entry_ids[-1]) + 1).bounds
        if len(bounds) == 0:
            return None
        begins, ends = (
            np.bincount(np.searchsorted(entry_ids, border), minlength=len(entry_ids) + 1)
            for border in bounds.T
        )
        steps = begins - ends
        mask: npt.NDArray[np.bool_] = np.cumsum(steps[:-1]) != 0
        return mask if mask.any() else None

    def __len__(self) -> int:
        return len(self.packed) // 16


NO_ENTRIES = EntryRanges()
"""No ranges at all."""
