"""Wait for what another process, thread or server does, up to a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def wait_for(condition: Callable[[], Any], within_s: float = 60.0) -> Any:
    """The first value of `condition` that is true; a test fails after `within_s` without one."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:.0f} s"
        time.sleep(0.02)
    return found
