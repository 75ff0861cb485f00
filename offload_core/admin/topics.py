"""What the service asks of topics, and the answers that managed ledgers' records alone can give."""

from __future__ import annotations

import time
from typing import Any, Protocol

from offload_core.admin.topic_views import info_to_json, stats_to_json
from offload_core.catalogue.topics import TopicName, managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata import ManagedLedgerRecords, VersionedInfo
from offload_hooks.errors import UnknownTopicError


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


class RecordedTopics:
    """`Topics` by their records."""

    def __init__(self, records: ManagedLedgerRecords) -> None:
        self._records = records

    def names(self, namespace: str | None = None) -> list[TopicName]:
        """See `Topics`."""
        names = self._records.names(None if namespace is None else [namespace])
        return sorted(topic_of_managed_ledger(name) for name in names)

    def info(self, topic: TopicName) -> dict[str, Any]:
        """See `Topics`."""
        return info_to_json(self._record(topic), time.time_ns() // 1_000_000)

    def internal_stats(self, topic: TopicName) -> dict[str, Any]:
        """See `Topics`."""
        return stats_to_json(self._record(topic).info)

    def _record(self, topic: TopicName) -> VersionedInfo:
        found = self._records.read(managed_ledger_of_topic(topic))
        if found is None:
            raise UnknownTopicError(f"Topic {topic} not found")
        return found
