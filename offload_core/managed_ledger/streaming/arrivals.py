"""Wakes a streamed topic when enough of what was appended waits; appends call it, so it waits for nobody.

It has no lock: a turn too many does no harm.
"""

from __future__ import annotations

from collections.abc import Callable


class Arrivals:
    """What came to a topic since its last turn.

    Args:
        give_turn: has the topic get one.
    """

    def __init__(self, give_turn: Callable[[], None]) -> None:
        self._give_turn = give_turn
        self._is_woken = self._is_armed = False
        self._fresh_bytes = self._wake_bytes = 0

    def wake(self) -> None:
        """Something may be to be done."""
        if not self._is_woken:
            self._is_woken = True
            self._give_turn()

    def add(self, size_bytes: int) -> None:
        """So much was appended."""
        self._fresh_bytes += size_bytes + 1
        if self._fresh_bytes >= self._wake_bytes or not self._is_armed:
            self.wake()

    def begin_turn(self) -> None:
        """The turn that was asked for has come."""
        self._is_woken = False

    def disarm(self) -> None:
        """Anything that comes wakes."""
        self._is_armed = False

    def rest(self, wake_bytes: int) -> None:
        """Nothing is to be done before so much comes."""
        self._fresh_bytes, self._wake_bytes, self._is_armed = 0, wake_bytes, True
