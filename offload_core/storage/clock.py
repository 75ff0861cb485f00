"""The system's clock."""

from __future__ import annotations

import time


def system_now_ms() -> int:
    """The time, in ms since 1970, UTC."""
    return time.time_ns() // 1_000_000
