"""The layer `hedging`: a range that is slow is asked for once more, and the first answer counts.

Each range of `read_range` and `read_ranges` is a request of its own, in a thread. When it has no answer after a delay,
a second one is sent, at most one for each range, and only while hedges are no more than a share of all requests. The
request that comes second is left to end by itself, its answer dropped. An error counts when no request of its range
is under way any more: the first one's is raised. Failing at once is no slowness: to ask again is the layer `retry`'s.

When no thread is left, ranges are read by the caller's own thread, by one `read_ranges`, without hedges. So slow
requests never make others wait for threads.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from typing import TypeVar

from offload_hooks import ByteRange, ReadableBuffer, hookimpl
from offload_hooks.errors import OptionError
from offload_hooks.option_text import as_count, as_seconds
from offload_layers.per_process import PerProcess
from offload_layers.rest import Rest

KNOWN_ENOUGH = 20
"""How many durations must be known before their 95th percentile says anything."""

_RECENT = 128
_MOST_SAVED = 10.0  # hedges that a quiet time leaves for a bad one


class HedgePolicy:
    """Says after how long a range is slow, and pays for hedges out of a budget.

    Args:
        delay_s: the fixed delay; None: the 95th percentile of recent reads of about the same length.
        least_delay_s: the least delay of the latter.
        share: how many hedges each request pays for, below 1.
    """

    def __init__(self, delay_s: float | None, least_delay_s: float, share: float) -> None:
        self._delay_s = delay_s
        self._least_delay_s = least_delay_s
        self._share = share
        self._saved = 0.0
        self._lock = threading.Lock()
        self._durations: dict[int, deque[float]] = {}

    def delay_s(self, length: int) -> float | None:
        """How long a read of this length may take before it is slow; None while that is not known."""
        if self._delay_s is not None:
            return self._delay_s
        with self._lock:
            durations = sorted(self._durations.get(_size_class(length), ()))
        if len(durations) < KNOWN_ENOUGH:
            return None
        return max(self._least_delay_s, durations[len(durations) * 95 // 100])

    def took(self, length: int, duration_s: float) -> None:
        """Note how long a read took."""
        with self._lock:
            self._durations.setdefault(_size_class(length), deque(maxlen=_RECENT)).append(duration_s)

    def requested(self, count: int) -> None:
        """Note requests, which pay into the budget."""
        with self._lock:
            self._saved = min(_MOST_SAVED, self._saved + count * self._share)

    def may_hedge(self) -> bool:
        """Pay for one hedge if the budget allows."""
        with self._lock:
            if self._saved < 1:
                return False
            self._saved -= 1
            return True


def _size_class(length: int) -> int:
    """Lengths within a factor of four are alike."""
    return length.bit_length() // 2


# Each request has a thread of its own, and there is a limit of threads. They are daemons: a request that hangs keeps no
# program from ending. In a pool a request would queue after those that hang; here `start` returns at once if there is
# no thread left.


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


CLOSE_S = 5.0
"""How long `close` waits for requests whose answers nobody wants any more."""


@dataclass(slots=True, kw_only=True)
class _Read:
    """A range that is being read."""

    index: int
    wanted: ByteRange
    hedge_at: float
    under_way: int = 1
    errors: list[BaseException] = field(default_factory=list)


class HedgingLayer:
    """Asks once more for ranges that are slow.

    Args:
        rest: the hooks below.
        delay_s: after how long a range is slow; none: the 95th percentile of the recent reads of about that length,
            once 20 of them are known.
        least_delay_s: the least delay when it is found that way.
        budget_percent: hedges are at most this share of all requests, below 100.
        threads: the most requests under way at once in one process, hedges included.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(
        self,
        rest: Rest,
        delay_s: float | str | None = None,
        least_delay_s: float | str = 0.05,
        budget_percent: float | str = 5.0,
        threads: int | str = 32,
    ) -> None:
        self._rest = rest
        fixed_s = None if delay_s is None or delay_s == "" else as_seconds("delay_s", delay_s)
        least_s = as_seconds("least_delay_s", least_delay_s)
        share = as_seconds("budget_percent", budget_percent) / 100
        most = as_count("threads", threads)
        if share >= 1:
            raise OptionError("the option 'budget_percent' is too large", expected="less than 100")
        self._policy = PerProcess(lambda: HedgePolicy(fixed_s, least_s, share))
        self._threads = PerProcess(lambda: RequestThreads(most))

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> ReadableBuffer:
        """See `TierHooks`."""
        return self._read([ByteRange(key=key, offset=offset, length=length)])[0]

    @hookimpl
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """See `TierHooks`."""
        return self._read(ranges)

    def close(self) -> None:
        """Wait for the requests of this process that are still under way."""
        threads = self._threads.made()
        if threads is not None:
            threads.wait(CLOSE_S)

    def _read(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        policy = self._policy.get()
        policy.requested(len(ranges))
        reads: dict[Future[ReadableBuffer], _Read] = {}
        for index, wanted in enumerate(ranges):
            future = self._start(wanted)
            if future is None:
                break
            delay_s = policy.delay_s(wanted.length)
            hedge_at = float("inf") if delay_s is None else self.clock() + delay_s
            reads[future] = _Read(index=index, wanted=wanted, hedge_at=hedge_at)
        left = ranges[len(reads) :]
        # Those without a thread are read here meanwhile; hedges of the others come late then.
        answers: dict[int, ReadableBuffer] = dict(enumerate(self._unhedged(left), start=len(reads)))
        while len(answers) < len(ranges):
            self._step(reads, answers)
        return [answers[index] for index in range(len(ranges))]

    def _unhedged(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        if len(ranges) == 1:
            (wanted,) = ranges
            return [self._rest.read_range(key=wanted.key, offset=wanted.offset, length=wanted.length)]
        return self._rest.read_ranges(ranges=ranges) if ranges else []

    def _step(self, reads: dict[Future[ReadableBuffer], _Read], answers: dict[int, ReadableBuffer]) -> None:
        """Wait for an answer or until a range is slow, and act on it."""
        hedge_at = min(read.hedge_at for read in reads.values())
        timeout_s = None if hedge_at == float("inf") else max(0.0, hedge_at - self.clock())
        done, _ = wait_for(reads, timeout_s, FIRST_COMPLETED)
        for future in done:
            read = reads.pop(future, None)
            if read is None:  # the other request of this range has answered in the same moment
                continue
            error = future.exception()
            if error is None:
                answers[read.index] = future.result()
                self._forget(reads, read)
                continue
            read.under_way -= 1
            read.hedge_at = float("inf")
            read.errors.append(error)
            if not read.under_way:
                raise read.errors[0]
        now = self.clock()
        for read in [read for read in reads.values() if read.hedge_at <= now]:
            read.hedge_at = float("inf")
            hedge = self._start(read.wanted) if self._policy.get().may_hedge() else None
            if hedge is not None:
                read.under_way += 1
                reads[hedge] = read

    def _forget(self, reads: dict[Future[ReadableBuffer], _Read], answered: _Read) -> None:
        for future in [future for future, read in reads.items() if read is answered]:
            del reads[future]

    def _start(self, wanted: ByteRange) -> Future[ReadableBuffer] | None:
        policy = self._policy.get()

        def read() -> ReadableBuffer:
            begun = self.clock()
            data = self._rest.read_range(key=wanted.key, offset=wanted.offset, length=wanted.length)
            policy.took(wanted.length, self.clock() - begun)
            return data

        return self._threads.get().start(read)
