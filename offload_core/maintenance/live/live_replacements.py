"""Copies that take the place of those of a running cluster's ledgers: written down in mirrors, then given.

The steps until a new copy is read are those of records of ours (`copy_registry`), in the mirrors. Until it is given,
brokers read the old one, which is never deleted here: `offload gc` finds it, once the live record names the new one.
Source: docs/tiering.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from offload_core.maintenance.live.live_cluster import LiveCluster
from offload_core.maintenance.live.live_copies import Given, LiveCopies, is_complete
from offload_core.metadata.catalogue import Records, TopicName
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.records import replaced_of
from offload_core.metadata.records.live_changes import own_ledgers
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog
from offload_hooks.metadata_stores import MetadataStore, WritableMetadataStore


class LiveReplacements:
    """New copies of a running cluster's ledgers, in these tiers or those of its topics' policies.

    Args:
        tiers: none is closed.
        audit: each change is recorded there before it is made; None for the cluster's.

    Attributes:
        mirror: the records in which new copies are written down, and the cluster's ledgers.
        policies: those of its namespaces.
    """

    def __init__(self, cluster: LiveCluster, tiers: Sequence[Tier], audit: AuditLog | None = None) -> None:
        self.mirror = cluster.mirror if audit is None else replace(cluster.mirror, audit=audit)
        self.policies = cluster.policies
        self._cluster = replace(cluster, mirror=self.mirror)
        self._own_tiers = tiers

    def topics(self) -> list[TopicName]:
        """The topics of the cluster, in no order."""
        return [topic_of_managed_ledger(each) for each in self._cluster.records.names()]

    def unfinished(self) -> list[TopicName]:
        """Topics with an attempt or a copy that is not confirmed: `LiveCopies.finish` goes on with that, or `give`."""
        names = set(self.mirror.records.names()) & set(self._cluster.records.names())
        topics = sorted(map(topic_of_managed_ledger, names))
        return [each for each in topics if own_ledgers(self.copies(each).read_mirror())]

    def copies(self, topic: TopicName) -> LiveCopies:
        """Our copies of a topic."""
        name = managed_ledger_of_topic(topic)
        return LiveCopies(self._cluster, name, partial(self._tiers, name))

    def give(self, topic: TopicName) -> Given:
        """Give the new copies of a topic to its record, and have its broker use them; see `LiveCopies.give`."""
        copies = self.copies(topic)
        new = [each for each in own_ledgers(copies.read_mirror()) if is_complete(each) and replaced_of(each)]
        return copies.give(new, copies.policies()) if new else Given()

    @contextmanager
    def open_records(self) -> Iterator[Records]:
        """The mirrors of all topics of the cluster, to be read."""
        yield StoreRecords(_AllMirrors(self.mirror.records.store, self._cluster.records.store))

    @contextmanager
    def _tiers(self, name: str) -> Iterator[KnownTiers]:
        """These tiers, and those of the topic's policies."""
        assert self._cluster.mirror.offloads is not None
        with self._cluster.mirror.offloads.tiers_of(name) as known:
            yield KnownTiers(known.current, self._own_tiers, elsewhere=known.find)


class _AllMirrors:
    """A `WritableMetadataStore` of the mirrors of all records, also of those whose mirror is not stored yet."""

    def __init__(self, mirrors: WritableMetadataStore, live: MetadataStore) -> None:
        self._mirrors = mirrors
        self._live = live

    def get(self, path: str) -> tuple[bytes, int] | None:
        return self._mirrors.get(path)

    def children(self, path: str) -> Collection[str]:
        return self._live.children(path)

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        return self._mirrors.put(path, value, expected_version)

    def delete(self, path: str, expected_version: int) -> None:
        self._mirrors.delete(path, expected_version)

    def close(self) -> None:
        """Neither store is closed."""
