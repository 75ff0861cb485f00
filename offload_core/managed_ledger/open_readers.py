"""Readers of a managed ledger's ledgers that are open: few, each opened where its record says that its copies are."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from offload_core.metadata import LedgerRecord
from offload_core.policies import ReadPriority
from offload_hooks.ledger_stores import LedgerReader

OpenReader = Callable[[LedgerRecord, ReadPriority, str], LedgerReader]
"""Opens a ledger of the managed ledger of this name for reading, as the priority says: `TieredReaders.open`, say."""

MAX_OPEN_READERS = 8


@dataclass(slots=True, eq=False)
class _Held:
    reader: LedgerReader
    users: int = 0
    is_kept: bool = True


class OpenReaders:
    """Readers by ledger and priority; the one that was not used for longest is closed where another is needed."""

    def __init__(self, limit: int = MAX_OPEN_READERS) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[int, ReadPriority], _Held] = OrderedDict()
        self._closed = False

    @contextmanager
    def lease(
        self, ledger_id: int, priority: ReadPriority, open_one: Callable[[], LedgerReader]
    ) -> Iterator[LedgerReader]:
        """A reader, for the time of the block. Errors as of `open_one`."""
        key = ledger_id, priority
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.users += 1
                self._held.move_to_end(key)
        if held is None:
            held = self._add(key, open_one())
        try:
            yield held.reader
        finally:
            with self._lock:
                held.users -= 1
                is_over = not held.is_kept and not held.users
            if is_over:
                held.reader.close()

    def forget(self, ledger_id: int) -> None:
        """Open this ledger anew the next time: its copies are not where they were."""
        with self._lock:
            keys = [key for key in self._held if key[0] == ledger_id]
            idle = [held for key in keys for held in self._leave(key)]
        for held in idle:
            held.reader.close()

    def close(self) -> None:
        """Close all, those in use as soon as they are not; what is opened from now on is not kept."""
        with self._lock:
            self._closed = True
            idle = [held for key in list(self._held) for held in self._leave(key)]
        for held in idle:
            held.reader.close()

    def _add(self, key: tuple[int, ReadPriority], reader: LedgerReader) -> _Held:
        held = _Held(reader, users=1)
        with self._lock:
            if self._closed:
                held.is_kept = False
                return held
            idle = self._leave(key)  # opened by another thread at the same time
            self._held[key] = held
            while len(self._held) > self._limit:
                idle += self._leave(next(iter(self._held)))
        for each in idle:
            each.reader.close()
        return held

    def _leave(self, key: tuple[int, ReadPriority]) -> list[_Held]:
        held = self._held.pop(key, None)
        if held is None:
            return []
        held.is_kept = False
        return [] if held.users else [held]
