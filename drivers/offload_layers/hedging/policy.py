"""When a second request is sent for a range, and whether one may be: the recent durations, and a budget."""

from __future__ import annotations

import threading
from collections import deque

KNOWN_ENOUGH = 20
"""How many durations must be known before their 95th percentile says anything."""

_RECENT = 128
_MOST_SAVED = 10.0  # hedges that a quiet time leaves for a bad one


class HedgePolicy:
    """Says after how long a range is slow, and pays for hedges out of a budget.

    Args:
        delay_s: the fixed delay; None: the 95th percentile of recent reads of about the same length.
        least_delay_s: the least delay of the latter.
        share: how many hedges each request pays for, below 1.
    """

    def __init__(self, delay_s: float | None, least_delay_s: float, share: float) -> None:
        self._delay_s = delay_s
        self._least_delay_s = least_delay_s
        self._share = share
        self._saved = 0.0
        self._lock = threading.Lock()
        self._durations: dict[int, deque[float]] = {}

    def delay_s(self, length: int) -> float | None:
        """How long a read of this length may take before it is slow; None while that is not known."""
        if self._delay_s is not None:
            return self._delay_s
        with self._lock:
            durations = sorted(self._durations.get(_size_class(length), ()))
        if len(durations) < KNOWN_ENOUGH:
            return None
        return max(self._least_delay_s, durations[len(durations) * 95 // 100])

    def took(self, length: int, duration_s: float) -> None:
        """Note how long a read took."""
        with self._lock:
            self._durations.setdefault(_size_class(length), deque(maxlen=_RECENT)).append(duration_s)

    def requested(self, count: int) -> None:
        """Note requests, which pay into the budget."""
        with self._lock:
            self._saved = min(_MOST_SAVED, self._saved + count * self._share)

    def may_hedge(self) -> bool:
        """Pay for one hedge if the budget allows."""
        with self._lock:
            if self._saved < 1:
                return False
            self._saved -= 1
            return True


def _size_class(length: int) -> int:
    """Lengths within a factor of four are alike."""
    return length.bit_length() // 2
