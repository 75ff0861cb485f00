"""Checks before a hot copy is deleted: cold copies are as recorded, and filters dropped only what may go.

    check_cold_copies   each copy that the record names has all entries of the record, and they go to its end
    check_settled       transactions are settled, as persisted by now, as far as a filter took them to be, and those
                        of which entries were dropped were aborted

Where it is not known whether all is right, the hot copy stays: it cannot come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from offload_core.format.codec.object_marks import FILTERED_TRANSACTIONS
from offload_core.format.messages.entry import TransactionId
from offload_core.metadata.catalogue.copy_check import (
    Mismatch,
    check_coverage,
    check_found,
    find_copy,
    find_ledger,
    is_deletable_for,
)
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.catalogue.recorded_copies import RecordedCopy, recorded_copies
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import LedgerRecord
from offload_core.metadata.records.filter_record import FilterRecord, indexed_filter
from offload_core.reading.transaction_buffers import BufferSnapshot
from offload_hooks.errors import DataLossError

_NAMED = 5
"""Number of transactions that an error names."""


def check_cold_copies(tiers: KnownTiers, name: str, ledger: LedgerRecord) -> tuple[FilterRecord, ...]:
    """Check that the copies which a ledger's record names have all of its entries; see `check_found`.

    Returns:
        What filters did to them, of those that went through one; see `check_settled`.

    Raises:
        DataLossError: it is not so.
        OptionError: a copy lies in a tier that is not configured.
        FormatError, StoreError: of an index and a tier.
    """
    records: list[FilterRecord] = []
    for copy in recorded_copies(topic_of_managed_ledger(name), ledger):
        tier = tiers.find(copy.driver)
        found = find_copy(tier, copy)
        stat, index = found.stat, found.index
        mismatch = check_found(tier, ledger, found)
        if mismatch is not None and not is_deletable_for(mismatch):
            raise _lacking(mismatch, ledger, found.copy)
        assert stat is not None
        assert index is not None
        in_index = find_ledger(found.copy, index, gaps=stat.marks.has_gaps)
        record = None if in_index is None else indexed_filter(in_index)
        if record is not None:
            records.append(record)
    mismatch = check_coverage(ledger)
    if mismatch is not None:
        raise _lacking(mismatch, ledger, None)
    return tuple(records)


def _lacking(mismatch: Mismatch, ledger: LedgerRecord, copy: RecordedCopy | None) -> DataLossError:
    return DataLossError(
        f"a cold copy that is recorded as complete does not match its record: {mismatch.what}",
        key=None if copy is None else mismatch.key(copy),
        ledger_id=ledger.ledger_id,
        entry_id=mismatch.entry_id,
        expected=mismatch.expected,
        found=mismatch.found,
        hint="The hot copy is kept. `offload repair … --offload-again` makes a whole cold copy of it.",
    )


def check_settled(records: Iterable[FilterRecord], snapshot: BufferSnapshot | None, ledger_id: int) -> None:
    """Check that entries which these filters dropped were settled, and of transactions that were aborted.

    Args:
        snapshot: the topic's, as it is persisted now; None if there is none.

    Raises:
        DataLossError: it was not, or it is not known.
    """
    for record in records:
        aborted = record.aborted
        is_settled = record.name == FILTERED_TRANSACTIONS and record.stop is not None
        if not record.total_dropped.entries or not (is_settled or aborted):
            continue  # of a filter that knows of no transactions; its stop is of something else
        if snapshot is None:
            raise DataLossError(
                "a filter took entries of transactions out of a cold copy, and of its topic there is no snapshot",
                ledger_id=ledger_id,
                hint="`offload topics transactions --reset` has the topic read anew. The hot copy is kept.",
            )
        stop = snapshot.stop
        if record.stop is not None and stop < record.stop:
            raise DataLossError(
                "a filter took transactions as settled that are not",
                ledger_id=ledger_id,
                expected=f"settled up to {record.stop}",
                found=f"up to {stop}",
                hint="The hot copy is kept.",
            )
        wrong = [each for each in aborted if each not in snapshot.aborted]
        if wrong:
            raise DataLossError(
                "a filter dropped entries of transactions that were not aborted",
                ledger_id=ledger_id,
                expected="entries of aborted transactions only",
                found=_named(wrong),
                hint="The hot copy is kept. Delete the cold one, and offload the ledger again.",
            )


def _named(transactions: list[TransactionId]) -> str:
    named = ", ".join(map(str, islice(transactions, _NAMED)))
    more = len(transactions) - _NAMED
    return named if more <= 0 else f"{named} and {more} more"
