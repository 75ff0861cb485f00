"""A budget of bytes that many threads share, first come, first served; it may have shares with limits of their own."""

from __future__ import annotations

import threading
from collections import deque

from offload_hooks.errors import OptionError

DEFAULT_BUDGET_BYTES = 256 << 20


class MemoryBudget:
    """A budget of which at most `limit_bytes` are taken at any time.

    Args:
        limit_bytes: the limit.
        whole: the budget that this one is a share of; what is taken here is taken there as well.

    Raises:
        OptionError: the limit is not positive.
    """

    def __init__(self, limit_bytes: int = DEFAULT_BUDGET_BYTES, whole: MemoryBudget | None = None) -> None:
        if limit_bytes < 1:
            raise OptionError("a memory budget is at least one byte", found=limit_bytes)
        self.limit_bytes = limit_bytes
        self._whole = whole
        self._shares: dict[str, MemoryBudget] = {}
        self._taken = 0
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()

    @property
    def taken_bytes(self) -> int:
        """The number of bytes that are taken now."""
        with self._changed:
            return self._taken

    def share(self, name: str, limit_bytes: int) -> MemoryBudget:
        """The share of this name, made at its first use: a user of it cannot take the whole budget."""
        share = self._shares.get(name)
        return self._shares.setdefault(name, MemoryBudget(limit_bytes, self)) if share is None else share

    def check(self, count: int, what: str) -> None:
        """Refuse what would wait for ever: one thing that is larger than the whole budget (`OptionError`)."""
        if count > self.limit_bytes:
            raise OptionError(
                f"{what} is larger than the whole memory budget",
                expected=f"{self.limit_bytes:,} bytes or less",
                found=f"{count:,} bytes",
                hint="Enlarge the budget, or make it smaller.",
            )

    def take(self, count: int) -> None:
        """Take `count` bytes; wait for room, in the order of calls."""
        self.check(count, "what is asked for")
        ticket = object()
        with self._changed:
            self._queue.append(ticket)
            try:
                self._changed.wait_for(
                    lambda: self._queue[0] is ticket and self._taken + count <= self.limit_bytes
                )
                self._taken += count
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()
        if self._whole is not None:
            try:
                self._whole.take(count)
            except BaseException:
                self._release(count)
                raise

    def try_take(self, count: int) -> bool:
        """Take `count` bytes if there is room and no call waits, and return True if so. It never waits."""
        with self._changed:
            if self._queue or self._taken + count > self.limit_bytes:
                return False
            self._taken += count
        if self._whole is None or self._whole.try_take(count):
            return True
        self._release(count)
        return False

    def give_back(self, count: int) -> None:
        """Release taken bytes."""
        if self._whole is not None:
            self._whole.give_back(count)
        self._release(count)

    def _release(self, count: int) -> None:
        with self._changed:
            self._taken -= count
            self._changed.notify_all()
