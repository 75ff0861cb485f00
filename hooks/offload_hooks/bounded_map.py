"""Work on many items in threads, a bounded number at a time, with results in the items' order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def bounded_map(
    work: Callable[[_Item], _Result],
    items: Iterable[_Item],
    *,
    at_once: int,
    name: str,
    ahead: int | None = None,
    waits_after: Callable[[_Item], bool] | None = None,
) -> Generator[_Result, None, None]:
    """Do `work` on items in threads and yield the results in the items' order.

    Items are drawn in the caller's thread, and `work` has the caller's context variables. Once an item has failed no
    further one is drawn, and its error is raised at its place. Then, and when the generator is closed, work that has
    begun is waited for and the rest is cancelled. Close the generator if it is not read to its end.

    Args:
        at_once: the number of threads.
        name: of the threads.
        ahead: the most items that are drawn and whose result is not taken; twice `at_once` by default.
        waits_after: true of an item after which none is drawn until the next result is asked for.
    """
    pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
    yield from pool_map(
        pool,
        lambda item: pool.submit(copy_context().run, work, item),
        items,
        ahead=2 * at_once if ahead is None else ahead,
        waits_after=waits_after,
    )


def pool_map(
    pool: Executor,
    submit: Callable[[_Item], Future[_Result]],
    items: Iterable[_Item],
    *,
    ahead: int,
    waits_after: Callable[[_Item], bool] | None = None,
) -> Generator[_Result, None, None]:
    """Do the same in a pool of any kind, which ends with the work: see `bounded_map`."""
    source = iter(items)
    under_way: deque[Future[_Result]] = deque()
    room = ahead
    caller = threading.get_ident()
    failed = threading.Event()

    def note(future: Future[_Result]) -> None:
        if future.cancelled() or future.exception() is not None:
            failed.set()

    def fill() -> None:
        nonlocal room
        while len(under_way) < room and not failed.is_set():
            try:
                item = next(source)
            except StopIteration:
                return
            room = 0 if waits_after is not None and waits_after(item) else ahead
            under_way.append(submit(item))
            under_way[-1].add_done_callback(note)

    try:
        fill()
        while under_way:
            result = under_way.popleft().result()
            fill()
            yield result
            del result  # it may be large
            if not under_way:
                room = ahead
                fill()
    finally:
        # The garbage collector may close a generator in a thread of this pool, which must not wait for itself.
        pool.shutdown(wait=threading.get_ident() == caller, cancel_futures=True)
