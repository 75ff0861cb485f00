"""The pause after a failure, longer after each that follows."""

from __future__ import annotations

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0


class RetryPause:
    """`failures` in a row, and `until_ms` (since 1970, UTC) the next try waits; None if it does not."""

    def __init__(self) -> None:
        self.failures = 0
        self.until_ms: int | None = None

    def begin(self, now_ms: int) -> float:
        """It failed; how many seconds the pause is."""
        wait_s = min(FIRST_RETRY_S * 2.0 ** min(self.failures, 30), LONGEST_RETRY_S)
        self.failures += 1
        self.until_ms = now_ms + int(wait_s * 1000)
        return wait_s

    def is_over(self, now_ms: int) -> bool:
        """Whether the next try may begin; then there is no pause any more. One that is too long is of a clock that
        was put back since."""
        if self.until_ms is not None and now_ms < self.until_ms <= now_ms + LONGEST_RETRY_S * 1000:
            return False
        self.until_ms = None
        return True
