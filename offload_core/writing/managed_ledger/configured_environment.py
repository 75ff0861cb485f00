"""The environment of managed ledgers as a configuration sets it up: records, policies, hot tier, tiers, audit log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles.tiered import Fallback
from offload_core.storage.clock import system_now_ms
from offload_core.storage.offloader_stats import OffloaderStats
from offload_core.storage.tier import Tier, UploadTimeouts, open_store
from offload_core.storage.tier.registry import make_ledger_store
from offload_core.writing.audit import FileAuditLog, LoggedChanges
from offload_core.writing.managed_ledger.environment import Environment, HotLedgers
from offload_core.writing.managed_ledger.policy_offloads import PolicyOffloads, PolicyReads
from offload_core.writing.managed_ledger.streaming.pool import StreamingPool
from offload_core.writing.managed_ledger.topic_filters import PolicyFilters
from offload_core.writing.settings import Configuration, PolicyStore, ResolvedPolicies, TierSettings
from offload_hooks.errors import OptionError
from offload_hooks.metadata_stores import WritableMetadataStore


def policies_by_name(policies: PolicyStore) -> Callable[[str], ResolvedPolicies]:
    """The policies in force for a managed ledger, by its name."""
    return lambda name: policies.resolve(topic_of_managed_ledger(name))


@contextmanager
def open_environment(
    configuration: Configuration,
    store: WritableMetadataStore,
    policies: PolicyStore,
    *,
    stats: OffloaderStats | None = None,
) -> Iterator[Environment]:
    """Open the environment of a process's managed ledgers, until the block ends.

    Args:
        store, policies: of `open_policies`.
        stats: counts what is offloaded, read and deleted.

    Raises:
        OptionError: no hot tier is configured, or not by options that it takes. Others: those of the ledger store.
    """
    hot_tier, path = configuration.hot_tier, configuration.audit_log.path
    if not hot_tier.options:
        raise OptionError("nothing says where the hot tier is", hint="Set hot_tier.options.path.")
    options = {name: value.get_secret_value() for name, value in hot_tier.options.items()}
    records, policies_of = ManagedLedgerRecords(store), policies_by_name(policies)
    with ExitStack() as stack:
        hot = stack.enter_context(closing(make_ledger_store(hot_tier.store, options)))
        others = [stack.enter_context(closing(_opened(tier))) for tier in configuration.tiers]
        offloads = stack.enter_context(
            closing(
                PolicyOffloads(
                    records,
                    hot,
                    policies_of,
                    others=others,
                    now_ms=system_now_ms,
                    stats=stats,
                    upload_niceness=configuration.uploads.niceness,
                    upload_timeouts=UploadTimeouts(
                        silence_s=configuration.uploads.silence_timeout_s,
                        block_s=configuration.uploads.block_timeout_s,
                    ),
                )
            )
        )
        limits = configuration.streaming
        streaming = stack.enter_context(
            StreamingPool(
                offloads.lease_to_write,
                budget_bytes=limits.block_bytes,
                buffer_bytes=limits.buffer_bytes,
                threads=limits.threads,
            )
        )
        reads = PolicyReads(
            hot, offloads, policies_of, listener=None if stats is None else partial(_count_fallback, stats)
        )
        yield Environment(
            records=records,
            hot=HotLedgers(hot),
            open_reader=reads.open_reader,
            priority_of=reads.priority_of,
            offloads=offloads,
            filter_of=PolicyFilters(policies_of).choose,
            streaming=streaming,
            forget=lambda name: policies.forget_topic(topic_of_managed_ledger(name)),
            audit=LoggedChanges() if path is None else FileAuditLog(path),
        )


def _count_fallback(stats: OffloaderStats, fallback: Fallback) -> None:
    stats.count_fallback(fallback.copy.value, fallback.reason.value)


def _opened(tier: TierSettings) -> Tier:
    options: dict[str, Any] = {name: value.get_secret_value() for name, value in tier.options.items()}
    return open_store(tier.driver, **options)
