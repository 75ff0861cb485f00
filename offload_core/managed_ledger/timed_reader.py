"""A reader of a hot ledger whose reads are timed."""

from __future__ import annotations

import time

from offload_core.managed_ledger.reader_over import ReaderOver
from offload_core.offloader_stats import OffloaderStats
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerReader


class TimedReader(ReaderOver):
    """A `LedgerReader` of one topic, for an offload."""

    def __init__(self, reader: LedgerReader, stats: OffloaderStats, topic: str) -> None:
        super().__init__(reader)
        self._stats = stats
        self._topic = topic

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`."""
        began = time.perf_counter()
        batch = super().read(first_entry_id, last_entry_id, max_bytes)
        self._stats.time_ledger_read(self._topic, time.perf_counter() - began)
        return batch
