"""Stats that are remembered for a bounded time, by the key of their object."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from offload_hooks import ObjectStat
from offload_hooks.bounded_cache import BoundedCache

_MOST = 100_000


class KnownStats:
    """What `stat` has said lately.

    A stat that was asked for before a change and answered after it must not be remembered: so who asks notes the
    `epoch` before, and hands it over with the answer.

    Args:
        valid_s: for how long a stat counts; 0: not at all.
        clock: seconds that never go back.
    """

    def __init__(self, valid_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._valid_s = valid_s
        self._clock = clock
        self._lock = threading.Lock()
        self._stats: BoundedCache[str, tuple[float, ObjectStat]] = BoundedCache(_MOST)
        self.epoch = 0

    def get(self, key: str) -> ObjectStat | None:
        """The object's stat if it still counts."""
        found = self._stats.get(key)
        return found[1] if found is not None and self._clock() < found[0] + self._valid_s else None

    def remember(self, stat: ObjectStat, asked_in: int, asked_at: float) -> None:
        """Keep a stat that was asked for in this epoch, at this time of the clock."""
        with self._lock:
            if asked_in != self.epoch or self._valid_s <= 0:
                return
            self._stats.put(stat.key, (asked_at, stat))

    def forget(self, keys: Iterable[str]) -> None:
        """Drop what is known of objects that were, or may have been, changed."""
        with self._lock:
            self.epoch += 1
            for key in keys:
                self._stats.pop(key)
