"""Many small requests at once: what finds out where things are waits for a store far away, not for the processor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

from offload_core.storage.executors import Executor
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import OffloadError

CONCURRENCY = 128
"""Requests at once."""

MOST_TOGETHER = 16
"""The most items that one thread takes at a time: many items must not become as many futures."""

AT_ONCE = 2048
"""Items that are looked at here before their results are taken."""

AT_ONCE_BY_OTHERS = 512
"""The same where an executor does it, which may have hundreds of such batches under way, and their results."""

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


def batch_size(executor: Executor | None) -> int:
    """Return how many items `look_at` takes well at a time."""
    return AT_ONCE if executor is None else AT_ONCE_BY_OTHERS


def in_batches(items: Iterable[_T], executor: Executor | None) -> Iterator[list[_T]]:
    """The items in such batches."""
    rest = iter(items)
    while some := list(islice(rest, batch_size(executor))):
        yield some


def look_at(
    batches: Iterable[Sequence[_T]], look: Callable[[_T], _R], executor: Executor | None = None
) -> Iterator[tuple[Sequence[_T], list[_R]]]:
    """Each batch, and what `look` says of its items, `CONCURRENCY` of which are looked at together; in their order.

    Batches are drawn in the caller's thread, some of them ahead of the results, so that what the caller keeps of them
    (files, tables, records) is not the executor's business.

    Args:
        look: picklable, where the executor needs that.
        executor: who looks, a batch at a time each; None for this process, which looks at one batch after another.

    Raises:
        OffloadError: the first of `look`, as it was raised; of the executor.
    """
    drawn: deque[Sequence[_T]] = deque()

    def drawing() -> Iterator[Sequence[_T]]:
        for some in batches:
            drawn.append(some)
            yield some

    work = _Looks(look)
    results = (work(some) for some in drawing()) if executor is None else executor.run(work, drawing())
    try:
        for result in results:
            if isinstance(result, OffloadError):
                raise result
            yield drawn.popleft(), result
    finally:
        if isinstance(results, Generator):
            results.close()  # what is under way ends here and now


@dataclass(frozen=True, slots=True)
class _Looks:
    """The work of an executor: a whole batch, whose first error is its result, so that it is not all tried again."""

    look: Callable[[Any], Any]

    def __call__(self, some: Sequence[Any]) -> list[Any] | OffloadError:
        try:
            return concurrently(self.look, some)
        except OffloadError as error:
            return error
