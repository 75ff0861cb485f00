"""Upkeep of topics by their policies: rollover, retention, offload, deletion of hot copies.

    keep_up      one round of a topic
    UpkeepLoop   round after round of a process's topics, in the background

A topic has one round at a time. One whose round failed is left alone for a while, longer each time and a random part of
that, so that a store that is down is not asked again and again, nor by all processes at once; the others go on. No
tenant has all threads: another's work goes on if a store never answers.

In a round, a snapshot of a topic's transactions is persisted first, so that what they have settled can be offloaded.
Ledgers are offloaded whole, by thresholds, or by streaming, which goes on between rounds.

Thresholds choose sealed ledgers as Pulsar does. A ledger is due if it and all sealed ledgers after it hold more than
the threshold in bytes, or if it has been sealed for the threshold in seconds; either is enough. What lies in a tier
already counts like what does not. So the ledgers that are due are the oldest. Source: Pulsar's `ManagedLedgerImpl`;
docs/policies.md.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from offload_core.metadata.policies import EffectivePolicies
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.storage.clock import system_now_ms
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.managed_ledger import ManagedLedger, open_managed_ledger
from offload_core.writing.managed_ledger.streaming.completion_requests import (
    DEFAULT_TIMEOUT_S,
    request_completion,
    requests_of,
)
from offload_core.writing.managed_ledger.topic_offloads import STOP_TIMEOUT_S, OffloadStatus
from offload_core.writing.managed_ledger.transactional_topic import TransactionalTopic
from offload_core.writing.offload.recorded_segments import StreamingSettings
from offload_core.writing.policy_store import ResolvedPolicies
from offload_hooks.errors import (
    LiveAttemptError,
    OffloadError,
    OffloadStoppedError,
    OptionError,
    OwnershipLostError,
    StoreError,
)

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLedgers:
    """Ledgers that are in no tier yet, by the thresholds: due, or not.

    Attributes:
        ledger_ids: those that are due, the oldest first.
        skipped: all others, by id, and why each is not.
    """

    ledger_ids: tuple[int, ...] = ()
    skipped: Mapping[int, str] = field(default_factory=dict)

    @property
    def target(self) -> EntryPosition | None:
        """The position up to which an offload takes all that is due; None if nothing is."""
        return EntryPosition(self.ledger_ids[-1] + 1, 0) if self.ledger_ids else None


def due_ledgers(info: ManagedLedgerInfo, policies: EffectivePolicies, now_ms: int) -> DueLedgers:
    """Choose the ledgers that are due by these policies; none where they name no driver."""
    due: list[int] = []
    skipped: dict[int, str] = {}
    newer_bytes = 0
    for ledger in reversed(info.in_order):
        if ledger.info.is_closed and not ledger.is_marked_for_deletion:
            newer_bytes += ledger.info.size or 0
        if ledger.has_complete_copy:
            continue
        why_not = _why_not(ledger, policies, newer_bytes, now_ms)
        if why_not is None:
            due.append(ledger.ledger_id)
        else:
            skipped[ledger.ledger_id] = why_not
    return DueLedgers(ledger_ids=tuple(reversed(due)), skipped=dict(sorted(skipped.items())))


def _why_not(ledger: LedgerRecord, policies: EffectivePolicies, held_bytes: int, now_ms: int) -> str | None:
    """Why a ledger is not due; None if it is."""
    if ledger.is_marked_for_deletion:
        return "it is being deleted"
    if not ledger.info.is_closed:
        return "it is open"
    if not ledger.info.entries:
        return "it has no entries"
    if ledger.context is not None and ledger.context.segments:
        return "it is offloaded by segments"
    if policies.driver is None:
        return "no tier is configured"
    limit_bytes, limit_s = policies.threshold_bytes, policies.threshold_s
    if limit_bytes is None and limit_s is None:
        return "no threshold is set"
    reasons = []
    if limit_bytes is not None:
        if held_bytes > limit_bytes:
            return None
        reasons.append(f"{held_bytes} bytes from it on; the threshold is {limit_bytes} bytes")
    if limit_s is not None:
        sealed_s = (now_ms - (ledger.info.timestamp_ms or 0)) / 1000
        if sealed_s >= limit_s:
            return None
        reasons.append(f"sealed {sealed_s:.0f} s ago; the threshold is {limit_s} s")
    return ", and ".join(reasons)


class OffloadedTopic(Protocol):
    """The offloads of a topic: a `ManagedLedger`, `TopicOffloads`, and those of a running cluster."""

    @property
    def name(self) -> str:
        """The managed ledger's."""

    @property
    def offload_status(self) -> OffloadStatus:
        """See `ManagedLedger.offload_status`."""

    @property
    def is_unfinished(self) -> bool:
        """True if an offload has something to finish, also where no ledger is due."""

    def read_info(self) -> ManagedLedgerInfo:
        """The record as it is now."""

    def offload_prefix(self, position: EntryPosition) -> EntryPosition:
        """See `ManagedLedger.offload_prefix`."""

    def delete_hot_copies(self, lag_s: float) -> list[int]:
        """See `ManagedLedger.delete_hot_copies`."""

    def stop_offload(self) -> None:
        """Stop a running offload at its next ledger or block."""


KeptTopic = TransactionalTopic | OffloadedTopic
"""A topic that is open here, with transactions or without, or one that others have open."""

_NOWHERE = EntryPosition(0, 0)
"""Before all ledgers."""

_COMPLETION_S = 30.0
"""Seconds that a round waits for a segment that is requested to be completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRound:
    """The results of one round for a topic.

    Attributes:
        rolled: whether the ledger that was written was sealed.
        trimmed: ledgers that retention deleted, with all copies, also where it failed at another one.
        offloaded: ledgers that were offloaded, also by one that failed at a later ledger, or that others had begun.
        skipped: ledgers that are in no tier and were not to be offloaded, or not now, and why.
        hot_deleted: offloaded ledgers whose hot copy was deleted.
        failures: of each step that failed, by its name; the steps after it were tried all the same.
    """

    rolled: bool = False
    trimmed: tuple[int, ...] = ()
    offloaded: tuple[int, ...] = ()
    skipped: Mapping[int, str] = field(default_factory=dict)
    hot_deleted: tuple[int, ...] = ()
    failures: Mapping[str, OffloadError] = field(default_factory=dict)


def offloads_of(kept: KeptTopic) -> OffloadedTopic:
    """The object that offloads a topic."""
    return kept.topic if isinstance(kept, TransactionalTopic) else kept


def keep_up(kept: KeptTopic, policies: ResolvedPolicies, now_ms: int) -> UpkeepRound:
    """Do all that is due for a topic now. Failures are in the result, not raised.

    Rollover, retention, streaming and snapshots of transactions are its owner's alone, of a topic that is open here.

    Retention comes before the offload, so that no ledger is offloaded that is to be deleted. If it is not set, nothing
    is deleted: Pulsar's default keeps entries until they are consumed, and there are no consumers here.
    """
    topic = offloads_of(kept)
    answers = not isinstance(kept, TransactionalTopic)
    failures: dict[str, OffloadError] = {}
    rolled = False
    trimmed: list[int] = []
    offloaded: tuple[int, ...] = ()
    skipped: Mapping[int, str] = {}
    hot_deleted: list[int] = []
    if isinstance(topic, ManagedLedger):
        with _noted(failures, "rollover"):
            rolled = topic.roll_if_due()
    if isinstance(kept, TransactionalTopic):
        with _noted(failures, "transactions"):  # before retention: they are read before they go
            if requests_of(kept.topic.read_info()):  # a request waits for what can be offloaded now
                answers = True  # one that comes from now on is answered in the next round, after a snapshot
                kept.snapshot()
            else:
                kept.snapshot_if_due()
    if isinstance(topic, ManagedLedger) and policies.retention_origin != "default":
        with _noted(failures, "retention"):
            topic.trim(policies.retention, listener=trimmed.append)
    if isinstance(topic, ManagedLedger):
        with _noted(failures, "streaming"):
            _stream(topic, policies.offload, answers=answers)
    with _noted(failures, "offload"):
        due = due_ledgers(topic.read_info(), policies.offload, now_ms)
        skipped = due.skipped
        if policies.offload.is_streamed:
            streamed = dict.fromkeys(due.ledger_ids, "the topic is streamed by its owner")
            skipped = dict(sorted({**skipped, **streamed}.items()))
        elif (target := due.target or (_NOWHERE if topic.is_unfinished else None)) is not None:
            try:
                topic.offload_prefix(target)
                skipped = dict(sorted({**due.skipped, **topic.offload_status.waiting}.items()))
            except (LiveAttemptError, OffloadStoppedError) as error:
                skipped = _left(due, topic.offload_status.offloaded, error)
            finally:
                offloaded = topic.offload_status.offloaded
    with _noted(failures, "deletion of hot copies"):
        lag_s = policies.offload.deletion_lag_s
        if policies.offload.driver is not None and lag_s is not None:
            hot_deleted = topic.delete_hot_copies(lag_s)
    return UpkeepRound(
        rolled=rolled,
        trimmed=tuple(trimmed),
        offloaded=offloaded,
        skipped=skipped,
        hot_deleted=tuple(hot_deleted),
        failures=failures,
    )


def complete_streamed(
    environment: Environment,
    name: str,
    policies: EffectivePolicies,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    *,
    process: str | None = None,
) -> ManagedLedgerInfo:
    """Offload all of a streamed topic: by its owner, or here, if it has none; the record as it is then.

    It is opened here, by the name of this process, only while it has no owner: no owner loses it by that. One that was
    killed counts as an owner.

    Raises: as `request_completion`, but that it has no owner; or as `open_managed_ledger`.
    """
    try:
        return request_completion(environment.records, name, timeout_s=timeout_s)
    except OptionError:
        pass  # it has no owner
    try:
        topic = open_managed_ledger(environment, name, create=False, only_free=True, process=process)
    except OwnershipLostError:  # opened by another just now
        return request_completion(environment.records, name, timeout_s=timeout_s)

    def answer(_: float) -> None:
        with suppress(OffloadStoppedError):  # the time is over, which ends the request
            topic.answer_requests(timeout_s)

    with topic:
        topic.set_streaming(_streaming_settings(policies))
        return request_completion(environment.records, name, timeout_s=timeout_s, wait=answer)


def _streaming_settings(policies: EffectivePolicies) -> StreamingSettings | None:
    """The streaming settings of policies; None if they have a topic not streamed."""
    if not policies.is_streamed or policies.driver is None:
        return None
    return StreamingSettings(
        max_segment_bytes=policies.max_segment_bytes,
        max_segment_age_s=policies.max_segment_age_s,
        block_bytes=policies.max_block_bytes,
        checksums=policies.writes_checksums,
    )


def _stream(topic: ManagedLedger, policies: EffectivePolicies, *, answers: bool) -> None:
    """Switch streaming on or off by the policies, and complete the segment if that is requested and to be answered."""
    settings = _streaming_settings(policies)
    if topic.streaming != settings or topic.has_left_segments:
        topic.set_streaming(settings)
    if answers:
        with suppress(OffloadStoppedError):  # it goes on, and the request waits for the next round
            topic.answer_requests(_COMPLETION_S)


def _left(due: DueLedgers, offloaded: Sequence[int], why_not: OffloadError) -> Mapping[int, str]:
    """Ledgers that were skipped, by an offload that ended for a reason that is no failure."""
    left = [ledger_id for ledger_id in due.ledger_ids if ledger_id not in offloaded]
    held = why_not.ledger_id if why_not.ledger_id is not None else next(iter(left), None)
    reasons = {
        ledger_id: str(why_not) if ledger_id == held else f"ledger {held} comes before it"
        for ledger_id in left
    }
    return dict(sorted({**due.skipped, **reasons}.items()))


@contextmanager
def _noted(failures: dict[str, OffloadError], step: str) -> Iterator[None]:
    """A step of a round: its failure is kept, and the next step is tried."""
    try:
        yield
    except OffloadError as error:
        failures[step] = error


_Work = tuple["Future[None]", Callable[[], None]]


class TenantThreads:
    """Limit work to `threads` at a time for a tenant, and at most one more for all others.

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
        """Queue work of a tenant, and run it in its turn.

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
        """Begin no more work; waiting work is cancelled, running work goes on."""
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
    """Cancel work that has not begun, so that its waiters go on."""
    if future.cancel():
        future.set_running_or_notify_cancel()


DEFAULT_INTERVAL_S = 10.0
FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 600.0
_STOP_AGAIN_S = 0.05

_Round = tuple[KeptTopic, "Future[None]"]

Keeper = Callable[[KeptTopic, ResolvedPolicies, int], UpkeepRound]
"""Does one round, as `keep_up`."""


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
        policies_of: the policies in force for a topic, by its managed ledger's name; asked anew for each round.
        interval_s: how long after the begin of all rounds the next ones begin.
        threads: how many topics of a tenant are kept at the same time; those of others have one more.
        keep: does a round of a topic.
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
        keep: Keeper = keep_up,
        now_ms: Callable[[], int] = system_now_ms,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._topics = topics
        self._policies_of = policies_of
        self._interval_s = interval_s
        self._keep_up = keep
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

    def __exit__(self, *_: object) -> None:
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
                done = self._keep_up(topic, self._policies_of(topic.name), self._now_ms())
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
                last=done, ended_at_ms=now, failures_in_a_row=failures, not_before_ms=now + int(wait_s * 1000)
            )
