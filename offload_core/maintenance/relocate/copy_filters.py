"""The filter of transactions for copies that are moved: what became of each entry is decided as readers decide it.

A topic's end is searched for open transactions once, and each copy is read once more before it is copied: an entry that
a consumer does not see, since its transaction was aborted, is left out. So a scan gives the same before and after,
whichever process wrote the old copies. A copy waits while a transaction before its end is open; for readers take all
before a filtered copy as settled.

The process that plans makes a `CopyFilter` for each copy; any other can read by it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from offload_core.format.codec.object_marks import FILTERED_TRANSACTIONS
from offload_core.format.messages.entry import TransactionId
from offload_core.metadata.catalogue import Catalogue, TierReader, TopicName, record_catalogue
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.filter_record import FilterMode, aborted_cause
from offload_core.reading.scan import Position, ReadOptions, ScanOptions, ScanTask, read_task, scan
from offload_core.reading.scan.transactions import TailReader
from offload_core.reading.scan.transactions.outcomes import END, NO_RANGES, Table, clip, name_transactions
from offload_core.storage.tier import Tier
from offload_core.writing.offload_filters import FilterRun
from offload_hooks.bounded_cache import BoundedCache
from offload_hooks.errors import UnresolvedTransactionError
from offload_hooks.ledger_stores import EntryBatch

_COLUMNS = ("__entryId", "__txnIdMost", "__txnIdLeast", "__txnState")
_OPTIONS = ScanOptions(isolation="uncommitted", columns=_COLUMNS, chunks="raw")
_KNOWN_TOPICS = 8
_HINT = "A copy waits for the end of each transaction before its own end; that may lie in a ledger that is hot still."


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFilter:
    """The filter of one copy; picklable.

    Attributes:
        stop: one past the last entry of its ledger.
        tasks, options: read what became of its entries.
    """

    mode: FilterMode
    stop: EntryPosition
    tasks: tuple[ScanTask, ...]
    options: ReadOptions

    def decide(self, tier: Tier) -> AbortedEntries:
        """Find the entries that are left out.

        Raises:
            UnresolvedTransactionError: a transaction does not end near its entries.
            FormatError, StoreError, DataLossError: of the old copies.
        """
        found = [np.empty((0, 3), dtype=np.int64)]
        for batch in (batch for task in self.tasks for batch in read_task(tier, task, self.options)):
            found.append(self._aborted(batch))
        rows = np.unique(np.concatenate(found), axis=0)
        return AbortedEntries(mode=self.mode, stop=self.stop, rows=rows)

    def _aborted(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Entry, most and least bits of its transaction, of each message of one that was aborted."""
        states = batch.column("__txnState")
        if pc.any(pc.equal(states, "open")).as_py():
            first = pc.index(states, "open").as_py()
            entry_id, most, least = (batch.column(name)[first].as_py() for name in _COLUMNS[:3])
            raise UnresolvedTransactionError(
                f"the end of transaction ({most},{least}) is not found",
                ledger_id=self.stop.ledger_id,
                entry_id=entry_id,
                hint=_HINT,
            )
        aborted = batch.filter(pc.equal(states, "aborted"))
        return np.stack([aborted.column(name).to_numpy() for name in _COLUMNS[:3]], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedEntries:
    """The entries of a ledger that are left out: int64 rows of entry, most and least bits, ascending."""

    mode: FilterMode
    stop: EntryPosition
    rows: npt.NDArray[np.int64]

    @property
    def count(self) -> int:
        """The number of entries."""
        return len(self.rows)

    def run(self) -> FilterRun:
        """A run over the ledger's entries."""
        return FilterRun(FILTERED_TRANSACTIONS, self.mode, _Decided(self))


class _Decided:
    """A `TopicFilter` whose decisions are known."""

    waits_for = ""

    def __init__(self, aborted: AbortedEntries) -> None:
        self.stop = (aborted.stop.ledger_id, aborted.stop.entry_id)
        self._entry_ids = aborted.rows[:, 0]
        transactions, numbers = np.unique(aborted.rows[:, 1:], axis=0, return_inverse=True)
        self._numbers = numbers.reshape(-1) + 1
        self.causes: Sequence[str] = [aborted_cause(TransactionId(*each)) for each in transactions.tolist()]

    def look(self, ledger_id: int, entries: EntryBatch) -> memoryview:
        assert ledger_id == self.stop[0]
        causes = np.zeros(len(entries), dtype=np.int32)
        first, stop = np.searchsorted(self._entry_ids, (entries.first_entry_id, entries.stop_entry_id))
        causes[self._entry_ids[first:stop] - entries.first_entry_id] = self._numbers[first:stop]
        return causes.data


@dataclass(frozen=True, slots=True)
class _KnownTopic:
    """A topic's copies, its ranges of open transactions, and its first ledger that is not wholly in the tier."""

    catalogue: Catalogue
    unsettled: Table
    first_hot: int


class CopyFilters:
    """Makes the filters of copies; calls may come from many threads at once.

    Args:
        tier: has the copies that records name, if need be of several tiers; it is not closed.
    """

    def __init__(self, tier: Tier) -> None:
        self._reader = TierReader(tier)
        self._lock = threading.Lock()
        self._known = BoundedCache[TopicName, _KnownTopic](_KNOWN_TOPICS)

    def of(
        self, topic: TopicName, ledger: LedgerRecord, info: ManagedLedgerInfo, mode: FilterMode
    ) -> CopyFilter:
        """Make the filter of a ledger's copy.

        Args:
            info: the topic's record; the first one that is given counts for all its ledgers.

        Raises:
            UnresolvedTransactionError: a transaction before the end of the ledger is open.
            FormatError, StoreError: of the topic's objects.
        """
        ledger_id, count = ledger.ledger_id, ledger.info.entries or 0
        known = self._topic(topic, info)
        if known.first_hot < ledger_id:
            raise UnresolvedTransactionError(
                f"a ledger of {topic} before it is not in the tier",
                ledger_id=ledger_id,
                found=f"ledger {known.first_hot}",
                hint=_HINT,
            )
        before = clip(known.unsettled, (0, 0), (ledger_id, count))
        if len(before):
            raise UnresolvedTransactionError(
                f"a transaction of {topic} is open",
                ledger_id=int(before[0, 0]),
                entry_id=int(before[0, 1]),
                found=name_transactions(before)[1],
                hint=_HINT,
            )
        asked = _OPTIONS.having(
            start={topic: Position(ledger_id, 0)}, stop={topic: Position(ledger_id, count)}
        )
        planned = scan(self._reader, topic.full, asked, catalogue=known.catalogue)
        stop = EntryPosition(ledger_id, count)
        return CopyFilter(mode=mode, stop=stop, tasks=planned.planned, options=planned.options)

    def _topic(self, topic: TopicName, info: ManagedLedgerInfo) -> _KnownTopic:
        def find() -> _KnownTopic:
            tier = self._reader.store
            catalogue = record_catalogue(tier, {topic: info}, read_indexes=False)
            tails = TailReader(tier=tier, asked=_OPTIONS)
            tables = [tails.open_in(each, (0, 0), (END, 0)) for each in catalogue.topics]
            hot = (
                each.ledger_id for each in info.ledgers if each.info.entries and not each.is_fully_offloaded
            )
            return _KnownTopic(catalogue, np.concatenate([NO_RANGES, *tables]), min(hot, default=END))

        with self._lock:
            return self._known.load(topic, find)
