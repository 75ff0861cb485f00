"""Upkeep of a running cluster's topics: they are offloaded by our thresholds, beside their brokers.

Thresholds of namespaces are for brokers, which offload by themselves where they have any: such topics are left to
them. Of the others those are looked at whose policies name a tier, but none of Pulsar's own. Retention and the deletion
of hot copies are left to the brokers, too. Source: docs/tiering.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from offload_core.interfaces.service.offloader_metrics import OffloaderMetrics
from offload_core.maintenance.live import LiveCluster, LiveTopicOffloads, open_live_cluster
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.writing.configuration import Configuration
from offload_core.writing.managed_ledger import UpkeepLoop, policies_by_name
from offload_hooks.errors import OffloadError

_OF_PULSAR = "__"
"""How the names of Pulsar's own topics begin."""

_log = logging.getLogger(__name__)


@contextmanager
def live_upkeep(configuration: Configuration, stats: OffloaderMetrics | None = None) -> Iterator[None]:
    """Offload the topics of the configured running cluster until the block ends; without one, nothing.

    Errors as `open_live_cluster`.
    """
    live = configuration.live
    if live.url is None:
        yield
        return
    with open_live_cluster(configuration, stats=stats) as cluster:
        topics = _LiveTopics(cluster, stats)
        with UpkeepLoop(
            topics.for_upkeep,
            policies_by_name(cluster.policies),
            interval_s=live.interval_s,
            threads=configuration.service.upkeep_threads,
        ):
            yield


class _LiveTopics:
    def __init__(self, cluster: LiveCluster, stats: OffloaderMetrics | None) -> None:
        self._cluster = cluster
        self._stats = stats
        self._offloads: dict[str, LiveTopicOffloads] = {}

    def for_upkeep(self) -> list[LiveTopicOffloads]:
        """Return the topics whose ledgers may be due; forget those that were deleted."""
        policies = self._cluster.policies
        namespaces = [each for each in policies.namespaces() if self._is_offloaded(each)]
        names = [
            name
            for name in self._cluster.records.names(namespaces)
            if not name.rpartition("/")[2].startswith(_OF_PULSAR)
        ]
        self._forget_deleted(set(names))
        if self._stats is not None:
            self._stats.keep((topic_of_managed_ledger(name).full for name in names), of="live")
        self._offloads = {
            name: self._offloads.get(name) or LiveTopicOffloads(self._cluster, name) for name in names
        }
        return list(self._offloads.values())

    def _is_offloaded(self, namespace: str) -> bool:
        """True if the namespace has a tier, and no thresholds of its own: by those its brokers offload."""
        try:
            offload = self._cluster.policies.resolve_namespace(namespace).offload
        except OffloadError as error:
            _log.warning("topics of %s are not offloaded: %s", namespace, error)
            return False
        thresholds = (offload.settings[name] for name in ("threshold_in_bytes", "threshold_in_seconds"))
        origins = {each.origin for each in thresholds if each.value >= 0}
        return offload.driver is not None and bool(origins) and "namespace" not in origins

    def _forget_deleted(self, names: set[str]) -> None:
        for name in set(self._cluster.mirror.records.names()) - names:
            try:
                LiveTopicOffloads(self._cluster, name).forget()
            except OffloadError as error:
                _log.warning("what is left of the deleted topic %s stays: %s", name, error)
