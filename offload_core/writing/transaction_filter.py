"""`TransactionOffloadFilter`: leaves out entries of aborted transactions, and the markers of transactions' ends.

    settled       entries of transactions that were aborted, and markers of commits and aborts, go; all else stays.
                  Markers stay as well, where copies without a filter may need them
    not settled   waits: a transaction that is open may end either way
    no snapshot   there are no entries of transactions; one that is found nonetheless fails the offload, for its
                  outcome is unknown
    a marker that contradicts the snapshot
                  fails the offload as well: the snapshot began after that transaction, or its id lived twice

Entries without a transaction cost only the reading of their metadata. Source: docs/offload-filter.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import LocatedEntries, read_only
from offload_core.format.messages.arrow_arrays import Table
from offload_core.format.messages.entry import TransactionId
from offload_core.format.messages.kernels.transaction_ranges import ABORT, COMMIT
from offload_core.format.messages.transaction_finder import TransactionFinder
from offload_core.metadata.records.filter_record import MARKER_CAUSE, aborted_cause
from offload_hooks.errors import UnresolvedTransactionError
from offload_hooks.filters import FilteredTopic, Position, SettledTransactions
from offload_hooks.ledger_stores import EntryBatch
from offload_hooks.values import ReadableBuffer


class TransactionOffloadFilter:
    """Filters by transactions; see the module."""

    def open(self, topic: FilteredTopic) -> SettledFilter | NoTransactions:
        """See `OffloadFilter`."""
        settled = topic.settle()
        return NoTransactions(topic.name) if settled is None else SettledFilter(settled)


class SettledFilter:
    """The filter of a topic whose transactions are settled up to `stop`."""

    def __init__(self, settled: SettledTransactions) -> None:
        self.stop: Position | None = settled.stop
        self.waits_for = settled.waits_for
        self.causes: list[str] = [MARKER_CAUSE]
        self._markers_matter = settled.markers_matter
        self._aborted: Collection[tuple[int, int]] = frozenset(settled.aborted)
        self._numbers: dict[tuple[int, int], int] = {}

    def look(self, ledger_id: int, entries: EntryBatch) -> ReadableBuffer:
        """See `TopicFilter`; `UnresolvedTransactionError` for a marker that contradicts what is settled."""
        causes = np.zeros(len(entries), dtype=np.int32)
        ranges, markers = _find(ledger_id, entries)
        self._check(markers)
        if len(ranges) and self._aborted:
            places = ranges[:, :2] - entries.first_entry_id
            # what is in no range is of none, so a range's number is set where it begins, and taken back where it ends
            changes = np.zeros(len(entries) + 1, dtype=np.int32)
            numbers = self._numbers_of(ranges[:, 2:])
            changes[places[:, 0]] += numbers
            changes[places[:, 1]] -= numbers
            causes = np.cumsum(changes[:-1], dtype=np.int32)
        if not self._markers_matter:
            ends = np.isin(markers[:, 1], (COMMIT, ABORT))
            causes[markers[ends, 0] - entries.first_entry_id] = 1
        return causes.data

    def _check(self, markers: Table) -> None:
        ends = markers[np.isin(markers[:, 1], (COMMIT, ABORT))]
        for entry_id, kind, *transaction in ends.tolist():
            if (tuple(transaction) in self._aborted) != (kind == ABORT):
                raise UnresolvedTransactionError(
                    f"the end of transaction {TransactionId(*transaction)} is not that of the topic's snapshot",
                    entry_id=entry_id,
                    hint="Have the topic read from its first entry on: offload topics transactions --reset.",
                )

    def _numbers_of(self, transactions: Table) -> npt.NDArray[np.int32]:
        """The number of the cause of each row (most and least bits), 0 if it was not aborted."""
        order = np.lexsort((transactions[:, 1], transactions[:, 0]))
        ordered = transactions[order]
        begins = np.concatenate([[True], (ordered[1:] != ordered[:-1]).any(axis=1)])
        each = np.array(
            [self._number(most, least) for most, least in ordered[begins].tolist()], dtype=np.int32
        )
        numbers = np.empty(len(order), dtype=np.int32)
        numbers[order] = each[np.cumsum(begins) - 1]
        return numbers

    def _number(self, most_bits: int, least_bits: int) -> int:
        transaction = TransactionId(most_bits, least_bits)
        if transaction not in self._aborted:
            return 0
        if transaction not in self._numbers:
            self.causes.append(aborted_cause(transaction))
            self._numbers[transaction] = len(self.causes)
        return self._numbers[transaction]


class NoTransactions:
    """The filter of a topic that has no snapshot: nothing is left out, since there are no transactions."""

    stop: Position | None = None
    waits_for = ""
    causes: Sequence[str] = ()

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def look(self, ledger_id: int, entries: EntryBatch) -> ReadableBuffer:
        """See `TopicFilter`; `UnresolvedTransactionError` where there is an entry of a transaction, or a marker."""
        found = [int(table[0, 0]) for table in _find(ledger_id, entries) if len(table)]
        if found:
            raise UnresolvedTransactionError(
                f"{self._topic} has entries of transactions, and no snapshot of them",
                ledger_id=ledger_id,
                entry_id=min(found),
                hint="Have it read from its first entry on: offload topics transactions --reset.",
            )
        return np.zeros(len(entries), dtype=np.int32).data


def _find(ledger_id: int, entries: EntryBatch) -> tuple[Table, Table]:
    """Ranges of entries of transactions, and markers; see `TransactionFinder`."""
    finder = TransactionFinder(ledger_id, verify_checksums=True)
    offsets = np.asarray(entries.offsets, dtype=np.int64)
    entry_ids = np.arange(entries.first_entry_id, entries.stop_entry_id)
    finder.add(LocatedEntries(read_only(entries.data), None, entry_ids, offsets[:-1], np.diff(offsets)))
    ranges, markers, _ = finder.tables()
    return ranges, markers
