"""Executors of commands that have many tasks: threads, processes of this machine, or whatever is handed in.

An executor takes a function and items, all of them picklable, and gives the results in the items' order. It draws an
item when a worker is free for it, so that the caller can end the work early.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from offload_hooks.bounded_map import bounded_map, pool_map
from offload_hooks.errors import OffloadError, OptionError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


_is_second_try: ContextVar[bool] = ContextVar("_is_second_try", default=False)


def is_second_try() -> bool:
    """True if the item in hand was given to another worker before, which may still work on it; only Spark does that."""
    return _is_second_try.get()


@contextmanager
def trying(is_second: bool) -> Iterator[None]:
    """Have `is_second_try` return this in the block."""
    token = _is_second_try.set(is_second)
    try:
        yield
    finally:
        _is_second_try.reset(token)


class Executor(Protocol):
    """Runs picklable work on picklable items.

    An item may be given to several workers, one after another or at once; work that must not be done twice asks
    `is_second_try`.

    Attributes:
        processes: how many work at once, as far as it is known.
    """

    @property
    def processes(self) -> int: ...  # noqa: D102 - see the class

    def run(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """The results in order of the items; the first error of `work` is raised at its place."""


class ThreadExecutor:
    """Threads of this process: `workers`, or one for each core."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = _checked(workers)

    @property
    def processes(self) -> int:
        """This one."""
        return 1

    def run(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """See `Executor`."""
        return bounded_map(work, items, at_once=self._workers, ahead=self._workers, name="offload-worker")


class ProcessExecutor:
    """New processes of this machine: `workers`, or one for each core.

    They import the program's main module: a script guards what it does by `if __name__ == "__main__"`.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = _checked(workers)

    @property
    def processes(self) -> int:
        """See `Executor`."""
        return self._workers

    def run(self, work: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
        """See `Executor`."""
        pool = ProcessPoolExecutor(
            self._workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_receive,
            initargs=(pickle.dumps(work),),
        )
        try:
            yield from pool_map(pool, lambda item: pool.submit(_work, item), items, ahead=self._workers)
        except BrokenExecutor as error:
            raise OffloadError(
                "a worker process ended before its work was done",
                hint="Was it killed, or is there too little memory?",
            ) from error


def _checked(workers: int | None) -> int:
    if workers is not None and workers < 1:
        raise OptionError("there is no work without a worker", expected="1 or more", found=workers)
    return workers or os.cpu_count() or 1


_received: list[Callable[[Any], Any]] = []


def _receive(work: bytes) -> None:
    """A new process learns what it will do: once, so that it opens its tier once.

    A terminal's Ctrl-C reaches every process; the parent decides how to end. When the parent is gone, this process
    ends.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _received[:] = [pickle.loads(work)]  # noqa: S301 - from the process that started this one


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(item: Any) -> Any:
    return _received[0](item)
