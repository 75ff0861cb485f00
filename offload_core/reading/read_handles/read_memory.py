"""Hold what cold readers keep, of all that this process has open, within one budget of bytes.

It holds windows of data objects, as they were fetched, and anchors: places where entries begin, found by walking or
read from a directory. The least recently used are dropped first, and windows before anchors while anchors take less
than half. Blocks of open readers are pinned, and leave less for the rest. Two readers of one window wait for one
request.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from weakref import WeakKeyDictionary

from offload_core.format.codec.entry_directory import Anchors
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError

DEFAULT_MEMORY_BYTES = 128 << 20
PREFETCH_THREADS = 8

_ENTRY_BYTES = 400
"""Memory for bookkeeping of one window, or of one ledger's anchors."""

Fetch = Callable[[], memoryview]
_Window = tuple["Future[memoryview]", int]


class ReadMemory:
    """A budget of which at most `limit_bytes` are held. Calls may come from many threads.

    What a read that is under way has in its hands is not counted: one window for each, or what one entry larger than a
    window takes, or a part of a block that is walked.

    Raises:
        OptionError: the limit is not positive.
    """

    def __init__(self, limit_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        if limit_bytes < 1:
            raise OptionError("the memory of readers is at least one byte", found=limit_bytes)
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._windows: OrderedDict[Hashable, _Window] = OrderedDict()
        self._anchors: OrderedDict[Hashable, Anchors] = OrderedDict()
        self._window_bytes = self._anchor_bytes = self._pinned_bytes = 0
        self._tiers: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._tokens = itertools.count()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def held_bytes(self) -> int:
        """The number of bytes that are held now."""
        with self._lock:
            return self._held()

    def token(self, tier: Tier) -> int:
        """A number for this Tier and its views that no other one gets."""
        with self._lock:
            return self._tiers.setdefault(tier.identity, next(self._tokens))

    def pin(self, count: int) -> None:
        """Count this many bytes that a reader holds while it is open (fewer, if negative)."""
        with self._lock:
            self._pinned_bytes += count
            self._trim()

    # --- windows -------------------------------------------------------------------------------

    def window(self, key: Hashable, length: int, fetch: Fetch) -> memoryview:
        """The window of this key: held, being fetched, or fetched now. `length` bytes.

        Raises:
            whatever `fetch` raises. An error of another reader's request, or of a prefetch, is not passed on.
        """
        with self._lock:
            known = self._windows.get(key)
            if known is not None and not known[0].cancel():
                self._windows.move_to_end(key)
            else:
                known, mine = None, self._add(key, length)
                mine.set_running_or_notify_cancel()
        if known is None:
            return self._run(key, mine, fetch)
        try:
            return known[0].result()
        except Exception:
            return fetch()

    def prefetch(self, key: Hashable, length: int, fetch: Fetch) -> None:
        """Begin to fetch a window that will be needed soon, if it is not here; the read that needs it gets errors."""
        with self._lock:
            room = self.limit_bytes - self._anchor_bytes - self._pinned_bytes
            if key in self._windows or length > room:
                return
            future = self._add(key, length)

            def run() -> None:
                if future.set_running_or_notify_cancel():
                    self._run(key, future, fetch)

            if self._pool is None:
                self._pool = ThreadPoolExecutor(PREFETCH_THREADS, thread_name_prefix="cold-prefetch")
            self._pool.submit(copy_context().run, run)  # with the lock: none that `close` has taken

    def _run(self, key: Hashable, future: Future[memoryview], fetch: Fetch) -> memoryview:
        try:
            data = fetch()
        except BaseException as error:
            with self._lock:
                if self._windows.get(key, (None, 0))[0] is future:
                    self._drop(key)
            future.set_exception(error)
            raise
        future.set_result(data)
        return data

    # --- anchors -------------------------------------------------------------------------------

    def anchors(self, key: Hashable) -> Anchors | None:
        """The known anchors of a ledger in an object."""
        with self._lock:
            known = self._anchors.get(key)
            if known is not None:
                self._anchors.move_to_end(key)
            return known

    def learn(self, key: Hashable, anchors: Anchors) -> None:
        """Keep more anchors."""
        with self._lock:
            known = self._anchors.pop(key, None)
            if known is not None:
                self._anchor_bytes -= _size_of(known)
                anchors = known.joined(anchors)
            self._anchors[key] = anchors
            self._anchor_bytes += _size_of(anchors)
            self._trim()

    # --- the memory itself ---------------------------------------------------------------------

    def close(self) -> None:
        """Drop everything, and stop the threads; it can be used further."""
        with self._lock:
            self._windows.clear()
            self._anchors.clear()
            self._window_bytes = self._anchor_bytes = 0
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def _held(self) -> int:
        return self._window_bytes + self._anchor_bytes + self._pinned_bytes

    def _add(self, key: Hashable, length: int) -> Future[memoryview]:
        if key in self._windows:
            self._drop(key)
        future: Future[memoryview] = Future()
        self._windows[key] = (future, length + _ENTRY_BYTES)
        self._window_bytes += length + _ENTRY_BYTES
        self._trim()
        return future

    def _drop(self, key: Hashable) -> None:
        self._window_bytes -= self._windows.pop(key)[1]

    def _trim(self) -> None:
        """Drop the least recently used until the rest fits."""
        while self._held() > self.limit_bytes and (self._windows or self._anchors):
            if self._windows and self._anchor_bytes <= self.limit_bytes // 2:
                self._drop(next(iter(self._windows)))
            elif self._anchors:
                _, forgotten = self._anchors.popitem(last=False)
                self._anchor_bytes -= _size_of(forgotten)
            else:
                self._drop(next(iter(self._windows)))


def _size_of(anchors: Anchors) -> int:
    return anchors.entry_ids.nbytes + anchors.offsets.nbytes + _ENTRY_BYTES


_of_process: dict[int, ReadMemory] = {}


def process_memory() -> ReadMemory:
    """The memory that all readers of this process share, unless they are given another."""
    memory = _of_process.get(os.getpid())
    if memory is None:
        memory = _of_process.setdefault(
            os.getpid(), ReadMemory()
        )  # no lock, which a fork could copy while held
    return memory
