"""Counts of the requests that some work makes: ranges, their bytes, and calls made again.

The Tier counts ranges that were read; a layer that makes a call again reports it (`count_retry`). To get the
counts, run the work in a context of `counting`, or in a block of `counted`; work in a thread runs there in a copy of
the current context.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class StoreCounts:
    """Totals, filled by any thread: ranges that were read, their bytes, and calls that were made again."""

    ranges: int = 0
    bytes: int = 0
    retries: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, *, ranges: int = 0, length: int = 0, retries: int = 0) -> None:
        """Add to the totals."""
        with self._lock:
            self.ranges += ranges
            self.bytes += length
            self.retries += retries


_current: contextvars.ContextVar[StoreCounts | None] = contextvars.ContextVar("store_counts", default=None)


def counting(counts: StoreCounts) -> contextvars.Context:
    """A copy of the current context, in which calls add to `counts`."""
    context = contextvars.copy_context()
    context.run(_current.set, counts)
    return context


@contextmanager
def counted(counts: StoreCounts) -> Iterator[None]:
    """Have calls in the block add to `counts`."""
    token = _current.set(counts)
    try:
        yield
    finally:
        _current.reset(token)


def count_ranges(number: int, length: int) -> None:
    """Count ranges that were read, of `length` bytes together."""
    counts = _current.get()
    if counts is not None:
        counts.add(ranges=number, length=length)


def count_retry() -> None:
    """A call is made again."""
    counts = _current.get()
    if counts is not None:
        counts.add(retries=1)
