"""fsspec file systems as drivers use them: one for each process, called from any thread. Nothing else imports fsspec.

An asynchronous file system belongs to an event loop, and a loop to a process: one that a fork copied never answers.
So a driver holds a recipe, and each process makes its own file system from it at the first use, with listing cache
and instance cache off: what others write is seen at once, and nothing is shared behind a driver's back.

What a forked child inherits it must not even drop: an HTTP client that is dropped unregisters its sockets, and does so
with the parent, whose epoll instance the child shares. The parent would then wait for answers that came long ago.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from fsspec.asyn import reset_lock, sync
from fsspec.exceptions import FSTimeoutError

_T = TypeVar("_T")

RECIPE_DEFAULTS: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
"""What every file system is made with."""

_recipes: weakref.WeakSet[ProcessFilesystem] = weakref.WeakSet()


class ProcessFilesystem:
    """One file system for each process, made by `make` at its first use there.

    Args:
        make: makes the file system; it is called again after a fork, and after `close`.
        shut: gives back a file system's connections; called by the process that made it.
    """

    def __init__(self, make: Callable[[], Any], shut: Callable[[Any], None]) -> None:
        self._make = make
        self._shut = shut
        self._made: dict[int, Any] = {}
        _recipes.add(self)

    def get(self) -> Any:
        """This process's file system."""
        # No lock, which a fork could copy while it is held: the second thread uses what the first one made.
        process = os.getpid()
        filesystem = self._made.get(process)
        if filesystem is None:
            filesystem = self._made.setdefault(process, self._make())
        return filesystem

    def run(self, call: Callable[..., Awaitable[_T]], *arguments: Any, **named: Any) -> _T:
        """Call a coroutine function on the file system's loop and wait for its answer."""
        try:
            return sync(self.get().loop, call, *arguments, **named)  # type: ignore[no-any-return]
        except FSTimeoutError as error:
            # fsspec puts this in the place of any TimeoutError, of ours as well, which tells more.
            timed_out = error.__cause__ or error
        raise timed_out

    def run_all(self, calls: Iterable[Callable[[], Awaitable[_T]]], at_once: int) -> list[_T]:
        """Call many coroutine functions, some at once, and answer in their order; the first error ends all."""
        return self.run(_all, list(calls), at_once)

    def close(self) -> None:
        """Give back this process's connections; a later use makes new ones."""
        filesystem = self._made.pop(os.getpid(), None)
        if filesystem is not None:
            self._shut(filesystem)


def _keep_inherited() -> None:
    """Give what the parent made one reference more than there are, so that it outlives the child's last moment."""
    for recipe in list(_recipes):
        for filesystem in recipe._made.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(filesystem))


os.register_at_fork(after_in_child=_keep_inherited)
os.register_at_fork(after_in_child=reset_lock)  # a thread may hold it that the child does not have


async def _all(calls: list[Callable[[], Awaitable[_T]]], at_once: int) -> list[_T]:
    room = asyncio.Semaphore(at_once)

    async def one(call: Callable[[], Awaitable[_T]]) -> _T:
        async with room:
            return await call()

    tasks = [asyncio.ensure_future(one(call)) for call in calls]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
