"""Filters that ran, by records and indexes: over which entries, and up to where all was settled then."""

from __future__ import annotations

from collections.abc import Iterator

from offload_core.format.codec.object_marks import FILTERED_TRANSACTIONS
from offload_core.metadata.records import DriverMetadata, EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.filter_record import FilterRecord, recorded_filter


def recorded_filters(ledger: LedgerRecord) -> tuple[FilterRecord, ...]:
    """The short records of the filters that a ledger's complete copies were written through, as `recorded_filter`."""
    found = (recorded_filter(driver, ledger.ledger_id) for driver, _ in _copies(ledger))
    return tuple(record for record in found if record is not None)


def settled_by_filters(info: ManagedLedgerInfo) -> EntryPosition | None:
    """The last entry of the last copy in a tier that the filter of transactions settled; None if there is none.

    All before it is settled as well: it takes nothing behind the first entry that is not. Another filter's stop may be
    of something else. Errors as `recorded_filter`.
    """
    ends = (last for ledger in reversed(info.in_order) for last in _settled_ends(ledger))
    return next(ends, None)


def has_unsettled_copies(info: ManagedLedgerInfo) -> bool:
    """True if copies are in a tier whose transactions ended at unknown positions. Errors as `recorded_filter`."""
    return any(
        record is None or record.name != FILTERED_TRANSACTIONS
        for ledger in info.ledgers
        for record in (recorded_filter(driver, ledger.ledger_id) for driver, _ in _copies(ledger))
    )


def _settled_ends(ledger: LedgerRecord) -> Iterator[EntryPosition]:
    """The last entry of each of a ledger's copies that the filter has settled, the last one first."""
    for driver, end in reversed(list(_copies(ledger))):
        record = recorded_filter(driver, ledger.ledger_id)
        if record is not None and record.name == FILTERED_TRANSACTIONS and record.stop is not None:
            yield EntryPosition(ledger.ledger_id, end)


def _copies(ledger: LedgerRecord) -> Iterator[tuple[DriverMetadata | None, int]]:
    """The driver and the last entry of a ledger's copy, or of each of its segments, that is complete."""
    context = ledger.context
    if context is None:
        return
    for share in context.segments:
        if share.complete and share.end_entry_id is not None:
            yield share.driver, share.end_entry_id
    if not context.segments and context.complete:
        yield context.driver, (ledger.info.entries or 0) - 1
