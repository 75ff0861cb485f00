"""What the managed ledgers of one process share: where records and ledgers are, how they are read, and the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from offload_core.audit import AuditLog, LoggedChanges
from offload_core.filters import NO_FILTER, ChosenFilter
from offload_core.managed_ledger.hot_ledgers import HotLedgers
from offload_core.managed_ledger.open_readers import OpenReader
from offload_core.managed_ledger.streaming.pool import StreamingPool
from offload_core.managed_ledger.tail_cache import DEFAULT_CACHE_BYTES
from offload_core.managed_ledger.transactions.known_waits import KnownWaits
from offload_core.metadata import LedgerRecord, ManagedLedgerRecords
from offload_core.offload.clock import system_now_ms
from offload_core.offload.offloads import Offloads
from offload_core.policies import ReadPriority
from offload_core.transactions import SnapshotStore
from offload_hooks.ledger_stores import LedgerReader


def _offloaded_first(_: str) -> ReadPriority:
    return ReadPriority.OFFLOADED_FIRST


def _not_filtered(_: str) -> ChosenFilter:
    return NO_FILTER


def _nothing_else(_: str) -> None:
    """Nothing but its record is kept of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What managed ledgers are opened in. Nothing of it is closed by them.

    Attributes:
        records: their records.
        hot: their ledgers; one of these for all that use a store.
        open_reader: opens a ledger for reading; None reads the hot tier only.
        priority_of: which copy of a managed ledger's ledgers is read, by its name, where a call does not say it.
        cache_bytes: what each managed ledger keeps of its newest entries in memory; 0 for nothing.
        offloads: to the tiers that are configured; None if none is.
        filter_of: which filter its entries go through when they are offloaded, by its name; see `open_filter`.
        waits: what topics' transactions were found to wait for.
        streaming: streams topics that are switched to it; None for none.
        audit: where each deletion is recorded.
        forget: told of each managed ledger whose record is deleted, by its name: what else is kept of its topic goes.
        now_ms: the time, in ms since 1970, UTC.
        snapshots: of their transactions.
    """

    records: ManagedLedgerRecords
    hot: HotLedgers
    open_reader: OpenReader | None = None
    priority_of: Callable[[str], ReadPriority] = _offloaded_first
    cache_bytes: int = DEFAULT_CACHE_BYTES
    offloads: Offloads | None = None
    filter_of: Callable[[str], ChosenFilter] = _not_filtered
    waits: KnownWaits = field(default_factory=KnownWaits)
    streaming: StreamingPool | None = None
    audit: AuditLog = field(default_factory=LoggedChanges)
    forget: Callable[[str], None] = _nothing_else
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
