"""Offloads whose reads of the hot tier are timed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from offload_core.managed_ledger.reader_over import ReaderOver
from offload_core.offload import LedgerOffloader
from offload_core.offload.ledger_offloader import OffloadedLedger, ProgressListener
from offload_core.offloader_stats import OffloaderStats
from offload_core.tier import Tier
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerReader


class CountedOffloader(LedgerOffloader):
    """A `LedgerOffloader` of one topic; `given` are its other arguments."""

    def __init__(self, tier: Tier, *, stats: OffloaderStats, topic: str, **given: Any) -> None:
        super().__init__(tier, **given)
        self._stats = stats
        self._topic = topic

    def offload(
        self,
        ledger: LedgerReader,
        uuid: UUID,
        extra_metadata: Mapping[str, str],
        *,
        listener: ProgressListener | None = None,
    ) -> OffloadedLedger:
        """See `LedgerOffloader`."""
        timed = _TimedReader(ledger, self._stats, self._topic)
        return super().offload(timed, uuid, extra_metadata, listener=listener)


class _TimedReader(ReaderOver):
    """A `LedgerReader` whose reads are timed."""

    def __init__(self, reader: LedgerReader, stats: OffloaderStats, topic: str) -> None:
        super().__init__(reader)
        self._stats = stats
        self._topic = topic

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        began = time.perf_counter()
        batch = super().read(first_entry_id, last_entry_id, max_bytes)
        self._stats.time_ledger_read(self._topic, time.perf_counter() - began)
        return batch
