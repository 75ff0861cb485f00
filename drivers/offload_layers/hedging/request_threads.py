"""Threads for requests that nobody may wait for: each has one of its own, and there are at most so many at once.

They are daemons: a request that hangs keeps no program from ending. A pool would let a request wait in its line behind
those that hang; here `start` says at once that there is no thread left.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


class RequestThreads:
    """Runs calls in threads, at most `most` at once."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, most: int) -> None:
        self._slots = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._running: set[threading.Thread] = set()

    def start(self, call: Callable[[], _T]) -> Future[_T] | None:
        """Begin a call in a thread, with the caller's context variables; None if no thread is left."""
        if not self._slots.acquire(blocking=False):
            return None
        future: Future[_T] = Future()
        context = contextvars.copy_context()
        thread = threading.Thread(
            target=lambda: context.run(self._run, call, future), name="offload-hedging", daemon=True
        )
        with self._lock:
            self._running.add(thread)
        try:
            thread.start()
        except RuntimeError:  # the system gives no more threads
            self._over(thread)
            return None
        return future

    def wait(self, longest_s: float) -> None:
        """Wait for the calls that are under way, at most so long for all of them together."""
        with self._lock:
            running = list(self._running)
        until = self.clock() + longest_s
        for thread in running:
            thread.join(max(0.0, until - self.clock()))

    def _run(self, call: Callable[[], _T], future: Future[_T]) -> None:
        try:
            answer = call()
        except BaseException as error:
            self._over(threading.current_thread())
            future.set_exception(error)
        else:
            self._over(threading.current_thread())
            future.set_result(answer)

    def _over(self, thread: threading.Thread) -> None:
        with self._lock:
            self._running.discard(thread)
        self._slots.release()
