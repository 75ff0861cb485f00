"""Many small requests at once: what finds out where things are waits for a store far away, not for the processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TypeVar

CONCURRENCY = 128
"""Requests at once."""

MOST_TOGETHER = 16
"""The most items that one thread takes at a time: many items must not become as many futures."""

_T = TypeVar("_T")
_R = TypeVar("_R")


def concurrently(function: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """`function` of each item, in their order, `CONCURRENCY` of them at once; the first error is raised."""
    together = max(1, min(MOST_TOGETHER, len(items) // (2 * CONCURRENCY)))
    slices = [items[i : i + together] for i in range(0, len(items), together)]
    if len(slices) < 2:
        return [function(item) for item in items]
    pool = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="offload-catalogue")
    try:
        return list(chain.from_iterable(pool.map(lambda some: [function(item) for item in some], slices)))
    finally:
        pool.shutdown(cancel_futures=True)
