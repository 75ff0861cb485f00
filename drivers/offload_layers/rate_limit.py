"""The layer `rate-limit`: at most so many requests and bytes in a second, for each process that uses the Tier.

It only delays. What counts, before the call is let through:
- requests: one for each call; one for each range of `read_ranges` and each key of `delete`; for a listing one when it
  begins and one after each 1,000 objects or uploads that were taken from it, the usual size of a store's page;
- bytes: what is read or written by `read_range`, `read_ranges`, `write_block` and `write_index`; what `read_object`
  reads is known only afterwards, so the next call waits for it.

`describe` asks nothing of the store and counts for nothing. Below the layer `retry` each attempt counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from offload_hooks import ByteRange, ReadableBuffer, WholeObject, hookimpl
from offload_hooks.option_text import as_rate, as_seconds
from offload_hooks.token_bucket import TokenBucket
from offload_layers.per_process import PerProcess
from offload_layers.rest import Rest

PAGE = 1000

_T = TypeVar("_T")
_Wrapper = Generator[None, Any, Any]


class RateLimitLayer:
    """Delays calls so that a process keeps to a rate.

    Args:
        rest: the hooks below.
        requests_per_second: the rate of requests; none: no limit.
        bytes_per_second: the rate of bytes; none: no limit.
        burst_s: how many seconds' worth may come at once after a pause.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)
    sleep: Callable[[float], None] = staticmethod(time.sleep)

    def __init__(
        self,
        rest: Rest,  # noqa: ARG002
        requests_per_second: float | str | None = None,
        bytes_per_second: float | str | None = None,
        burst_s: float | str = 1.0,
    ) -> None:
        burst = as_seconds("burst_s", burst_s)
        requests = as_rate("requests_per_second", requests_per_second)
        volume = as_rate("bytes_per_second", bytes_per_second)
        self._requests = None if requests is None else PerProcess(lambda: self._bucket(requests, burst))
        self._bytes = None if volume is None else PerProcess(lambda: self._bucket(volume, burst))

    @hookimpl(wrapper=True)
    def begin_data(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._delayed())

    @hookimpl(wrapper=True)
    def write_block(self, data: ReadableBuffer) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._delayed(volume=memoryview(data).nbytes))

    @hookimpl(wrapper=True)
    def commit_data(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._delayed())

    @hookimpl(wrapper=True)
    def abort_data(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._delayed())

    @hookimpl(wrapper=True)
    def write_index(self, data: ReadableBuffer) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._delayed(volume=memoryview(data).nbytes))

    @hookimpl(wrapper=True)
    def read_range(self, length: int) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._delayed(volume=length))

    @hookimpl(wrapper=True)
    def read_ranges(self, ranges: Sequence[ByteRange]) -> _Wrapper:
        """See `TierHooks`."""
        volume = sum(wanted.length for wanted in ranges)
        return (yield from self._delayed(requests=len(ranges), volume=volume))

    @hookimpl(wrapper=True)
    def read_object(self) -> _Wrapper:
        """See `TierHooks`."""
        whole: WholeObject = yield from self._delayed()
        if self._bytes is not None and whole.stat.size_bytes:
            self._bytes.get().take(whole.stat.size_bytes)
        return whole

    @hookimpl(wrapper=True)
    def stat(self) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._delayed())

    @hookimpl(wrapper=True)
    def list_objects(self) -> _Wrapper:
        """See `TierHooks`."""
        return self._by_pages((yield from self._delayed()))

    @hookimpl(wrapper=True)
    def delete(self, keys: Sequence[str]) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._delayed(requests=len(keys)))

    @hookimpl(wrapper=True)
    def list_uploads(self) -> _Wrapper:
        """See `TierHooks`."""
        return self._by_pages((yield from self._delayed()))

    def _delayed(self, requests: int = 1, volume: int = 0) -> _Wrapper:
        self._wait(requests, volume)
        return (yield)

    def _by_pages(self, listed: Iterator[_T]) -> Iterator[_T]:
        for count, item in enumerate(listed, start=1):
            yield item
            if count % PAGE == 0:
                self._wait(1, 0)

    def _wait(self, requests: int, volume: int) -> None:
        wait_s = 0.0
        if self._requests is not None:
            wait_s = self._requests.get().take(requests)
        if self._bytes is not None and volume > 0:
            wait_s = max(wait_s, self._bytes.get().take(volume))
        if wait_s > 0:
            self.sleep(wait_s)

    def _bucket(self, rate: float, burst_s: float) -> TokenBucket:
        return TokenBucket(rate, burst_s, self.clock)
