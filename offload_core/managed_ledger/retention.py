"""Which ledgers retention deletes: whole ones, from the oldest on, as Pulsar does.

A ledger is deleted if it is sealed for longer than retention's time, or if without it there is still as much as
retention's size: either is enough; −1 keeps for ever, 0 nothing. A ledger that a streaming segment is being offloaded
of stays until that has ended, well or not. Source: Pulsar's `ManagedLedgerImpl`.
"""

from __future__ import annotations

from offload_core.metadata import (
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    SegmentStatus,
    unfinished_segment,
)
from offload_core.policies import RetentionPolicies

_MIB = 1 << 20


def ledgers_to_trim(
    info: ManagedLedgerInfo,
    retention: RetentionPolicies,
    *,
    now_ms: int,
    open_bytes: int,
    consumed_before: EntryPosition | None = None,
) -> dict[int, str]:
    """The ledgers to delete, by id, and why.

    Args:
        open_bytes: of the ledger that is written.
        consumed_before: ledgers with entries from here on stay; None for none.
    """
    ledgers = [ledger for ledger in info.in_order if not ledger.is_condemned]
    left = open_bytes + sum(ledger.info.size or 0 for ledger in ledgers)
    chosen: dict[int, str] = {}
    unfinished = unfinished_segment(info)
    busy = unfinished.ledger_ids if unfinished and unfinished.status is SegmentStatus.ASSIGNED else ()
    for ledger in ledgers:
        if ledger.ledger_id in busy or not ledger.info.is_closed or not _is_before(ledger, consumed_before):
            break
        left -= ledger.info.size or 0
        age_minutes = (now_ms - (ledger.info.timestamp_ms or 0)) / 60_000
        if 0 <= retention.time_in_minutes <= age_minutes:
            why = f"sealed {age_minutes:.0f} minutes ago; retention keeps {retention.time_in_minutes} minutes"
        elif 0 <= retention.size_in_mb * _MIB <= left:
            why = f"{left} bytes are newer; retention keeps {retention.size_in_mb} MB"
        else:
            break
        chosen[ledger.ledger_id] = why
    return chosen


def _is_before(ledger: LedgerRecord, position: EntryPosition | None) -> bool:
    """Whether all entries of a sealed ledger are before a position."""
    return position is None or EntryPosition(ledger.ledger_id, (ledger.info.entries or 0) - 1) < position
