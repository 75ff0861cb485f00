"""Policies of namespaces and topics in a metadata store that is ours, changed by compare-and-set.

A namespace's are at Pulsar's path, `/admin/policies/<tenant>/<namespace>`. A topic's, which Pulsar keeps in a system
topic, are at `/admin/topic-policies/` and its managed ledger's name; all partitions of a topic have one record. Neither
needs to be made before it is set. The broker's own come from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offload_core.catalogue.topics import TopicName, managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.resolved_writes import delete_resolved, put_resolved, until_first
from offload_core.policies import OffloadPolicies, RetentionPolicies, check_retention, resolve_policies
from offload_core.policies.effective import Origin
from offload_core.policy_store.level import (
    NAMESPACE_NAMES,
    TOPIC_NAMES,
    LevelPolicies,
    Names,
    pack_level,
    parse_level,
)
from offload_core.policy_store.resolved import ResolvedPolicies
from offload_core.tier import registry
from offload_hooks.errors import OptionError, placed
from offload_hooks.metadata_stores import WritableMetadataStore, check_path

Change = Callable[[LevelPolicies], LevelPolicies]

_TOPICS = "/admin/topic-policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    path: str
    names: Names


class PolicyStore:
    """The policies of namespaces (`tenant/namespace`) and topics; calls may come from many threads at once.

    All raise the store's errors, with the path; `MetadataError` for a record that makes no sense; `OptionError` for the
    name of a namespace that is none.

    Args:
        store: where they are; it is not closed.
        broker: what the broker says of offloading. broker_retention: of retention.

    Raises:
        OptionError: retention would delete what the broker's thresholds offload.
    """

    def __init__(
        self,
        store: WritableMetadataStore,
        *,
        broker: OffloadPolicies | None = None,
        broker_retention: RetentionPolicies | None = None,
    ) -> None:
        self._store = store
        self._broker = LevelPolicies(offload=broker, retention=broker_retention)
        self._check("the broker", LevelPolicies(), LevelPolicies())

    def namespace(self, namespace: str) -> LevelPolicies:
        """What a namespace says."""
        return self._read(_namespace_place(namespace))[0]

    def topic(self, topic: TopicName) -> LevelPolicies:
        """What a topic says; of a partition, what its topic says."""
        return self._read(_topic_place(topic))[0]

    def change_namespace(self, namespace: str, change: Change) -> LevelPolicies:
        """Change what a namespace says, however many others change it at the same time; what it says then.

        Args:
            change: what it is to say for what it says; it is called again where somebody else was faster. It has no
                effects, and may raise; then nothing is written.

        Raises:
            OptionError: retention would delete before it is offloaded what a threshold names: of the namespace, or
                of a topic in it with policies of its own.
            UnknownPluginError: a driver that is not installed.
            VersionConflictError, OutcomeUnknownError: see `until_first`, `put_resolved`.
        """

        def check(said: LevelPolicies) -> None:
            self._check(f"namespace {namespace}", said, LevelPolicies())
            for topic in self._topics(namespace):
                self._check(f"topic {topic}", said, self.topic(topic))

        return self._change(_namespace_place(namespace), change, check)

    def change_topic(self, topic: TopicName, change: Change) -> LevelPolicies:
        """Change what a topic says; as `change_namespace`."""
        namespace = namespace_of(topic)
        return self._change(
            _topic_place(topic),
            change,
            lambda said: self._check(f"topic {topic.base}", self.namespace(namespace), said),
        )

    def resolve(self, topic: TopicName) -> ResolvedPolicies:
        """What holds for a topic."""
        return self._resolve(self.namespace(namespace_of(topic)), self.topic(topic))

    def resolve_namespace(self, namespace: str) -> ResolvedPolicies:
        """What holds for the topics of a namespace that say nothing themselves."""
        return self._resolve(self.namespace(namespace), LevelPolicies())

    def _resolve(self, namespace: LevelPolicies, topic: LevelPolicies) -> ResolvedPolicies:
        levels: tuple[tuple[Origin, LevelPolicies], ...] = (
            ("topic", topic),
            ("namespace", namespace),
            ("broker", self._broker),
            ("default", LevelPolicies(retention=RetentionPolicies())),
        )
        origin, retention = next((o, said.retention) for o, said in levels if said.retention is not None)
        return ResolvedPolicies(
            offload=resolve_policies(
                topic=topic.offload, namespace=namespace.offload, broker=self._broker.offload
            ),
            retention=retention,
            retention_origin=origin,
        )

    def _check(self, where: str, namespace: LevelPolicies, topic: LevelPolicies) -> None:
        resolved = self._resolve(namespace, topic)
        if resolved.offload.driver is not None:
            registry.find(registry.DRIVERS, resolved.offload.driver)
        check_retention(resolved.offload, resolved.retention, where)

    def _topics(self, namespace: str) -> Iterator[TopicName]:
        """The topics of a namespace that have policies of their own."""
        parent = f"{namespace}/persistent"
        for name in self._store.children(check_path(f"{_TOPICS}/{parent}")):
            yield topic_of_managed_ledger(f"{parent}/{name}")

    def _read(self, place: _Place) -> tuple[LevelPolicies, int | None]:
        found = self._store.get(place.path)
        if found is None:
            return LevelPolicies(), None
        with placed(key=place.path):
            return parse_level(found[0], place.names), found[1]

    def _change(self, place: _Place, change: Change, check: Callable[[LevelPolicies], None]) -> LevelPolicies:
        def turn() -> LevelPolicies:
            known, version = self._read(place)
            said = change(known)
            if said == known:
                return said
            check(said)
            data = pack_level(said, place.names)
            if data:
                put_resolved(self._store, place.path, data, version)
            elif version is not None:
                delete_resolved(self._store, place.path, version)
            return said

        return until_first(turn)


def namespace_of(topic: TopicName) -> str:
    """The namespace of a topic, `tenant/namespace`."""
    return "/".join(topic.full.removeprefix("persistent://").split("/")[:2])


def _namespace_place(namespace: str) -> _Place:
    if namespace.count("/") != 1:
        raise OptionError("this is no namespace", expected="tenant/namespace", found=namespace)
    return _Place(path=check_path(f"/admin/policies/{namespace}"), names=NAMESPACE_NAMES)


def _topic_place(topic: TopicName) -> _Place:
    name = managed_ledger_of_topic(TopicName(topic.base))
    return _Place(path=check_path(f"{_TOPICS}/{name}"), names=TOPIC_NAMES)
