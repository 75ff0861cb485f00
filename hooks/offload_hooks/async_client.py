"""Call an asynchronous client from hooks, which are synchronous and come from many threads and after forks."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from typing import Any, Generic, TypeVar

from offload_hooks.errors import StoreTimeoutError, StoreUnavailableError

_Client = TypeVar("_Client")
_Answer = TypeVar("_Answer")

_CLOSE_WITHIN_S = 5.0

_inherited: list[_Loop] = []
"""Loops of the processes that this one was forked from: kept, since collecting them would touch their connections."""


class AsyncClient(Generic[_Client]):
    """One client for each process, on an event loop in a thread of its own; both are made at the first call.

    A driver has one, calls it in its hooks, and closes it in its own `close()`:

        self._client = AsyncClient(self._connect, lambda client: client.aclose())

        @hookimpl
        def read_range(self, key, offset, length):
            return self._client.call(lambda client: client.get_range(key, offset, length))

    A forked child connects anew: the connections of its parent stay the parent's. Coroutines have the context variables
    of the thread that calls. A call that is interrupted, by Ctrl-C for one, cancels its coroutine.

    Args:
        connect: makes the client, on the loop; called again after it failed, after `close` and in a forked child.
        close: gives back the client's connections, on the loop; none if the client has nothing to give back.
        timeout_s: the longest that one call may take, in seconds: a second bound above the client's own.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[_Client]],
        close: Callable[[_Client], Awaitable[object]] | None = None,
        *,
        timeout_s: float = 300.0,
    ) -> None:
        self._connect = connect
        self._close = close
        self._timeout_s = timeout_s
        self._made: dict[int, _Loop] = {}
        _clients.add(self)

    def call(self, ask: Callable[[_Client], Awaitable[_Answer]]) -> _Answer:
        """Wait for the answer of a coroutine function that is given the client; its errors are raised here.

        Raises:
            StoreTimeoutError: no answer within `timeout_s`; the coroutine is cancelled.
            StoreUnavailableError: the client was closed meanwhile by another thread.
        """
        loop = self._loop()

        async def answer() -> _Answer:
            async with loop.connecting:
                if loop.client is None:
                    loop.client = await self._connect()
            return await ask(loop.client)

        return loop.run(answer(), self._timeout_s)

    def iterate(self, ask: Callable[[_Client], AsyncIterator[_Answer]]) -> Iterator[_Answer]:
        """Yield what an asynchronous iterator of the client yields, each item as it is asked for.

        Each item crosses to the loop and back, so of a listing ask for pages. Close it, or read it to its end.
        """
        items: list[AsyncIterator[_Answer]] = []

        async def following(client: _Client) -> tuple[_Answer] | None:
            if not items:
                items.append(aiter(ask(client)))
            with suppress(StopAsyncIteration):
                return (await anext(items[0]),)
            return None

        async def end(_: _Client) -> None:
            if hasattr(items[0], "aclose"):
                await items[0].aclose()

        try:
            while (found := self.call(following)) is not None:
                yield found[0]
        finally:
            if items:
                self.call(end)

    def close(self) -> None:
        """Give back this process's connections and end its loop; a later call makes new ones."""
        loop = self._made.pop(os.getpid(), None)
        if loop is not None:
            loop.end(self._close)

    def _loop(self) -> _Loop:
        # No lock, which a fork could copy while it is held: the second thread uses what the first one made.
        process = os.getpid()
        loop = self._made.get(process)
        if loop is None:
            _inherited.extend(self._made.values())
            loop = self._made.setdefault(process, _Loop())
        return loop


_clients: weakref.WeakSet[AsyncClient[Any]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for client in list(_clients):
        client.close()


class _Loop:
    """An event loop, the thread that it runs in, and the client that lives there."""

    def __init__(self) -> None:
        self.client: Any = None
        self.connecting = asyncio.Lock()
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, _Answer], timeout_s: float) -> _Answer:
        """The answer of a coroutine that runs on the loop; raises as `AsyncClient.call`."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError(
                "a coroutine of the client calls it synchronously: the loop would wait for itself"
            )
        future = None
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._started())
            wait([future], timeout_s)
            if not future.done():
                raise StoreTimeoutError(f"the store's client gave no answer within {timeout_s:g} s")
            return future.result()
        except CancelledError:
            raise StoreUnavailableError("the store's client was closed while it was asked") from None
        finally:
            if future is not None:
                future.cancel()

    def end(self, close: Callable[[Any], Awaitable[object]] | None) -> None:
        """Cancel what runs on the loop, give back the client's connections, and end the thread."""
        with self._starting:
            loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return

        async def leave() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            if close is not None and self.client is not None:
                await close(self.client)

        leaving = asyncio.run_coroutine_threadsafe(leave(), loop)
        wait([leaving], _CLOSE_WITHIN_S)
        loop.call_soon_threadsafe(loop.stop)
        if threading.current_thread() is not thread:
            thread.join(_CLOSE_WITHIN_S)
        if leaving.done() and not leaving.cancelled():
            leaving.result()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="offload-async-client", daemon=True
                )
                self._thread.start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
