"""Entries of one topic between their append and their offload: in memory, within a budget that all topics share.

Whoever appends never waits here: where the budget has no room, the entries are not kept, and the offloader reads them
elsewhere. Producers may put theirs in any order; what is behind the offloader is dropped.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate

from offload_core.managed_ledger.tail_cache import ENTRY_OVERHEAD_BYTES
from offload_core.tier import MemoryBudget
from offload_hooks.ledger_stores import EntryBatch

_Kept = tuple[int, int, int, int, Sequence[bytes]]
"""Ledger, first entry, one past the last, bytes taken, payloads."""


class OffloadBuffer:
    """The buffer of one topic, until it is closed."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._put: list[_Kept] = []  # a heap
        self._in_order: deque[_Kept] = deque()  # those of it that follow one another
        self._closed = False
        self.used_bytes = 0

    def put(self, ledger_id: int, first_entry_id: int, payloads: Sequence[bytes]) -> bool:
        """Keep entries that follow one another; whether there was room for them."""
        taken = sum(map(len, payloads)) + ENTRY_OVERHEAD_BYTES * len(payloads)
        if not self._budget.try_take(taken):
            return False
        with self._lock:
            if self._closed:
                self._budget.give_back(taken)
                return False
            heappush(self._put, (ledger_id, first_entry_id, first_entry_id + len(payloads), taken, payloads))
            self.used_bytes += taken
        return True

    def get(self, ledger_id: int, first_entry_id: int, stop: int, max_bytes: int) -> EntryBatch | None:
        """Entries of a ledger from `first_entry_id` on and before `stop`, about `max_bytes`; None if it is not here.

        What is given stays, until it is passed.
        """
        self.drop_before(ledger_id, first_entry_id)
        with self._lock:
            if self._in_order and self._in_order[0][:2] > (ledger_id, first_entry_id):
                for each in self._in_order:  # it was asked for something earlier again
                    heappush(self._put, each)
                self._in_order.clear()
            self._line_up(ledger_id, first_entry_id, max_bytes)
            payloads: list[bytes] = []
            size, begin = 0, None
            for _, first, _, _, kept in self._in_order:
                begin = first if begin is None else begin
                payloads += kept
                size += sum(map(len, kept))
                if size >= max_bytes:
                    break
        if begin is None:
            return None
        skipped = first_entry_id - begin
        payloads = payloads[skipped : skipped + stop - first_entry_id]
        offsets = array("q", accumulate(map(len, payloads), initial=0))
        return EntryBatch(first_entry_id, memoryview(b"".join(payloads)), memoryview(offsets))

    def drop_before(self, ledger_id: int, entry_id: int) -> None:
        """All before this entry is not needed any more."""
        with self._lock:
            while self._in_order and _stop(self._in_order[0]) <= (ledger_id, entry_id):
                self._give_back(self._in_order.popleft())
            while self._put and _stop(self._put[0]) <= (ledger_id, entry_id):
                self._give_back(heappop(self._put))

    def close(self) -> None:
        """Forget all, and keep nothing any more."""
        with self._lock:
            self._closed = True
        self.clear()

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._put.clear()
            self._in_order.clear()
            self._budget.give_back(self.used_bytes)
            self.used_bytes = 0

    def _line_up(self, ledger_id: int, entry_id: int, max_bytes: int) -> None:
        """Move to `_in_order` what follows from this entry on."""
        size = sum(taken for _, _, _, taken, _ in self._in_order)
        if self._in_order:
            entry_id = self._in_order[-1][2]
        while self._put and size < max_bytes:
            kept = self._put[0]
            if _stop(kept) <= (ledger_id, entry_id):
                self._give_back(heappop(self._put))
            elif kept[0] == ledger_id and kept[1] <= entry_id:
                self._in_order.append(heappop(self._put))
                size, entry_id = size + kept[3], kept[2]
            else:
                break

    def _give_back(self, kept: _Kept) -> None:
        self._budget.give_back(kept[3])
        self.used_bytes -= kept[3]


def _stop(kept: _Kept) -> tuple[int, int]:
    return kept[0], kept[2]
