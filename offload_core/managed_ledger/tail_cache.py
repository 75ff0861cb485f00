"""The newest entries of a managed ledger in memory, so that whoever reads along behind the producers needs no disk."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from offload_hooks.ledger_stores import EntryBatch
from offload_hooks.values import ReadableBuffer

DEFAULT_CACHE_BYTES = 8 << 20
"""What a managed ledger keeps of its newest entries, unless it is told otherwise."""

ENTRY_OVERHEAD_BYTES = 200
"""What an entry takes in memory beside its payload, about."""


class TailCache:
    """Acknowledged entries up to a budget; the oldest go first. Producers may put theirs in any order."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._lock = threading.Lock()
        self._entries: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self.used_bytes = 0

    def put(self, ledger_id: int, first_entry_id: int, payloads: Sequence[ReadableBuffer]) -> None:
        """Keep entries that follow one another."""
        with self._lock:
            if not self._budget_bytes:
                return
            for entry_id, payload in enumerate(payloads, first_entry_id):
                kept = bytes(payload)  # which copies no bytes
                self._entries[ledger_id, entry_id] = kept
                self.used_bytes += len(kept) + ENTRY_OVERHEAD_BYTES
            while self.used_bytes > self._budget_bytes:
                _, oldest = self._entries.popitem(last=False)
                self.used_bytes -= len(oldest) + ENTRY_OVERHEAD_BYTES

    def close(self) -> None:
        """Forget all, and keep nothing any more."""
        with self._lock:
            self._budget_bytes = self.used_bytes = 0
            self._entries.clear()

    def get(
        self, ledger_id: int, first_entry_id: int, last_entry_id: int, max_bytes: int
    ) -> EntryBatch | None:
        """Entries as `LedgerReader.read` gives them, perhaps fewer; None if the first is not here."""
        found: list[bytes] = []
        size = 0
        with self._lock:
            for entry_id in range(first_entry_id, last_entry_id + 1):
                payload = self._entries.get((ledger_id, entry_id))
                if payload is None or (found and size + len(payload) > max_bytes):
                    break
                found.append(payload)
                size += len(payload)
        return EntryBatch.of(first_entry_id, found) if found else None
