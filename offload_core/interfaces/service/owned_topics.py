"""Topics that the service owns, as `offload own`: those that no other process has open.

    no other has it open    a round of upkeep opens it; from the next one on it is kept as its owner keeps it
    it was left by a kill   of an earlier process of this name, it is opened too; of another, if that is asked for
    another opens it        it is let go, and opened again once it has no owner

So a process that appends opens its topic whenever it likes, and closes it: what policies ask for is done in between.
Source: docs/managed-ledger.md, "By a process of its own"; decision 0066.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from offload_core.interfaces.service.offloader_metrics import TOPIC_LABELS, labels_of
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.storage.clock import system_now_ms
from offload_core.writing.managed_ledger import (
    Environment,
    KeptTopic,
    ManagedLedger,
    StreamingStatus,
    TransactionalTopic,
    UpkeepRound,
    keep_up,
    open_managed_ledger,
    owner_of,
    process_of,
)
from offload_core.writing.policy_store import ResolvedPolicies
from offload_hooks.errors import (
    OffloadError,
    OptionError,
    OwnershipLostError,
    TopicDeletedError,
    UnknownTopicError,
)

_CLOSED_AT_ONCE = 8
_MOST_SHOWN = 5

log = structlog.get_logger("offload.admin")


class OwnedTopics:
    """The topics that this process owns, by the names of their managed ledgers. Calls may come from many threads.

    Args:
        environment: of the topics; not closed by this.
        process: the name of this process; what an earlier one of this name left open is taken.
        take: owners' marks by topic, as of processes that were killed: from these a topic is taken.
    """

    def __init__(self, environment: Environment, process: str, take: Mapping[str, str | None]) -> None:
        self.process = process
        self._environment = environment
        self._take = dict(take)
        self._lock = threading.Lock()
        self._lost: set[str] = set()
        self._topics: dict[str, TransactionalTopic] = {}
        self._closing = ThreadPoolExecutor(_CLOSED_AT_ONCE, thread_name_prefix="closing")
        self._is_closed = False

    def get(self, name: str) -> ManagedLedger | None:
        """The topic, if it is open here."""
        with self._lock:
            found = self._topics.get(name)
        return None if found is None else found.topic

    def keep(self, kept: KeptTopic, policies: ResolvedPolicies, now_ms: int) -> UpkeepRound:
        """One round of upkeep of a topic, one at a time for each: as its owner, or beside it.

        A round that opens a topic does no more, so that `kept` is what stops the offload of a round.
        """
        with self._lock:
            topic = self._topics.get(kept.name)
        if topic is not None:
            return self._keep_owned(topic, policies, now_ms)
        if isinstance(kept, ManagedLedger):
            return UpkeepRound()  # it was let go since this round was to begin
        try:
            if self._open(kept.name):
                return UpkeepRound()
        except _NotOursError as error:
            return UpkeepRound(failures={"opening": error})
        except OffloadError as error:
            done = keep_up(kept, policies, now_ms)
            return replace(done, failures={**done.failures, "opening": error})
        return keep_up(kept, policies, now_ms)

    def keep_only(self, names: Collection[str]) -> None:
        """Let go of all topics but these: they were deleted."""
        with self._lock:
            gone = [self._topics.pop(name) for name in self._topics.keys() - set(names)]
            self._lost.intersection_update(names)
            for topic in gone:
                self._closing.submit(_close, topic)

    def streamed(self) -> list[tuple[str, StreamingStatus]]:
        """The topics of those that are streamed, `persistent://tenant/namespace/topic`, and how that stands."""
        with self._lock:
            topics = [each.topic for each in self._topics.values()]
        return [
            (topic_of_managed_ledger(each.name).full, each.streaming_status)
            for each in topics
            if each.is_streamed
        ]

    def close(self) -> None:
        """Close all topics, so that they have no owner; none is opened any more."""
        with self._lock:
            self._is_closed = True
            topics = list(self._topics.values())
            self._topics.clear()
        for each in topics:
            each.topic.stop_offload()
        for each in topics:
            self._closing.submit(_close, each)
        self._closing.shutdown()

    def _keep_owned(self, topic: TransactionalTopic, policies: ResolvedPolicies, now_ms: int) -> UpkeepRound:
        done = keep_up(topic, policies, now_ms)
        failures = {
            step: error for step, error in done.failures.items() if not isinstance(error, OwnershipLostError)
        }
        if len(failures) < len(done.failures):
            self._let_go(topic)
        return replace(done, failures=failures)

    def _open(self, name: str) -> bool:
        """Open a topic; False if it is another's, has nothing in it, or is gone.

        Raises:
            _NotOursError: its ledgers are elsewhere. Others: as `open_managed_ledger` and `TransactionalTopic`.
        """
        known = self._environment.records.read(name)
        if self._is_closed or known is None or not known.info.ledgers:
            return False
        mark = owner_of(known.info)
        if mark is None:
            with self._lock:
                self._lost.discard(name)
        elif not self._takes(name, mark):
            return False
        self._check_is_ours(name, known.info)
        try:
            managed = open_managed_ledger(
                self._environment,
                name,
                create=False,
                only_free=True,
                takes_from=partial(self._takes, name),
                process=self.process,
            )
        except (OwnershipLostError, TopicDeletedError, UnknownTopicError):
            return False
        try:
            topic = TransactionalTopic(self._environment, managed)
        except BaseException:
            with suppress(OffloadError):
                managed.close()
            raise
        with self._lock:
            is_kept = not self._is_closed
            if is_kept:
                self._topics[name] = topic
        if not is_kept:
            _close(topic)
        return is_kept

    def _takes(self, name: str, mark: str) -> bool:
        """True if a topic is taken from an owner: of two processes of this name the one that took it last has it."""
        if mark == self._take.get(name):
            return True
        with self._lock:
            return name not in self._lost and process_of(mark) == self.process

    def _check_is_ours(self, name: str, info: ManagedLedgerInfo) -> None:
        """Refuse a topic whose ledgers are elsewhere, before its record is touched: it may be a broker's."""
        hot = set(self._environment.hot.of(name))
        elsewhere = [
            each.ledger_id for each in info.ledgers if each.has_hot_copy and each.ledger_id not in hot
        ]
        if elsewhere:
            raise _NotOursError(
                f"{name} has ledgers that are not in this hot tier, and is not owned",
                found=", ".join(map(str, elsewhere[:_MOST_SHOWN])),
                hint="Topics of a running cluster are not owned, but offloaded by the section [live].",
            )

    def _let_go(self, topic: TransactionalTopic) -> None:
        """Another has opened a topic."""
        log.info("not owned any more", topic=topic.name)
        with self._lock:
            if self._topics.pop(topic.name, None) is None:
                return
            self._lost.add(topic.name)
            self._closing.submit(_close, topic)


class _NotOursError(OptionError):
    """A record is not of this hot tier's topics."""


def _close(topic: TransactionalTopic) -> None:
    try:
        topic.topic.close()
    except OwnershipLostError:
        pass
    except OffloadError as error:
        log.warning("not closed", topic=topic.name, error=str(error))


class StreamingMetrics:
    """How the streaming of topics stands, for Prometheus.

    Args:
        registry: where they are collected from.
        streamed: the topics that are streamed, and the status of each.
        now_ms: the time, in ms since 1970, UTC.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        streamed: Callable[[], Collection[tuple[str, StreamingStatus]]],
        now_ms: Callable[[], int] = system_now_ms,
    ) -> None:
        self._streamed = streamed
        self._now_ms = now_ms
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The metrics, for the registry."""
        now_ms = self._now_ms()
        completed = CounterMetricFamily(
            "pulsar_offload_streaming_segments",
            "Segments completed since the topic was opened",
            labels=TOPIC_LABELS,
        )
        waiting = GaugeMetricFamily(
            "pulsar_offload_streaming_waiting_seconds",
            "How long entries wait that are in no complete segment, nor held back by a filter",
            labels=TOPIC_LABELS,
        )
        buffered = GaugeMetricFamily(
            "pulsar_offload_streaming_buffered_bytes", "Bytes in the offload buffer", labels=TOPIC_LABELS
        )
        failures = GaugeMetricFamily(
            "pulsar_offload_streaming_failures", "Failures since the last success", labels=TOPIC_LABELS
        )
        for topic, status in self._streamed():
            labels, since_ms = labels_of(topic), status.waiting_since_ms
            completed.add_metric(labels, status.completed)
            waiting.add_metric(labels, 0 if since_ms is None else max(0, now_ms - since_ms) / 1000)
            buffered.add_metric(labels, status.buffered_bytes)
            failures.add_metric(labels, status.failures_in_a_row)
        yield from (completed, waiting, buffered, failures)
