"""Those who wait until all up to a position is offloaded."""

from __future__ import annotations

import threading
from concurrent.futures import Future

from offload_core.metadata import EntryPosition
from offload_hooks.errors import OffloadError


class SegmentWaiters:
    """Futures by position, for many threads; false if there is none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[EntryPosition, Future[None]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, target: EntryPosition) -> Future[None]:
        """Done when all up to and with `target` is offloaded; it raises what comes between."""
        waiter: Future[None] = Future()
        with self._lock:
            self._waiting.append((target, waiter))
        return waiter

    def tell_done(self, begin: EntryPosition | None) -> None:
        """All before `begin` is offloaded; None: all that is to be."""
        with self._lock:
            done = [waiter for target, waiter in self._waiting if begin is None or target < begin]
            self._waiting = [each for each in self._waiting if each[1] not in done]
        for waiter in done:
            waiter.set_result(None)

    def tell(self, error: OffloadError) -> None:
        """It failed; nobody waits any more."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            waiter.set_exception(error)
