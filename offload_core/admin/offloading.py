"""What the service offloads with: the hot tier and the audit log that are configured, tiers by policies, upkeep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from offload_core.admin.topics import RecordedTopics
from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.configuration import Configuration
from offload_core.managed_ledger import (
    Environment,
    FileAuditLog,
    HotLedgers,
    LoggedDeletions,
    PolicyOffloads,
    UpkeepLoop,
    system_now_ms,
)
from offload_core.metadata import ManagedLedgerRecords
from offload_core.policy_store import PolicyStore, ResolvedPolicies
from offload_core.tier.registry import make_ledger_store


@contextmanager
def open_topics(
    configuration: Configuration, records: ManagedLedgerRecords, policies: PolicyStore
) -> Iterator[RecordedTopics]:
    """Topics whose records these are; with a hot tier they are offloaded by their policies until the block ends.

    Raises:
        OptionError: a hot tier that cannot be opened by its options. Others: those of the ledger store.
    """

    def policies_of(name: str) -> ResolvedPolicies:
        return policies.resolve(topic_of_managed_ledger(name))

    if not configuration.hot_tier.options:
        with closing(RecordedTopics(records, None, policies_of)) as topics:
            yield topics
        return
    with (
        _environment(configuration, records, policies_of) as environment,
        closing(RecordedTopics(records, environment, policies_of)) as topics,
        UpkeepLoop(topics.kept, policies_of, interval_s=configuration.service.upkeep_interval_s),
    ):
        yield topics


@contextmanager
def _environment(
    configuration: Configuration,
    records: ManagedLedgerRecords,
    policies_of: Callable[[str], ResolvedPolicies],
) -> Iterator[Environment]:
    hot_tier, path = configuration.hot_tier, configuration.audit_log.path
    options = {name: value.get_secret_value() for name, value in hot_tier.options.items()}
    with (
        closing(make_ledger_store(hot_tier.store, options)) as hot,
        closing(PolicyOffloads(records, hot, policies_of, now_ms=system_now_ms)) as offloads,
    ):
        yield Environment(
            records=records,
            hot=HotLedgers(hot),
            offloads=offloads,
            audit=LoggedDeletions() if path is None else FileAuditLog(path),
        )
