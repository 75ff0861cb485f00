"""Have Python search for cycles rarely while very many values are made, none of which is in a cycle.

The search goes through all values that exist, again and again while they become more: a third of the time of making a
hundred thousand of anything. What no cycle holds is freed as always.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_RARELY = 200_000
"""New values between two searches among the newest."""

_lock = threading.Lock()
_blocks = 0
_threshold = 0


@contextmanager
def rare_search_for_cycles() -> Iterator[None]:
    """Search rarely in the block, in all threads, and as before after the last of such blocks."""
    global _blocks, _threshold
    with _lock:
        if not _blocks:
            _threshold, *others = gc.get_threshold()
            if _threshold:  # else there is no search at all
                gc.set_threshold(max(_threshold, _RARELY), *others)
        _blocks += 1
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks:
                gc.set_threshold(_threshold, *gc.get_threshold()[1:])
