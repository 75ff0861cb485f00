"""Threads for the work of many tenants, of which no tenant has all: another's work goes on if a store never answers."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

_Work = tuple["Future[None]", Callable[[], None]]


class TenantThreads:
    """At most `threads` things of a tenant are done at the same time, and at most one more of all.

    Args:
        threads: how many. name: what its threads are called.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._of_tenant = threads
        self._pool = ThreadPoolExecutor(threads + 1, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._begun: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Work]] = {}

    def submit(self, tenant: str, work: Callable[[], None]) -> Future[None]:
        """Do work of a tenant when it is its turn.

        Raises:
            RuntimeError: it is shut down.
        """
        future: Future[None] = Future()
        with self._lock:
            if self._begun[tenant] >= self._of_tenant:
                self._waiting.setdefault(tenant, deque()).append((future, work))
            else:
                self._begin(tenant, future, work)
        return future

    def shutdown(self) -> None:
        """Begin nothing more; what waits is cancelled, what is being done goes on."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            waiting = [future for queue in self._waiting.values() for future, _ in queue]
            self._waiting.clear()
        for future in waiting:
            _cancel(future)

    def _begin(self, tenant: str, future: Future[None], work: Callable[[], None]) -> None:
        """The lock is held."""
        begun = self._pool.submit(self._do, tenant, future, work)
        self._begun[tenant] += 1
        begun.add_done_callback(lambda done: _cancel(future) if done.cancelled() else None)

    def _do(self, tenant: str, future: Future[None], work: Callable[[], None]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                try:
                    work()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(None)
        finally:
            with self._lock:
                self._begun[tenant] -= 1
                if not self._begun[tenant]:
                    del self._begun[tenant]
                queue = self._waiting.get(tenant)
                if queue:
                    following = queue.popleft()
                    if not queue:
                        del self._waiting[tenant]
                    try:
                        self._begin(tenant, *following)
                    except RuntimeError:  # it was shut down
                        _cancel(following[0])


def _cancel(future: Future[None]) -> None:
    """Cancel what has not begun, so that who waits for it does not wait."""
    if future.cancel():
        future.set_running_or_notify_cancel()
