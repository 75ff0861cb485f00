"""`LedgerEntries`: the entries of a sealed ledger for a cold copy, read in batches and put through a filter.

What writes the copy, in whichever format, gets batches without ids that were left out. A hot tier that gives other
entries than it was asked for, or another number of bytes than its status has, is not believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes, Longs, read_only
from offload_core.writing.offload_filters import FilterRun
from offload_hooks.errors import DataLossError
from offload_hooks.ledger_stores import EntryBatch, LedgerReader, LedgerStatus

READ_BYTES = 4 << 20
"""Bytes that are read of the hot tier at once."""


@dataclass(slots=True)
class OffloadBatch:
    """Entries that were read and filtered, at least one, and how many of them are written.

    Attributes:
        entry_ids: int64, ascending.
        values: uint8, their payloads one after another.
        offsets: int64, the payloads' borders in `values`, one more than there are entries.
    """

    entry_ids: Longs
    values: Bytes
    offsets: npt.NDArray[np.int64]
    done: int = 0

    @property
    def left(self) -> int:
        """The number of entries that are not written yet."""
        return len(self.entry_ids) - self.done


class LedgerEntries:
    """Iterates once over a ledger's entries, in batches.

    Args:
        ledger: a sealed ledger.
        status: its status; it has at least one entry.
        filter_run: the filter of the entries; None for none.
        exact_size: whether the entries must have the size of `status`, which can be wrong for a cold copy.

    Raises (as it is iterated over):
        StoreError, FormatError: of the hot tier.
        DataLossError: it gave other entries than those it was asked for, or of another size than its status.
        PluginError, UnresolvedTransactionError: of the filter.
    """

    def __init__(
        self,
        ledger: LedgerReader,
        status: LedgerStatus,
        filter_run: FilterRun | None = None,
        *,
        exact_size: bool = True,
    ) -> None:
        self._ledger = ledger
        self._entry_count = status.entry_count
        self._exact_size = exact_size
        self._payload_bytes = status.size_bytes
        self._filter_run = filter_run

    def __iter__(self) -> Iterator[OffloadBatch]:
        begin, size = 0, 0
        while begin < self._entry_count:
            read = self._ledger.read(begin, self._entry_count - 1, READ_BYTES)
            if read.first_entry_id != begin or not 0 < len(read) <= self._entry_count - begin:
                raise DataLossError(
                    "the hot tier gave other entries than it was asked for",
                    ledger_id=self._ledger.ledger_id,
                    entry_id=begin,
                    expected=f"entries from {begin} to {self._entry_count - 1} at most",
                    found=f"{len(read)} from {read.first_entry_id}",
                )
            size += read.offsets[-1] - read.offsets[0]
            begin = read.stop_entry_id
            is_other = size > self._payload_bytes or (
                begin == self._entry_count and size < self._payload_bytes
            )
            if self._exact_size and is_other:
                raise DataLossError(
                    "the hot tier gave entries of another size than the status of the ledger",
                    ledger_id=self._ledger.ledger_id,
                    expected=f"{self._payload_bytes} bytes",
                    found=f"{size} bytes up to entry {begin - 1}",
                )
            batch = self._filtered(read)
            if batch.left:
                yield batch

    def _filtered(self, read: EntryBatch) -> OffloadBatch:
        run = self._filter_run
        if run is None:
            entry_ids = np.arange(read.first_entry_id, read.stop_entry_id)
            return OffloadBatch(entry_ids, read_only(read.data), np.asarray(read.offsets))
        filtered = run.apply(self._ledger.ledger_id, read)
        run.note(filtered, filtered.stop_entry_id)
        return OffloadBatch(filtered.entry_ids, filtered.data, filtered.offsets)
