"""Policies of namespaces and topics in a metadata store that is ours, changed by compare-and-set.

A namespace's are at Pulsar's path, `/admin/policies/<tenant>/<namespace>`. A topic's, which Pulsar has in a system
topic, are at `/admin/topic-policies/` and its managed ledger's name; all partitions of a topic share one record.
Records are created when they are set. The broker's policies come from the configuration.

The tiers that tenants may use are the broker's, those that an operator set, and those of a list. Policies of a tier
that an operator set are vouched for in their record. All others were set by a tenant, or by the broker that wrote the
record: they are checked against the list when they are set, and before each use.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial

from offload_core.metadata.catalogue.policy_places import (
    NAMESPACES,
    TOPICS,
    namespace_of,
    namespace_path,
    topic_path,
)
from offload_core.metadata.catalogue.topics import TopicName, topic_of_managed_ledger
from offload_core.metadata.policies import (
    EffectivePolicies,
    OffloadPolicies,
    RetentionPolicies,
    outrun_thresholds,
    resolve_policies,
)
from offload_core.metadata.policies.effective import Origin
from offload_core.metadata.policies.level import (
    NAMESPACE_NAMES,
    TOPIC_NAMES,
    LevelPolicies,
    Names,
    Part,
    level_without,
    pack_level,
    parse_level,
)
from offload_core.metadata.policies.tier_fields import (
    asks_by_surroundings,
    same_driver,
    tier_of,
    without_tier,
)
from offload_core.metadata.stores import open_metadata_store
from offload_core.metadata.stores.record_paths import list_names
from offload_core.metadata.stores.resolved_writes import delete_resolved, put_resolved, until_first
from offload_core.storage.tier import registry
from offload_core.writing.configuration import Configuration, TenantPlace, in_clear
from offload_hooks.errors import MetadataError, OffloadError, OptionError, VersionConflictError, placed
from offload_hooks.metadata_stores import WritableMetadataStore, check_path

_FREE = frozenset(
    (
        *("access_key_id", "secret_access_key", "session_token", "token", "account_key", "sas_token"),
        *("anonymous", "storage_class", "role_session_name"),
    )
)
"""The drivers' options that a tenant may set at a listed place; of credentials those in the policy itself."""

_ENDPOINT, _BUCKET = "managedLedgerOffloadServiceEndpoint", "managedLedgerOffloadBucket"


class TenantPlaces:
    """The check of tenants' policies.

    Args:
        listed: the places that tenants may name.
        filters: the filters that they may name.
        has_tenants: whether roles of tenants change policies; if not, only a server is refused that an operator did
            not name and that would get credentials of the machine.
    """

    def __init__(
        self,
        listed: Sequence[TenantPlace] = (),
        *,
        filters: frozenset[str] = frozenset(),
        has_tenants: bool = False,
    ) -> None:
        self._listed = tuple(listed)
        self._filters = filters
        self.has_tenants = has_tenants or bool(listed)

    def check_tier(self, tenant: str, vouched: EffectivePolicies, policies: EffectivePolicies) -> None:
        """Refuse a tier that a tenant may not name.

        Args:
            vouched: the policies in force without those of a tier that no operator set.
            policies: the policies in force.

        Raises:
            OptionError: it is neither the vouched one nor listed. The text is the same whether the place exists or not.
        """
        if policies.tier() == vouched.tier():
            return
        if not self.has_tenants and not asks_by_surroundings(policies.tier()):
            return
        if any(_is_at(place, vouched, policies) for place in self._of(tenant, policies.driver)):
            return
        raise OptionError(
            "a tenant may name only a tier that the operator lists",
            expected="one of service.tenant_places, with no other options; or policies that an operator sets",
        )

    def check_filter(self, name: str) -> None:
        """Refuse a filter that a tenant may not name.

        Raises:
            OptionError: it is not listed.
        """
        if name not in self._filters:
            raise OptionError(
                "a tenant may name only a filter that the operator lists",
                expected=", ".join(sorted(self._filters)),
                found=repr(name),
            )

    def _of(self, tenant: str, driver: str | None) -> list[TenantPlace]:
        return [
            place
            for place in self._listed
            if same_driver(place.driver, driver) and (not place.tenants or tenant in place.tenants)
        ]


def _is_at(place: TenantPlace, vouched: EffectivePolicies, policies: EffectivePolicies) -> bool:
    """True if a tier is at a place, and a tenant may set all other options of it."""
    driver = policies.driver
    assert driver is not None
    try:
        given = _by_own_names(driver, policies.named_options())
        known = _by_own_names(driver, vouched.named_options()) if same_driver(vouched.driver, driver) else {}
        fixed = {_ENDPOINT: place.endpoint, _BUCKET: place.bucket}
        listed = _by_own_names(driver, {name: value for name, value in fixed.items() if value})
        listed |= {name: value.get_secret_value().strip() for name, value in place.options.items()}
        empty = _by_own_names(driver, dict.fromkeys(fixed, "-"))
    except OffloadError:
        return False
    prefix, root = given.pop("prefix", ""), given.pop("root", "") if place.root is not None else ""
    if not _is_below(prefix.strip("/").split("/"), place.prefix.strip("/").split("/")):
        return False
    if place.root is not None and not _is_inside(root, place.root):
        return False
    for name, value in given.items():
        is_place = name in listed or name in empty
        if value != listed.get(name) and (is_place or (known.get(name) != value and name not in _FREE)):
            return False
    return all(given.get(name) == value for name, value in listed.items())


def _by_own_names(driver: str, options: Mapping[str, object]) -> dict[str, str]:
    named = registry.driver_options_by_own_names(driver, options)
    texts = {name: str(value).strip() for name, value in named.items()}
    return {name: text for name, text in texts.items() if text}


def _is_below(parts: list[str], place: list[str]) -> bool:
    return place == [""] or (parts[: len(place)] == place and not {"", ".", ".."}.intersection(parts))


def _is_inside(root: str, place: os.PathLike[str]) -> bool:
    """True if a folder, links followed, is another one or below it."""
    if not root.startswith("/") or "\0" in root or ".." in root.split("/"):
        return False
    real, around = os.path.realpath(root), os.path.realpath(place)
    return os.path.commonpath((real, around)) == around


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPolicies:
    """The policies in force; retention is, as a whole, that of the lowest level that has any."""

    offload: EffectivePolicies
    retention: RetentionPolicies
    retention_origin: Origin

    def explain(self) -> list[tuple[str, str, Origin]]:
        """Each value: Pulsar's name, text with secrets masked, origin."""
        limits = self.retention.model_dump(by_alias=True)
        rows = [(name, str(value), self.retention_origin) for name, value in limits.items()]
        return [*self.offload.explain(), *rows]


Change = Callable[[LevelPolicies], LevelPolicies]
Check = Callable[[LevelPolicies, LevelPolicies], None]
"""Refuses a change from one level's policies to others."""

_NONE = LevelPolicies()

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    path: str
    names: Names


class PolicyStore:
    """The policies of namespaces (`tenant/namespace`) and topics; calls may come from many threads at once.

    All raise the store's errors, with the path; `MetadataError` for a record that makes no sense; `OptionError` for a
    wrong name of a namespace.

    Args:
        store: it is not closed.
        broker: the broker's offload policies.
        broker_retention: its retention.
        places: the tiers that tenants may use; None if there are no tenants.

    Raises:
        OptionError: retention would delete what the broker's thresholds offload.
    """

    def __init__(
        self,
        store: WritableMetadataStore,
        *,
        broker: OffloadPolicies | None = None,
        broker_retention: RetentionPolicies | None = None,
        places: TenantPlaces | None = None,
    ) -> None:
        self._store = store
        self._places = TenantPlaces() if places is None else places
        self._broker = LevelPolicies(offload=broker, retention=broker_retention)
        defaults = ResolvedPolicies(
            offload=resolve_policies(), retention=RetentionPolicies(), retention_origin="default"
        )
        _check("the broker", defaults, self._resolve("", _NONE, _NONE))

    def namespace(self, namespace: str) -> LevelPolicies:
        """The policies of a namespace."""
        return self._read(_namespace_place(namespace))[0]

    def topic(self, topic: TopicName) -> LevelPolicies:
        """The policies of a topic; for a partition, those of its topic."""
        return self._read(_topic_place(topic))[0]

    def namespaces(self) -> list[str]:
        """The namespaces that have records, in order."""
        tenants = self._store.children(NAMESPACES)
        return sorted(
            f"{tenant}/{name}"
            for tenant in tenants
            for name in self._store.children(f"{NAMESPACES}/{tenant}")
        )

    def change_namespace(self, namespace: str, change: Change, *, by_tenant: bool = False) -> LevelPolicies:
        """Change the policies of a namespace, also while others change it; return the new ones.

        Only what the change makes worse is refused.

        Args:
            change: returns the new policies for the known ones; it is called again if another process was faster. It
                has no effects, and may raise; then nothing is written.
            by_tenant: whether a role of the tenant changes it, not an operator.

        Raises:
            OptionError: a threshold of the namespace, or of a topic in it with policies of its own, is not below
                retention; or a tenant names a tier or a filter that it may not.
            UnknownPluginError: a driver or a filter that is not installed.
            VersionConflictError, OutcomeUnknownError: see `until_first`, `put_resolved`.
        """
        check = self._namespace_check(namespace, by_tenant)
        return self._change(_namespace_place(namespace), change, check, by_tenant)

    def change_topic(self, topic: TopicName, change: Change, *, by_tenant: bool = False) -> LevelPolicies:
        """Change the policies of a topic; as `change_namespace`."""
        return self._change(_topic_place(topic), change, self._topic_check(topic, by_tenant), by_tenant)

    def remove_from_namespace(self, namespace: str, part: Part, *, by_tenant: bool = False) -> None:
        """Remove a namespace's offload policies or its retention, even if they cannot be read.

        Errors as `change_namespace`; for a record that cannot be read nothing is refused.
        """
        self._remove(_namespace_place(namespace), part, self._namespace_check(namespace, by_tenant))

    def remove_from_topic(self, topic: TopicName, part: Part, *, by_tenant: bool = False) -> None:
        """Remove a topic's offload policies or its retention; as `remove_from_namespace`."""
        self._remove(_topic_place(topic), part, self._topic_check(topic, by_tenant))

    def forget_topic(self, topic: TopicName) -> None:
        """Remove the policies of a topic that has no managed ledger any more; those that are set meanwhile stay."""
        place, namespace = _topic_place(topic), namespace_of(topic)
        found = self._store.get(place.path)
        names = [] if found is None else list_names(self._store, [namespace])
        if found is None or any(topic_of_managed_ledger(name).base == topic.base for name in names):
            return
        with suppress(VersionConflictError):
            delete_resolved(self._store, place.path, found[1])

    def resolve(self, topic: TopicName) -> ResolvedPolicies:
        """The policies in force for a topic."""
        namespace = namespace_of(topic)
        return self._resolve(namespace, self.namespace(namespace), self.topic(topic))

    def resolve_namespace(self, namespace: str) -> ResolvedPolicies:
        """The policies in force for topics of a namespace that have none themselves."""
        return self._resolve(namespace, self.namespace(namespace), _NONE)

    def _resolve(self, name: str, namespace: LevelPolicies, topic: LevelPolicies) -> ResolvedPolicies:
        levels: tuple[tuple[Origin, LevelPolicies], ...] = (
            ("topic", topic),
            ("namespace", namespace),
            ("broker", self._broker),
            ("default", LevelPolicies(retention=RetentionPolicies())),
        )
        origin, retention = next((o, each.retention) for o, each in levels if each.retention is not None)
        broker = self._broker.offload
        offload = resolve_policies(topic=topic.offload, namespace=namespace.offload, broker=broker)
        if not (namespace.vouched and topic.vouched):
            by_topic, by_namespace = (
                each.offload if each.vouched else without_tier(each.offload) for each in (topic, namespace)
            )
            vouched = resolve_policies(topic=by_topic, namespace=by_namespace, broker=broker)
            check = partial(self._places.check_tier, name.partition("/")[0], vouched)
            offload = replace(offload, check_tier=check)
        return ResolvedPolicies(offload=offload, retention=retention, retention_origin=origin)

    def _namespace_check(self, namespace: str, by_tenant: bool) -> Check:
        def check(known: LevelPolicies, new: LevelPolicies) -> None:
            unchanged = [(f"namespace {namespace}", _NONE)]
            unchanged += [
                (f"topic {each}", self._level(_topic_place(each))) for each in self._topics(namespace)
            ]
            for where, topic in unchanged:
                before, after = (self._resolve(namespace, each, topic) for each in (known, new))
                if by_tenant:
                    self._check_tenants_change(before, after, other=topic)
                _check(where, before, after)

        return check

    def _topic_check(self, topic: TopicName, by_tenant: bool) -> Check:
        def check(known: LevelPolicies, new: LevelPolicies) -> None:
            name = namespace_of(topic)
            namespace = self._level(_namespace_place(name))
            before, after = (self._resolve(name, namespace, each) for each in (known, new))
            if by_tenant:
                self._check_tenants_change(before, after)
            _check(f"topic {topic.base}", before, after)

        return check

    def _check_tenants_change(
        self, before: ResolvedPolicies, after: ResolvedPolicies, other: LevelPolicies = _NONE
    ) -> None:
        """Refuse a change of the tier that a tenant may not make; `other` is a level that does not change."""
        if _filter_of(after.offload) != _filter_of(before.offload):
            self._places.check_filter(after.offload.filter_name)
        if after.offload.tier() == before.offload.tier():
            return
        if other.vouched and tier_of(other.offload):
            raise OptionError("an operator's policies of a topic in the namespace depend on its tier")
        after.offload.check_tier_may_be_used()

    def _level(self, place: _Place) -> LevelPolicies:
        """The policies of a level that does not change; none if its record cannot be read."""
        try:
            return self._read(place)[0]
        except MetadataError as error:
            _log.warning("a change of policies is checked without a record that cannot be read: %s", error)
            return _NONE

    def _topics(self, namespace: str) -> Iterator[TopicName]:
        """The topics of a namespace that have policies of their own."""
        parent = f"{namespace}/persistent"
        for name in self._store.children(check_path(f"{TOPICS}/{parent}")):
            yield topic_of_managed_ledger(f"{parent}/{name}")

    def _read(self, place: _Place) -> tuple[LevelPolicies, int | None]:
        found = self._store.get(place.path)
        if found is None:
            return LevelPolicies(), None
        with placed(key=place.path):
            return parse_level(found[0], place.names), found[1]

    def _change(self, place: _Place, change: Change, check: Check, by_tenant: bool) -> LevelPolicies:
        def turn() -> LevelPolicies:
            known, version = self._read(place)
            new = change(known)
            if by_tenant:
                is_same = tier_of(new.offload) == tier_of(known.offload)
                new = replace(new, vouched=not tier_of(new.offload) or (known.vouched and is_same))
            if new != known or new.vouched != known.vouched:
                check(known, new)
                self._write(place, new, version)
            return new

        return until_first(turn)

    def _remove(self, place: _Place, part: Part, check: Check) -> None:
        def turn() -> None:
            found = self._store.get(place.path)
            if found is None:
                return
            rest = level_without(found[0], place.names, part)
            try:
                known = parse_level(found[0], place.names)
            except MetadataError:
                known = None
            if rest == known:
                return
            if known is not None:
                check(known, rest)
            self._write(place, rest, found[1])

        until_first(turn)

    def _write(self, place: _Place, new: LevelPolicies, version: int | None) -> None:
        vouching = self._places.has_tenants or asks_by_surroundings(tier_of(new.offload))
        data = pack_level(new, place.names, vouching=vouching)
        if data:
            put_resolved(self._store, place.path, data, version)
        elif version is not None:
            delete_resolved(self._store, place.path, version)


def _check(where: str, before: ResolvedPolicies, after: ResolvedPolicies) -> None:
    """Refuse faults of the new policies that the old ones did not have."""
    driver = after.offload.driver
    if driver is not None and driver != before.offload.driver:
        registry.find(registry.DRIVERS, driver)
    if after.offload.filter_name != before.offload.filter_name:
        registry.find(registry.FILTERS, after.offload.filter_name)
    known = outrun_thresholds(before.offload, before.retention)
    for outrun in outrun_thresholds(after.offload, after.retention):
        if outrun not in known:
            raise outrun.refusal(where)


def _filter_of(policies: EffectivePolicies) -> tuple[object, ...]:
    return policies.filter_name, policies.filter_mode, policies.filter_options


def _namespace_place(namespace: str) -> _Place:
    return _Place(path=namespace_path(namespace), names=NAMESPACE_NAMES)


def _topic_place(topic: TopicName) -> _Place:
    return _Place(path=topic_path(topic), names=TOPIC_NAMES)


@contextmanager
def open_policies(configuration: Configuration) -> Iterator[tuple[WritableMetadataStore, PolicyStore]]:
    """The metadata store, open until the block ends, and the policies that it keeps.

    Raises:
        OptionError: no store is named, or the broker's policies make no sense. Others: see `open_metadata_store`.
    """
    with closing(open_configured_store(configuration)) as store:
        yield store, configured_policies(configuration, store)


def open_configured_store(configuration: Configuration) -> WritableMetadataStore:
    """The metadata store of a configuration; the caller closes it. Errors as `open_policies`."""
    metadata = configuration.metadata
    if metadata.url is None:
        raise OptionError(
            "where is the metadata?",
            expected="the URL of a metadata store",
            hint="Set metadata.url, or --metadata: sqlite:/var/lib/offload.db, zk://host:2181/offload.",
        )
    return open_metadata_store(metadata.url, in_clear(metadata.options))


def configured_policies(configuration: Configuration, store: WritableMetadataStore) -> PolicyStore:
    """The policies that a store keeps, with a configuration's for the broker and its places of tenants.

    Raises:
        OptionError: the broker's policies make no sense.
    """
    service = configuration.service
    places = TenantPlaces(
        service.tenant_places,
        filters=service.tenant_filters,
        has_tenants=any(service.tokens.tenant_admin_roles.values()),
    )
    return PolicyStore(
        store, broker=configuration.policies, broker_retention=configuration.retention, places=places
    )
