"""Whether what a filter took out of a cold copy was right, before the hot copy goes: it cannot come back.

    the record in the index is whole, says what the offload context says, and counts each entry once
    transactions are settled, as persisted by now, as far as the filter took them to be
    those of which entries were dropped were aborted

Where nothing was dropped nothing can be wrong. Where it is not known whether it was right, the hot copy stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from offload_core.codec.block_header import BLOCK_HEADER_BYTES
from offload_core.codec.filtered_objects import FILTERED_TRANSACTIONS
from offload_core.codec.frames import FRAME_HEADER_BYTES
from offload_core.codec.index import LedgerIndex
from offload_core.filters import FilterRecord
from offload_core.filters.indexed import indexed_filter
from offload_core.filters.recorded import recorded_filter
from offload_core.metadata import DriverMetadata
from offload_core.transactions import BufferSnapshot, TransactionId
from offload_hooks.errors import DataLossError, placed

_NAMED = 5
"""How many transactions an error names."""


def checked_record(
    ledger_id: int, index: LedgerIndex | None, driver: DriverMetadata | None, *, entries: int, key: str
) -> FilterRecord | None:
    """The whole record of the filter that a ledger's copy, or segment, was written through; None if of none.

    Args:
        index: what the index has of the ledger; None if it has nothing.
        driver: of the copy's, or the segment's, offload context.
        entries: how many of the ledger's entries the copy stands for.
        key: of its data object, for errors.

    Raises:
        DataLossError: it does not agree with the offload context, or the copy; or one of them has none.
        MetadataError, UnsupportedVersionError: a record cannot be read.
    """
    said = recorded_filter(driver, ledger_id)
    with placed(key=key):
        found = None if index is None else indexed_filter(index)
    if said is None and found is None:
        return None
    if index is None or said is None or found is None or _brief(said) != _brief(found):
        raise DataLossError(
            "an index does not say of a filter what the offload context says",
            key=key,
            ledger_id=ledger_id,
            expected="no filter" if said is None else _brief(said),
            found="no filter" if found is None else _brief(found),
        )
    counted = found.kept.entries + sum(each.entries for each in (found.dropped or {}).values())
    if counted != entries or found.kept.entries + found.total_dropped.entries != entries:
        raise DataLossError(
            "what a filter kept and dropped is not all that was to be offloaded",
            key=key,
            ledger_id=ledger_id,
            expected=f"{entries} entries",
            found=f"{found.kept.entries} kept, {found.total_dropped.entries} dropped",
        )
    length, least = index.blocks.data_bytes, _least_bytes(index, found)
    if length < least:
        raise DataLossError(
            "the blocks of a ledger are smaller than what a filter kept of it",
            key=key,
            ledger_id=ledger_id,
            expected=f"{least} bytes or more",
            found=length,
        )
    return found


def check_settled(records: Iterable[FilterRecord], snapshot: BufferSnapshot | None, ledger_id: int) -> None:
    """What these filters dropped was settled, and of transactions that were aborted.

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


def _least_bytes(index: LedgerIndex, record: FilterRecord) -> int:
    """What the entries that were kept take, without padding."""
    frames = record.kept.entries * FRAME_HEADER_BYTES + record.kept.payload_bytes
    return len(index.blocks) * BLOCK_HEADER_BYTES + frames


def _brief(record: FilterRecord) -> str:
    return record.pack(short=True)


def _named(transactions: list[TransactionId]) -> str:
    named = ", ".join(map(str, islice(transactions, _NAMED)))
    more = len(transactions) - _NAMED
    return named if more <= 0 else f"{named} and {more} more"
