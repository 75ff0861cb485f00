"""What the service asks of topics, and the answers that managed ledgers' records alone can give."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import structlog

from offload_core.admin.topic_views import info_to_json, stats_to_json
from offload_core.catalogue.topics import TopicName, managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.managed_ledger import (
    Environment,
    OffloadStatus,
    TopicOffloads,
    no_tier,
    system_now_ms,
    topic_offloads,
)
from offload_core.metadata import EntryPosition, ManagedLedgerRecords, VersionedInfo
from offload_core.policy_store import ResolvedPolicies
from offload_hooks.errors import AttemptError, OffloadError, OptionError, UnknownTopicError

_OFFLOADS_AT_A_TIME = 4

log = structlog.get_logger("offload.admin")


class Topics(Protocol):
    """The topics that the service tells of. Calls may come from many threads; errors are the metadata store's."""

    def names(self, namespace: str | None = None) -> list[TopicName]:
        """The topics of a namespace (`tenant/namespace`), or of all, in order; of partitioned ones the partitions."""

    def info(self, topic: TopicName) -> dict[str, Any]:
        """`internal-info` of a topic.

        Raises:
            UnknownTopicError: there is none of this name.
        """

    def internal_stats(self, topic: TopicName) -> dict[str, Any]:
        """`internalStats` of a topic; errors as `info`."""

    def begin_offload(self, topic: TopicName, position: EntryPosition) -> None:
        """Begin to offload all sealed ledgers before a position.

        Raises:
            UnknownTopicError: as `info`.
            AttemptError: an offload of the topic runs.
            OptionError: its policies name no tier, or this service has no hot tier.
        """

    def offload_status(self, topic: TopicName) -> OffloadStatus:
        """How the offload stands that runs, or how the last one ended; errors as `info`."""


class RecordedTopics:
    """`Topics` by their records; offloads beside whoever owns them.

    Args:
        records: the managed ledgers' records.
        environment: with their hot tier and their offloads; None: nothing is offloaded here.
        policies_of: what holds for a managed ledger, by its name.
    """

    def __init__(
        self,
        records: ManagedLedgerRecords,
        environment: Environment | None,
        policies_of: Callable[[str], ResolvedPolicies],
    ) -> None:
        self._records = records
        self._environment = environment
        self._policies_of = policies_of
        self._lock = threading.Lock()
        self._offloads: dict[str, TopicOffloads] = {}
        self._asked: dict[str, Future[None]] = {}
        self._pool = ThreadPoolExecutor(_OFFLOADS_AT_A_TIME, thread_name_prefix="offload")

    def close(self) -> None:
        """Begin no more offloads, and wait for those that run."""
        self._pool.shutdown(cancel_futures=True)

    def kept(self) -> list[TopicOffloads]:
        """All topics, for their upkeep; what was known of topics that are not there any more is forgotten."""
        names = self._records.names()
        with self._lock:
            for gone in self._offloads.keys() - set(names):
                if not self._is_running(gone):
                    del self._offloads[gone]
                    self._asked.pop(gone, None)
        return [self._offloads_of(name) for name in names]

    def names(self, namespace: str | None = None) -> list[TopicName]:
        """See `Topics`."""
        names = self._records.names(None if namespace is None else [namespace])
        return sorted(topic_of_managed_ledger(name) for name in names)

    def info(self, topic: TopicName) -> dict[str, Any]:
        """See `Topics`."""
        return info_to_json(self._record(topic), system_now_ms())

    def internal_stats(self, topic: TopicName) -> dict[str, Any]:
        """See `Topics`."""
        return stats_to_json(self._record(topic).info)

    def begin_offload(self, topic: TopicName, position: EntryPosition) -> None:
        """See `Topics`."""
        self._record(topic)
        name = managed_ledger_of_topic(topic)
        if self._policies_of(name).offload.driver is None:
            raise no_tier(topic)
        offloads = self._offloads_of(name)
        with self._lock:
            if self._is_running(name):
                raise AttemptError(f"an offload of {topic} is in progress")
            self._asked[name] = self._pool.submit(_offload, offloads, position)

    def offload_status(self, topic: TopicName) -> OffloadStatus:
        """See `Topics`."""
        self._record(topic)
        name = managed_ledger_of_topic(topic)
        with self._lock:
            if self._is_running(name):
                return OffloadStatus(state="running")
            return self._offloads[name].offload_status if name in self._offloads else OffloadStatus()

    def _is_running(self, name: str) -> bool:
        """Whether an offload that was asked for has not ended, or upkeep offloads; the lock is held."""
        asked = self._asked.get(name)
        is_asked = asked is not None and not asked.done()
        return is_asked or (name in self._offloads and self._offloads[name].offload_status.state == "running")

    def _offloads_of(self, name: str) -> TopicOffloads:
        if self._environment is None:
            raise OptionError("this service has no hot tier", hint="Set hot_tier.options.path.")
        with self._lock:
            if name not in self._offloads:
                self._offloads[name] = topic_offloads(self._environment, name)
            return self._offloads[name]

    def _record(self, topic: TopicName) -> VersionedInfo:
        found = self._records.read(managed_ledger_of_topic(topic))
        if found is None:
            raise UnknownTopicError(f"Topic {topic} not found")
        return found


def _offload(offloads: TopicOffloads, position: EntryPosition) -> None:
    """An offload that nobody waits for: its status tells how it ended."""
    try:
        offloads.offload_prefix(position)
    except OffloadError as error:
        log.error("offload failed", topic=offloads.name, error=str(error), kind=type(error).__name__)
    except Exception as error:
        log.error("an offload ended by a fault of its own", topic=offloads.name, exc_info=error)
        raise
