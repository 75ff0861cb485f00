"""Where the entries of segments come from: the offload buffer, else the tail cache, else the hot tier."""

from __future__ import annotations

from dataclasses import replace

from offload_core.managed_ledger.streaming.buffer import OffloadBuffer
from offload_core.managed_ledger.streaming.status import EntryCounts
from offload_core.managed_ledger.tail_cache import TailCache
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerReader, LedgerStore


class EntrySource:
    """Gives the entries of one topic in their order; used by one thread at a time.

    `counts` tells how many that were taken came from where.
    """

    def __init__(self, buffer: OffloadBuffer, cache: TailCache, hot: LedgerStore) -> None:
        self._buffer = buffer
        self._cache = cache
        self._hot = hot
        self._reader: LedgerReader | None = None
        self._origin = "hot"
        self.counts = EntryCounts()

    def read(self, ledger_id: int, first_entry_id: int, stop: int) -> EntryBatch:
        """Some acknowledged entries of a ledger, from `first_entry_id` on and before `stop`; at least one.

        Errors as `LedgerStore.open` and `LedgerReader.read`.
        """
        entries = self._buffer.get(ledger_id, first_entry_id, stop, DEFAULT_READ_BYTES)
        if entries is not None:
            self._origin = "buffer"
            return entries
        entries = self._cache.get(ledger_id, first_entry_id, stop - 1, DEFAULT_READ_BYTES)
        if entries is not None:
            self._origin = "cache"
            return entries
        if self._reader is not None and self._reader.ledger_id != ledger_id:
            self.rest()
        if self._reader is None:
            self._reader = self._hot.open(ledger_id)
        entries = self._reader.read(first_entry_id, stop - 1, DEFAULT_READ_BYTES)
        self._origin = "hot"
        return entries

    def pass_by(self, accepted: int, ledger_id: int, next_entry_id: int) -> None:
        """So many of those that were read last were taken, and this entry comes next."""
        self._buffer.drop_before(ledger_id, next_entry_id)
        self.counts = replace(self.counts, **{self._origin: getattr(self.counts, self._origin) + accepted})

    def rest(self) -> None:
        """Give back what reading holds."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
