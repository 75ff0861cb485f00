"""A token bucket that is paid beforehand: a caller that wants `amount` is told how long to wait for it.

In any span of t seconds at most `rate` × (t + `burst_s`) is let through, but for a caller that wants more than a full
bucket: it waits until all of it has dripped in. First come, first served: a place in the line is taken at once and
waited for without a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class TokenBucket:
    """Lets `rate` tokens through each second, and at once what was left unused of the last `burst_s` seconds."""

    def __init__(self, rate: float, burst_s: float, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._burst_s = burst_s
        self._clock = clock
        self._lock = threading.Lock()
        self._paid_until = float("-inf")

    def take(self, amount: float) -> float:
        """Take `amount` tokens; the seconds to wait before they may be used."""
        with self._lock:
            now = self._clock()
            self._paid_until = max(self._paid_until, now - self._burst_s) + amount / self._rate
            return max(0.0, self._paid_until - now)
