"""The environment of a process's managed ledgers: where records and ledgers are, how they are read, and the time.

`HotLedgers` finds the managed ledger of each ledger of a hot tier, by the custom metadata that the ledger was created
with: so one that no record lists, because its creator ended before it was recorded, is found. Source: BookKeeper's
custom metadata as Pulsar writes it (`LedgerMetadataUtils`).

`KnownWaits` keeps what topics' transactions were found to wait for. To find it, all entries after the stable position
are read, and upkeep asks every few seconds. Where no snapshot was persisted that is settled farther, and no ledger
sealed since, the answer is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field

from offload_core.metadata.policies import ReadPriority
from offload_core.metadata.records import EntryPosition, LedgerRecord
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.storage.clock import system_now_ms
from offload_core.writing.audit import AuditLog, LoggedChanges
from offload_core.writing.filters import NO_FILTER, ChosenFilter
from offload_core.writing.managed_ledger.streaming.pool import StreamingPool
from offload_core.writing.managed_ledger.topic_reader import DEFAULT_CACHE_BYTES, OpenReader
from offload_core.writing.offload.offloads import Offloads
from offload_hooks.errors import FormatError, UnknownLedgerError
from offload_hooks.ledger_stores import LedgerReader, LedgerStore, LedgerWriter

NAME_KEY = "pulsar/managed-ledger"


class HotLedgers:
    """The ledgers of a hot tier by managed ledger. What was looked up of a ledger is kept: it never changes."""

    def __init__(self, store: LedgerStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._names: dict[int, str | None] = {}

    def create(self, name: str) -> LedgerWriter:
        """Create a ledger of this managed ledger. Errors as `LedgerStore.create`."""
        writer = self.store.create(
            {"application": b"pulsar", "component": b"managed-ledger", NAME_KEY: name.encode()}
        )
        with self._lock:
            self._names[writer.ledger_id] = name
        return writer

    def of(self, name: str) -> list[int]:
        """The ids of this managed ledger's ledgers, ascending. A ledger that says nothing, being damaged, is nobody's.

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


@dataclass(frozen=True, slots=True)
class KnownWait:
    """The facts of that moment: the stable position that was persisted, and the last entry of the sealed ledgers."""

    stable_position: EntryPosition | None
    sealed: EntryPosition | None


class KnownWaits:
    """By the names of managed ledgers. Calls may come from many threads at once."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[KnownWait, str]] = {}

    def find(self, name: str, known: KnownWait) -> str | None:
        """In words, what the topic waits for; None if there is more to know than there was."""
        found = self._found.get(name)
        return found[1] if found is not None and found[0] == known else None

    def keep(self, name: str, known: KnownWait, waits_for: str) -> None:
        """That is what it waits for."""
        self._found[name] = known, waits_for

    def forget(self, name: str) -> None:
        """It waits for nothing."""
        self._found.pop(name, None)


def _offloaded_first(_: str) -> ReadPriority:
    return ReadPriority.OFFLOADED_FIRST


def _not_filtered(_: str) -> ChosenFilter:
    return NO_FILTER


def _nothing_else(_: str) -> None:
    """Nothing but its record is kept of a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of managed ledgers. They close nothing of it.

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
