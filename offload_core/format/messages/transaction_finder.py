"""Entries of one ledger → tables of their facts of transactions, by the kernel.

Payloads are neither decompressed nor read. Source: docs/formats/entry.md (message metadata, markers).
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.codec.crc32c import crc32c_address
from offload_core.format.messages.arrow_arrays import Table
from offload_core.format.messages.entry import raise_fault
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.kernels.transaction_ranges import find_transactions

NO_TIMES = (2**63 - 1, -(2**63))
"""Least and greatest publish time of no entries."""


class TransactionFinder:
    """Collects the facts of entries, in ascending order of their ids.

    `times` (int64: least and greatest publish time, in ms) is that of all entries since it was last set. Errors name
    the ledger; None for entries that are in none yet.
    """

    def __init__(self, ledger_id: int | None, *, verify_checksums: bool) -> None:
        self._ledger_id = ledger_id
        self._checksum = crc32c_address() if verify_checksums else 0
        self._verify_checksums = verify_checksums
        self._row = np.empty(f.E_FIELDS, dtype=np.int64)
        self._scratch = [np.empty((0, width), dtype=np.int64) for width in (4, 4, 2)]
        self._found: tuple[list[Table], list[Table], list[Table]] = ([], [], [])
        self.times = np.array(NO_TIMES, dtype=np.int64)

    def add(self, entries: LocatedEntries) -> None:
        """Inspect entries.

        Raises:
            FormatError: metadata that is not right, or a wrong checksum of an entry that matters; with ledger, entry
                and byte.
        """
        block, _, entry_ids, offsets, lengths = entries
        count = len(offsets)
        if count > len(self._scratch[0]):
            self._scratch = [np.empty((count, width), dtype=np.int64) for width in (4, 4, 2)]
        right, *made = find_transactions(
            block, offsets, lengths, count, entry_ids, self._checksum, self._row, *self._scratch, self.times
        )
        if right < count:
            raise_fault(entries, right, ledger_id=self._ledger_id, verify_checksum=self._verify_checksums)
        for tables, scratch, rows in zip(self._found, self._scratch, made, strict=True):
            if rows:
                tables.append(scratch[:rows].copy())

    def tables(self) -> tuple[Table, Table, Table]:
        """Ranges, markers, tombstones (int64; a row each), ascending.

        Columns of a range: first entry, stop entry, txnid_most_bits, txnid_least_bits; of a marker: entry, marker type,
        and the same bits; of a tombstone: first entry, stop entry.
        """
        ranges, markers, tombstones = (
            np.concatenate(tables) if tables else np.empty((0, width), dtype=np.int64)
            for tables, width in zip(self._found, (4, 4, 2), strict=True)
        )
        return join_ranges(ranges), markers, join_ranges(tombstones)


def join_ranges(ranges: Table) -> Table:
    """Join ascending ranges (first, stop, further columns) that adjoin and have the same further columns."""
    if len(ranges) < 2:
        return ranges
    begins = (ranges[1:, 0] != ranges[:-1, 1]) | (ranges[1:, 2:] != ranges[:-1, 2:]).any(axis=1)
    firsts = np.flatnonzero(np.concatenate([[True], begins]))
    joined = ranges[firsts]
    joined[:, 1] = ranges[np.append(firsts[1:], len(ranges)) - 1, 1]
    return joined
