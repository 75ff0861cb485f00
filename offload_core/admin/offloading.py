"""What the service offloads: topics of a hot tier that is configured, when it is asked to and by their policies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from offload_core.admin.offloader_metrics import OffloaderMetrics
from offload_core.admin.topics import RecordedTopics
from offload_core.configuration import Configuration
from offload_core.managed_ledger import UpkeepLoop, open_environment, policies_by_name
from offload_core.metadata import ManagedLedgerRecords
from offload_core.policy_store import PolicyStore
from offload_hooks.metadata_stores import WritableMetadataStore


@contextmanager
def open_topics(
    configuration: Configuration,
    store: WritableMetadataStore,
    policies: PolicyStore,
    stats: OffloaderMetrics,
) -> Iterator[RecordedTopics]:
    """Topics whose records are in a store; with a hot tier they are offloaded by their policies until the block ends.

    Raises:
        OptionError: a hot tier that cannot be opened by its options. Others: those of the ledger store.
    """
    records, policies_of = ManagedLedgerRecords(store), policies_by_name(policies)
    service = configuration.service
    if not configuration.hot_tier.options:
        with closing(RecordedTopics(records, None, policies_of)) as topics:
            yield topics
        return
    with open_environment(configuration, store, policies, stats=stats) as environment:
        topics = RecordedTopics(
            records, environment, policies_of, threads=service.offload_threads, listed=stats.keep
        )
        loop = UpkeepLoop(
            topics.kept, policies_of, interval_s=service.upkeep_interval_s, threads=service.upkeep_threads
        )
        with loop, closing(topics):  # which stops the offloads of upkeep as well
            yield topics
