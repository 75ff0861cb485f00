"""The environment of a process's managed ledgers: where records and ledgers are, how they are read, and the time.

`HotLedgers` finds the managed ledger of each ledger of a hot tier, by the custom metadata that the ledger was created
with: so one that no record lists, because its creator ended before it was recorded, is found. Source: BookKeeper's
custom metadata as Pulsar writes it (`LedgerMetadataUtils`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial

from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import EntryPosition, LedgerRecord, ReadPriority
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_fallbacks import Fallback
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.storage.clock import system_now_ms
from offload_core.storage.offloader_stats import OffloaderStats
from offload_core.storage.tier import Tier, UploadTimeouts, open_store
from offload_core.storage.tier.registry import make_writable_ledger_store
from offload_core.writing.audit import AuditLog, FileAuditLog, LoggedChanges
from offload_core.writing.configuration import Configuration, TierSettings, in_clear
from offload_core.writing.managed_ledger.policy_tiers import PolicyFilters, PolicyReads, PolicyTiers
from offload_core.writing.managed_ledger.streaming.pool import StreamingPool
from offload_core.writing.managed_ledger.topic_reader import DEFAULT_CACHE_BYTES, OpenReader
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_core.writing.offload_filters import NO_FILTER, ChosenFilter
from offload_core.writing.policy_store import PolicyStore, ResolvedPolicies
from offload_hooks.errors import FormatError, OptionError, UnknownLedgerError
from offload_hooks.ledger_stores import LedgerReader, LedgerWriter, WritableLedgerStore
from offload_hooks.metadata_stores import WritableMetadataStore

NAME_KEY = "pulsar/managed-ledger"


class HotLedgers:
    """The ledgers of a hot tier by managed ledger. The answers are kept: they never change."""

    def __init__(self, store: WritableLedgerStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._names: dict[int, str | None] = {}

    def create(self, name: str) -> LedgerWriter:
        """Create a ledger of this managed ledger. Errors as `WritableLedgerStore.create`."""
        writer = self.store.create(
            {"application": b"pulsar", "component": b"managed-ledger", NAME_KEY: name.encode()}
        )
        with self._lock:
            self._names[writer.ledger_id] = name
        return writer

    def of(self, name: str) -> list[int]:
        """The ids of this managed ledger's ledgers, ascending; not of one that is too damaged to state its own.

        Each ledger of the store is opened once in the life of this object. Errors as `LedgerStore.ledger_ids`.
        """
        ids = self.store.ledger_ids()
        with self._lock:
            self._names = {ledger_id: self._names[ledger_id] for ledger_id in ids if ledger_id in self._names}
            unknown = [ledger_id for ledger_id in ids if ledger_id not in self._names]
        for ledger_id in unknown:
            found = self._look(ledger_id)
            with self._lock:
                self._names[ledger_id] = found
        with self._lock:
            return [ledger_id for ledger_id in ids if self._names.get(ledger_id) == name]

    def _look(self, ledger_id: int) -> str | None:
        try:
            with closing(self.store.open(ledger_id)) as reader:
                name = reader.status().custom_metadata.get(NAME_KEY)
        except (UnknownLedgerError, FormatError):
            return None
        return None if name is None else name.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownWait:
    """The transactions that a topic waits for, and the facts by which that was found.

    To find it, all entries after the stable position are read, and upkeep asks every few seconds. With the same facts
    the answer is the same.

    Attributes:
        stable_position: that of the persisted snapshot.
        sealed: the last entry of the sealed ledgers.
        waits_for: in words.
    """

    stable_position: EntryPosition | None
    sealed: EntryPosition | None
    waits_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of managed ledgers. They do not close its parts.

    Attributes:
        records: their records.
        hot: their ledgers; one of these for all that use a store.
        open_reader: opens a ledger for reading; None reads the hot tier only.
        priority_of: which copy of a managed ledger's ledgers is read, by its name, where a call has none.
        cache_bytes: what each managed ledger keeps of its newest entries in memory; 0 for nothing.
        offloads: to the tiers that are configured; None if none is.
        filter_of: which filter its entries go through when they are offloaded, by its name; see `open_filter`.
        waits: what topics' transactions were found to wait for, by the names of managed ledgers.
        streaming: streams topics that are switched to it; None for none.
        audit: where each deletion is recorded.
        forget: called with the name of each managed ledger that is deleted: forgets what else is kept of it.
        now_ms: the time, in ms since 1970, UTC.
        snapshots: of their transactions.
    """

    records: ManagedLedgerRecords
    hot: HotLedgers
    open_reader: OpenReader | None = None
    priority_of: Callable[[str], ReadPriority] = lambda _: ReadPriority.OFFLOADED_FIRST
    cache_bytes: int = DEFAULT_CACHE_BYTES
    offloads: RecordedOffloads | None = None
    filter_of: Callable[[str], ChosenFilter] = lambda _: NO_FILTER
    waits: dict[str, KnownWait] = field(default_factory=dict)
    streaming: StreamingPool | None = None
    audit: AuditLog = field(default_factory=LoggedChanges)
    forget: Callable[[str], None] = lambda _: None
    now_ms: Callable[[], int] = system_now_ms
    snapshots: SnapshotStore = field(init=False)

    def __post_init__(self) -> None:
        """Snapshots are where the records are."""
        object.__setattr__(self, "snapshots", SnapshotStore(self.records.store))

    def open_ledger(self, record: LedgerRecord, priority: ReadPriority, name: str) -> LedgerReader:
        """Open a ledger for reading."""
        if self.open_reader is None:
            return self.hot.store.open(record.ledger_id)
        return self.open_reader(record, priority, name)


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
    hot: WritableLedgerStore | None = None,
) -> Iterator[Environment]:
    """Open the environment of a process's managed ledgers, until the block ends.

    Args:
        configuration: of `load_configuration`.
        store: of `open_policies`.
        policies: the same.
        stats: counts offloads, reads and deletions.
        hot: the hot tier, which is closed in the end; None for the configured one.

    Raises:
        OptionError: no hot tier is configured, or not by options that it takes. Others: those of the ledger store.
    """
    path = configuration.audit_log.path
    records, policies_of = ManagedLedgerRecords(store), policies_by_name(policies)
    with ExitStack() as stack:
        hot = stack.enter_context(closing(_hot_tier(configuration) if hot is None else hot))
        others = [stack.enter_context(closing(_opened(tier))) for tier in configuration.tiers]
        tiers = stack.enter_context(
            closing(
                PolicyTiers(
                    policies_of,
                    others,
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
                partial(tiers.lease, to_write=True),
                budget_bytes=limits.block_bytes,
                buffer_bytes=limits.buffer_bytes,
                threads=limits.threads,
            )
        )
        reads = PolicyReads(hot, tiers, listener=None if stats is None else partial(_count_fallback, stats))
        yield Environment(
            records=records,
            hot=HotLedgers(hot),
            open_reader=reads.open_reader,
            priority_of=reads.priority_of,
            offloads=RecordedOffloads(records, hot, tiers.lease, offloader_of=tiers.offloader, stats=stats),
            filter_of=PolicyFilters(policies_of).choose,
            streaming=streaming,
            forget=lambda name: policies.forget_topic(topic_of_managed_ledger(name)),
            audit=LoggedChanges() if path is None else FileAuditLog(path),
        )


def _hot_tier(configuration: Configuration) -> WritableLedgerStore:
    hot_tier = configuration.hot_tier
    if not hot_tier.options:
        raise OptionError(
            "no hot tier is configured", hint="Set hot_tier.options.path in the settings (--config FILE)."
        )
    return make_writable_ledger_store(hot_tier.store, in_clear(hot_tier.options))


def _count_fallback(stats: OffloaderStats, fallback: Fallback) -> None:
    stats.count_fallback(fallback.copy.value, fallback.reason.value)


def _opened(tier: TierSettings) -> Tier:
    return open_store(tier.driver, driver=tier.driver, **in_clear(tier.options))
