"""fsspec file systems as drivers use them: one for each process, called from any thread. Nothing else imports fsspec.

An asynchronous file system belongs to an event loop, and a loop to a process: one that a fork copied never answers.
So a driver holds a recipe, and each process makes its own file system from it at the first use, with listing cache
and instance cache off: what others write is seen at once, and nothing is shared behind a driver's back.

What a forked child inherits it must not even drop: an HTTP client that is dropped unregisters its sockets, and does so
with the parent, whose epoll instance the child shares. The parent would then wait for answers that came long ago.

Of a file system that is known by its protocol alone, no more is assumed than fsspec's own interface: it may be used by
one thread at a time only, so `FilesystemPool` lends one to each call.
"""

from __future__ import annotations

import asyncio
import ctypes
import difflib
import os
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from fsspec import AbstractFileSystem, available_protocols, get_filesystem_class
from fsspec.asyn import reset_lock, sync
from fsspec.exceptions import FSTimeoutError

from offload_hooks.errors import MissingExtraError, OffloadError, OptionError

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


# --- file systems by their protocol --------------------------------------------------------------


def class_of_protocol(protocol: str) -> type[Any]:
    """The class of file systems that fsspec knows by this name.

    Errors: `OptionError`, with names that are close; `MissingExtraError`, with what fsspec says is to be installed.
    """
    known = available_protocols()
    try:
        return get_filesystem_class(protocol)  # type: ignore[no-any-return]
    except ImportError as error:
        said = str(error).rstrip(".")
        module = str(getattr(error.__cause__, "name", None) or "").partition(".")[0]
        line = f": pip install {module}" if module and module in said else ""
        raise MissingExtraError(
            f"the file system {protocol!r} of fsspec needs a library that is not installed",
            found=f"no module {module!r}" if module else None,
            hint=f"{said}{line}.",
        ) from error
    except ValueError as error:
        close = difflib.get_close_matches(protocol, known, n=3)
        raise OptionError(
            f"fsspec knows no file system {protocol!r}",
            hint=f"{'Close' if close else 'It knows'}: {', '.join(close or sorted(known))}.",
        ) from error


def is_default(filesystem: Any, method: str) -> bool:
    """True if a file system leaves a method to fsspec, which makes it of others."""
    own = getattr(filesystem, method)  # of an asynchronous one that is no bound method
    return getattr(own, "__func__", None) is getattr(AbstractFileSystem, method)


class FilesystemPool:
    """File systems of one kind, each lent to one call at a time and kept for the next one; none crosses a fork.

    Args:
        make: makes one, outside of fsspec's own cache; it may already ask the store.
        shut: gives back its connections.
    """

    def __init__(self, make: Callable[[], Any], shut: Callable[[Any], None]) -> None:
        self._make = make
        self._shut = shut
        self._idle = ProcessFilesystem(deque, self._shut_all)

    @contextmanager
    def lent(self) -> Iterator[Any]:
        """A file system that knows nothing of earlier listings; one that failed is not used again."""
        try:
            filesystem = self._idle.get().pop()
        except IndexError:
            filesystem = self._make()
        is_sound = False
        try:
            filesystem.invalidate_cache()
            yield filesystem
            is_sound = True
        except OffloadError as error:
            is_sound = not error.retryable
            raise
        finally:
            idle = self._idle.get()
            if is_sound and len(idle) < MOST_IDLE:
                idle.append(filesystem)
            else:
                self._shut(filesystem)

    def close(self) -> None:
        """Give back the connections of this process; a later use makes new ones."""
        self._idle.close()

    def _shut_all(self, idle: deque[Any]) -> None:
        while idle:
            self._shut(idle.pop())


MOST_IDLE = 16
"""How many file systems, and so connections, one pool keeps."""
