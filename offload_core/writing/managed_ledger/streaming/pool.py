"""`StreamingPool`: the threads and the memory that all streamed topics of a process share.

A topic has turns, one at a time: it takes one when it was woken, or when a time that it gave has come. Waking it
takes no time; a clock gives the turns, twenty times a second, so that many appends cost one turn. No topic has a
thread of its own.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.clock import system_now_ms
from offload_core.storage.tier import MemoryBudget
from offload_core.storage.tier.memory_budget import DEFAULT_BUDGET_BYTES
from offload_core.writing.audit import AuditLog
from offload_core.writing.managed_ledger.owned_record import OwnedRecord
from offload_core.writing.offload.recorded_segments import RecordedSegments
from offload_core.writing.offload.running_attempt import check_lease_length

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_BUFFER_BYTES = 64 << 20
DEFAULT_LEASE_S = 300.0
"""Longer than that of a ledger's offload: ten thousand open segments renew theirs all the time."""

_TICK_S = 0.05
_TURN_THREADS = 2
_CLOCK_STEP_MS = 1000


class Streamed(Protocol):
    """A topic that has turns."""

    def turn(self) -> None:
        """Do what is due; it raises nothing."""

    def close_early(self) -> None:
        """Close the open segment, for its memory is needed; return at once."""


class StreamingPool:
    """Shared by the managed ledgers of a process; a context. Close it after them.

    Args:
        tiers_of: the tiers of a topic, by its managed ledger's name, open until the context is left.
        budget_bytes: the memory of all blocks, see `SegmentOffloader`.
        buffer_bytes: the memory of entries that wait for their offload.
        threads: call the stores. With 0 nothing runs by itself: `run_due` does what is due, in its caller's thread.
        lease_s: how long other processes leave an attempt of this one alone after its last renewal; to 600 s.
        now_ms: the time, in ms since 1970, UTC.

    Raises:
        OptionError: a budget or a lease that cannot be.
    """

    def __init__(
        self,
        tiers_of: Callable[[str], AbstractContextManager[KnownTiers]],
        *,
        budget_bytes: int = DEFAULT_BUDGET_BYTES,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        threads: int = 8,
        lease_s: float = DEFAULT_LEASE_S,
        now_ms: Callable[[], int] = system_now_ms,
    ) -> None:
        check_lease_length(lease_s)
        self.budget = MemoryBudget(budget_bytes)
        self.buffer_budget = MemoryBudget(buffer_bytes)
        self._tiers_of = tiers_of
        self._lease_s = lease_s
        self._now_ms = now_ms
        self._woken: deque[Streamed] = deque()
        self._lock = threading.Lock()
        self._timers: list[tuple[int, int, Streamed]] = []
        self._due_ms: dict[Streamed, int] = {}
        self._numbers = itertools.count()
        self._running: set[Streamed] = set()
        self._open: dict[Streamed, None] = {}
        self._is_relieved = False
        self._last_ms = 0
        self._ended = threading.Event()
        self._clock: threading.Thread | None = None
        self._queue: _Queue | None = None
        self._stores: Executor
        self._turns: Executor
        if threads:
            self._stores = ThreadPoolExecutor(threads, thread_name_prefix="streaming-store")
            self._turns = ThreadPoolExecutor(_TURN_THREADS, thread_name_prefix="streaming-turn")
            self._clock = threading.Thread(target=self._tick_on, name="streaming-clock", daemon=True)
            self._clock.start()
        else:
            self._stores = self._turns = self._queue = _Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give no more turns; calls of stores that are under way come to their end."""
        self._ended.set()
        if self._clock is not None:
            self._clock.join()
        self._turns.shutdown(wait=True, cancel_futures=True)
        self._stores.shutdown(wait=True)

    # --- for topics ----------------------------------------------------------------------------

    def segments_of(
        self, owned: OwnedRecord, records: ManagedLedgerRecords, audit: AuditLog, now_ms: Callable[[], int]
    ) -> RecordedSegments:
        """The segments of a topic; see `RecordedSegments`."""
        return RecordedSegments(
            records,
            owned.name,
            owned.update,
            partial(self._tiers_of, owned.name),
            executor=self._stores,
            budget=self.budget,
            audit=audit,
            now_ms=now_ms,
            lease_s=self._lease_s,
        )

    def wake(self, topic: Streamed) -> None:
        """Give a topic a turn soon."""
        self._woken.append(topic)

    def wake_at(self, topic: Streamed, due_ms: int) -> None:
        """Give a topic a turn at this time, or soon after it."""
        with self._lock:
            if due_ms < self._due_ms.get(
                topic, due_ms + 1
            ):  # else it has one before, and then gives its time again
                self._due_ms[topic] = due_ms
                heappush(self._timers, (due_ms, next(self._numbers), topic))

    def note_open(self, topic: Streamed, *, is_open: bool) -> None:
        """A topic has an open segment from now on, or none any more."""
        with self._lock:
            self._open.pop(topic, None)
            if is_open:
                self._open[topic] = None

    def relieve(self) -> None:
        """Memory is short for long: have the oldest open segment closed, one at a time; the next one after it."""
        with self._lock:
            oldest = None if self._is_relieved else next(iter(self._open), None)
            if oldest is not None:
                self._is_relieved = True
                self._open[oldest] = self._open.pop(oldest)  # it may be in a pause, and hold its memory
        if oldest is not None:
            oldest.close_early()

    def wait(self, awaited: Future[Any], timeout_s: float | None) -> bool:
        """Wait for a result of turns and stores; return True if it has come in time."""
        if self._queue is None:
            return bool(wait_for([awaited], timeout_s).done)
        while not awaited.done() and self.run_due():
            pass
        return awaited.done()

    # --- turns ---------------------------------------------------------------------------------

    def run_due(self) -> bool:
        """Do all that is due now, and what follows from it, in this thread; return True if there was anything.

        Of a pool without threads only.
        """
        assert self._queue is not None, "a pool with threads does it by itself"
        done = False
        while self._give_turns() or self._queue:
            done = True
            self._queue.run()
        return done

    def _tick_on(self) -> None:
        while not self._ended.wait(_TICK_S):
            self._give_turns()

    def _give_turns(self) -> int:
        """Begin the turns that are due; how many."""
        now, due = self._now_ms(), []
        with self._lock:
            self._is_relieved = False
            was_put_back, self._last_ms = now < self._last_ms - _CLOCK_STEP_MS, now
            while self._timers and (was_put_back or self._timers[0][0] <= now):  # each gives its time anew
                due_ms, _, topic = heappop(self._timers)
                if self._due_ms.get(topic) == due_ms:
                    del self._due_ms[topic]
                    self._woken.append(topic)
            for _ in range(len(self._woken)):
                topic = self._woken.popleft()
                if topic in self._running:
                    self._woken.append(topic)
                else:
                    self._running.add(topic)
                    due.append(topic)
        for topic in due:
            self._turns.submit(self._run, topic)
        return len(due)

    def _run(self, topic: Streamed) -> None:
        try:
            topic.turn()
        finally:
            with self._lock:
                self._running.discard(topic)


class _Queue(Executor):
    """Calls that are made when `run` is called, in its caller's thread."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()

    def __len__(self) -> int:
        return len(self._calls)

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """See `Executor`; the outcome is not set."""
        self._calls.append(lambda: call(*given, **named))
        return Future()

    def run(self) -> None:
        """Make the calls, in their order."""
        while self._calls:
            self._calls.popleft()()
