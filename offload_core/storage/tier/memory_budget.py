"""A budget of bytes that many threads share: who wants more than is left waits, first come, first served, or does
without."""

from __future__ import annotations

import threading
from collections import deque

from offload_hooks.errors import OptionError

DEFAULT_BUDGET_BYTES = 256 << 20


class MemoryBudget:
    """At most `limit_bytes` are taken at any time.

    Raises:
        OptionError: the limit is not positive.
    """

    def __init__(self, limit_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        if limit_bytes < 1:
            raise OptionError("a memory budget is at least one byte", found=limit_bytes)
        self.limit_bytes = limit_bytes
        self._taken = 0
        self._changed = threading.Condition()
        self._queue: deque[object] = deque()

    @property
    def taken_bytes(self) -> int:
        """The number of bytes that are taken now."""
        with self._changed:
            return self._taken

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
        """Take `count` bytes; wait until there are so many left, and nobody waits who came before."""
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

    def try_take(self, count: int) -> bool:
        """Take `count` bytes if so many are left and nobody waits; whether they were. It never waits."""
        with self._changed:
            if self._queue or self._taken + count > self.limit_bytes:
                return False
            self._taken += count
            return True

    def give_back(self, count: int) -> None:
        """Give back bytes that were taken."""
        with self._changed:
            self._taken -= count
            self._changed.notify_all()


class PartOfBudget(MemoryBudget):
    """A budget of its own within another one, so that who has it does not take all of that.

    Raises:
        OptionError: the limit is not positive.
    """

    def __init__(self, limit_bytes: int, whole: MemoryBudget) -> None:
        super().__init__(limit_bytes)
        self._whole = whole

    def take(self, count: int) -> None:
        """See `MemoryBudget`."""
        super().take(count)
        try:
            self._whole.take(count)
        except BaseException:
            super().give_back(count)
            raise

    def try_take(self, count: int) -> bool:
        """See `MemoryBudget`."""
        if not super().try_take(count):
            return False
        if self._whole.try_take(count):
            return True
        super().give_back(count)
        return False

    def give_back(self, count: int) -> None:
        """See `MemoryBudget`."""
        self._whole.give_back(count)
        super().give_back(count)
