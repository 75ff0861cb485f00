"""Many small requests at once: a survey waits for a remote store, not for the processor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from offload_hooks.bounded_map import bounded_map

CONCURRENCY = 256
"""Requests at once."""

MOST_TOGETHER = 16
"""The most items that one thread takes at a time: many items must not become as many futures."""

AT_ONCE = 2048
"""Items of a batch."""

_T = TypeVar("_T")
_R = TypeVar("_R")


def concurrently(function: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """`function` of each item, in their order, `CONCURRENCY` of them at once; the first error is raised."""
    together = max(1, min(MOST_TOGETHER, len(items) // (2 * CONCURRENCY)))
    slices = [items[i : i + together] for i in range(0, len(items), together)]
    if len(slices) < 2:
        return [function(item) for item in items]
    results = bounded_map(
        lambda some: [function(item) for item in some],
        slices,
        at_once=CONCURRENCY,
        ahead=len(slices),
        name="offload-catalogue",
    )
    return list(chain.from_iterable(results))


def in_batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    """Divide items into batches for `inspect_batches`."""
    rest = iter(items)
    while some := list(islice(rest, AT_ONCE)):
        yield some


def inspect_batches(
    batches: Iterable[Sequence[_T]], inspect: Callable[[_T], _R]
) -> Iterator[tuple[Sequence[_T], list[_R]]]:
    """Yield each batch with the results of `inspect` for its items, in their order; `CONCURRENCY` items run at once.

    Batches are drawn in the caller's thread, one after another. The first error of `inspect` is raised.
    """
    for some in batches:
        yield some, concurrently(inspect, some)
