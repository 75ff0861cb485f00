"""Keep the topics of a process by their policies: round after round in the background, each topic by itself.

A topic has one round at a time. One whose round failed is left alone for a while, longer each time and a random part of
that, so that a store that is down is not asked again and again, nor by all processes at once; the others go on. No
tenant has all threads: another's work goes on if a store never answers.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from offload_core.storage.clock import system_now_ms
from offload_core.writing.managed_ledger.topic_offloads import STOP_TIMEOUT_S
from offload_core.writing.managed_ledger.upkeep import KeptTopic, UpkeepRound, keep_up, offloads_of
from offload_core.writing.settings import ResolvedPolicies
from offload_hooks.errors import OffloadError, StoreError

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


_log = logging.getLogger(__name__)

DEFAULT_INTERVAL_S = 10.0
FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 600.0
_STOP_AGAIN_S = 0.05

_Round = tuple[KeptTopic, "Future[None]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepStatus:
    """The state of a topic's upkeep.

    Attributes:
        last: the last round that ended.
        ended_at_ms: when, in ms since 1970, UTC.
        failures_in_a_row: how many of the last rounds had a failure.
        not_before_ms: when the next round is, at the earliest.
    """

    last: UpkeepRound
    ended_at_ms: int
    failures_in_a_row: int = 0
    not_before_ms: int = 0


class UpkeepLoop:
    """Keeps the topics that are open here, as a context or from `start` to `close`.

    Args:
        topics: those that there are now.
        policies_of: what holds for a topic, by its managed ledger's name; asked anew for each round.
        interval_s: how long after the begin of all rounds the next ones begin.
        threads: how many topics of a tenant are kept at the same time; those of others have one more.
        now_ms: the time, in ms since 1970, UTC.
        uniform: draws a number from between two.
    """

    def __init__(
        self,
        topics: Callable[[], Collection[KeptTopic]],
        policies_of: Callable[[str], ResolvedPolicies],
        *,
        interval_s: float = DEFAULT_INTERVAL_S,
        threads: int = 2,
        now_ms: Callable[[], int] = system_now_ms,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._topics = topics
        self._policies_of = policies_of
        self._interval_s = interval_s
        self._now_ms = now_ms
        self._random = uniform
        self._lock = threading.Lock()
        self._running: dict[str, _Round] = {}
        self._statuses: dict[str, UpkeepStatus] = {}
        self._pool = TenantThreads(threads, "upkeep")
        self._ended = threading.Event()
        self._clock = threading.Thread(target=self._run, name="upkeep-clock", daemon=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Begin; the first rounds begin at once."""
        self._clock.start()

    def close(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Begin no more rounds, stop the offloads of those that run, and wait for them, so long at most.

        Other steps of a round come to their end. A round that does not end in time is left to itself.
        """
        until = time.monotonic() + timeout_s
        with self._lock:
            self._ended.set()
        self._pool.shutdown()
        while (running := self._rounds_that_run()) and time.monotonic() < until:
            for topic, _ in running:
                offloads_of(
                    topic
                ).stop_offload()  # again and again: its round may come to the offload only now
            wait([ended for _, ended in running], timeout=_STOP_AGAIN_S)
        for topic, _ in running:
            _log.warning("a round of upkeep of %s did not end in %g s", topic.name, timeout_s)
        if self._clock.is_alive():
            self._clock.join(max(0.0, until - time.monotonic()))

    def begin_rounds(self) -> list[Future[None]]:
        """Begin a round of each topic that has none running and whose last one did not fail just now.

        None after it was closed.
        """
        now, begun = self._now_ms(), []
        topics = list(self._topics())
        with self._lock:
            if self._ended.is_set():
                return []
            names = {topic.name for topic in topics}
            self._statuses = {name: status for name, status in self._statuses.items() if name in names}
            for topic in topics:
                status = self._statuses.get(topic.name)
                if topic.name in self._running or (status is not None and now < status.not_before_ms):
                    continue
                tenant = topic.name.partition("/")[0]
                ended = self._pool.submit(tenant, partial(self._keep, topic))
                self._running[topic.name] = (topic, ended)
                begun.append(ended)
        return begun

    def status(self, name: str) -> UpkeepStatus | None:
        """The state of a topic's upkeep; None before its first round has ended."""
        with self._lock:
            return self._statuses.get(name)

    def _rounds_that_run(self) -> list[_Round]:
        with self._lock:
            return [each for each in self._running.values() if not each[1].done()]

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.begin_rounds()
            except OffloadError as error:
                _log.warning("no upkeep this time: %s", error)
            except Exception:  # the next round may do better, and without this thread there would be none
                _log.exception("no upkeep this time, by a fault of its own")
            self._ended.wait(self._interval_s)

    def _keep(self, topic: KeptTopic) -> None:
        try:
            try:
                done = keep_up(topic, self._policies_of(topic.name), self._now_ms())
            except OffloadError as error:
                done = UpkeepRound(failures={"policies": error})
            self._note(topic.name, done)
        except Exception as error:
            _log.exception("the upkeep of %s ended by a fault of its own", topic.name)
            fault = StoreError(f"upkeep ended by a fault of its own: {type(error).__name__}")
            self._note(topic.name, UpkeepRound(failures={"upkeep": fault}))
            raise
        finally:
            with self._lock:
                del self._running[topic.name]

    def _note(self, name: str, done: UpkeepRound) -> None:
        for step, error in done.failures.items():
            _log.warning("%s of %s failed: %s", step, name, error)
        now = self._now_ms()
        with self._lock:
            before = self._statuses.get(name)
            failures = 0 if before is None else before.failures_in_a_row
            failures = failures + 1 if done.failures else 0
            wait_s = min(FIRST_WAIT_S * 2 ** (failures - 1), LONGEST_WAIT_S) if failures else 0.0
            wait_s *= self._random(
                0.5, 1.0
            )  # processes that got in each other's way do not meet again at once
            self._statuses[name] = UpkeepStatus(
                last=done,
                ended_at_ms=now,
                failures_in_a_row=failures,
                not_before_ms=now + int(wait_s * 1000),
            )
