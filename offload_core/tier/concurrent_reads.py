"""Many ranges at once, for a store that can only read one: a small pool of threads.

The pool is made at the first use in each process: threads do not survive a fork.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from offload_hooks import ByteRange, ReadableBuffer

THREADS = 8


class ReadsRange(Protocol):
    """Whatever has the hook `read_range`."""

    @property
    def read_range(self) -> _ReadRange:
        """The hook, called by keyword."""


class _ReadRange(Protocol):
    def __call__(self, *, key: str, offset: int, length: int) -> ReadableBuffer: ...


class ConcurrentReads:
    """The hook `read_ranges` made of `read_range`.

    Each level of a chain has one of its own, so that a layer's `read_range` which calls `read_ranges` of
    what is below it never waits for a thread that waits for it.
    """

    def __init__(self, source: ReadsRange) -> None:
        self._source = source
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def __call__(self, *, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """Read all ranges, in their order; the error of the first one that fails is raised."""
        if len(ranges) < 2:
            return [self._read(each) for each in ranges]
        pool = self._pool()
        futures = [pool.submit(self._read, each) for each in ranges]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Stop this process's threads, if there are any; a later call starts new ones."""
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.shutdown()

    def _read(self, wanted: ByteRange) -> ReadableBuffer:
        return self._source.read_range(key=wanted.key, offset=wanted.offset, length=wanted.length)

    def _pool(self) -> ThreadPoolExecutor:
        # No lock, which a fork could copy while it is held: whoever comes second uses the pool of the
        # first; the pool that it made in vain has no threads yet.
        process = os.getpid()
        pool = self._pools.get(process)
        if pool is None:
            pool = self._pools.setdefault(
                process, ThreadPoolExecutor(THREADS, thread_name_prefix="tier-read")
            )
        return pool
