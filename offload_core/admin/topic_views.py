"""A managed ledger's record as Pulsar's admin REST tells it: `internal-info` and `internalStats`.

Source: the answers of a broker 4.0.8 to records that are known (tests/golden/broker). Of the open ledger a record knows
no entries, the hot tier does; a metadata store has no dates, which are left out, as Pulsar leaves out what it does not
know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offload_core.managed_ledger import OffloadStatus, TransactionStatus
from offload_core.metadata import LedgerRecord, ManagedLedgerInfo, VersionedInfo
from offload_hooks.errors import OffloadError
from offload_hooks.ledger_stores import LedgerStatus


def info_to_json(record: VersionedInfo, now_ms: int) -> dict[str, Any]:
    """`internal-info`: the record as it is stored; an open ledger's time is that of the question, as Pulsar's."""
    info = record.info
    shown: dict[str, Any] = {
        "version": record.version,
        "ledgers": [_info_of(ledger, now_ms) for ledger in info.ledgers],
    }
    if info.terminated_at is not None:
        at = info.terminated_at
        shown["terminatedPosition"] = {"ledgerId": at.ledger_id, "entryId": at.entry_id}
    shown["cursors"] = {}
    if info.properties:
        shown["properties"] = dict(info.properties)
    return shown


def stats_to_json(info: ManagedLedgerInfo, written: LedgerStatus | None = None) -> dict[str, Any]:
    """`internalStats`: the topic's ledgers in order, and what they hold together.

    Args:
        written: of the ledger that is open, as the hot tier has it; None if it is not known. The ledger's own line
            tells nothing of it, as a broker's.
    """
    ledgers = info.in_order
    entries, size = (0, 0) if written is None else (written.entry_count, written.size_bytes)
    return {
        "entriesAddedCounter": 0,
        "numberOfEntries": sum(ledger.info.entries or 0 for ledger in ledgers) + entries,
        "totalSize": sum(ledger.info.size or 0 for ledger in ledgers) + size,
        "currentLedgerEntries": entries,
        "currentLedgerSize": size,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": _last_entry(info, written),
        "state": _state(info),
        "ledgers": [
            _stats_of(
                ledger.ledger_id,
                ledger.info.entries or 0,
                ledger.info.size or 0,
                offloaded=ledger.is_fully_offloaded,
            )
            for ledger in ledgers
        ],
        "cursors": {},
        "schemaLedgers": [],
        "compactedLedger": _stats_of(-1, -1, -1, offloaded=False),
    }


def _info_of(ledger: LedgerRecord, now_ms: int) -> dict[str, Any]:
    uuid = None if ledger.context is None else ledger.context.uuid
    told = {
        "ledgerId": ledger.ledger_id,
        "entries": ledger.info.entries,
        "size": ledger.info.size,
        "timestamp": ledger.info.timestamp_ms or now_ms,
        "isOffloaded": ledger.context is not None,
        "offloadedContextUuid": None if uuid is None else str(uuid),
    }
    return {name: value for name, value in told.items() if value is not None}


def _stats_of(ledger_id: int, entries: int, size: int, *, offloaded: bool) -> dict[str, Any]:
    return {
        "ledgerId": ledger_id,
        "entries": entries,
        "size": size,
        "offloaded": offloaded,
        "underReplicated": False,
    }


def _last_entry(info: ManagedLedgerInfo, written: LedgerStatus | None) -> str:
    if info.terminated_at is not None:
        return f"{info.terminated_at.ledger_id}:{info.terminated_at.entry_id}"
    if written is not None and written.entry_count:
        return f"{written.ledger_id}:{written.entry_count - 1}"
    for ledger in reversed(info.in_order):
        if ledger.info.entries:
            return f"{ledger.ledger_id}:{ledger.info.entries - 1}"
    return f"{info.in_order[0].ledger_id if info.ledgers else -1}:-1"


def _state(info: ManagedLedgerInfo) -> str:
    if info.terminated_at is not None:
        return "Terminated"
    return "LedgerOpened" if info.ledgers and not info.in_order[-1].info.is_closed else "ClosedLedger"


_STATES = {"not run": "NOT_RUN", "running": "RUNNING", "success": "SUCCESS", "error": "ERROR"}


def offload_to_json(status: OffloadStatus, error_text: Callable[[OffloadError], str] = str) -> dict[str, Any]:
    """`offload`: how an offload stands, or how the last one ended; ours are the ledgers that a filter holds back."""
    shown: dict[str, Any] = {
        "status": _STATES[status.state],
        "lastError": "" if status.error is None else error_text(status.error),
    }
    if status.first_unoffloaded is not None:
        first = status.first_unoffloaded
        shown["firstUnoffloadedMessage"] = {
            "ledgerId": first.ledger_id,
            "entryId": first.entry_id,
            "partitionIndex": -1,
        }
    if status.waiting:
        shown["waitingLedgers"] = {str(ledger_id): why for ledger_id, why in status.waiting.items()}
    return shown


def buffer_stats_to_json(status: TransactionStatus) -> dict[str, Any]:
    """`transactionBufferStats`: how a topic's transactions stand; what is only a broker's is left out."""
    stable = status.stable_position
    return {
        "state": status.state.value,
        "maxReadPosition": "-1:-1" if stable is None else str(stable),
        "ongoingTxnSize": len(status.open_transactions),
        "totalAbortedTransactions": status.aborted_count,
    }
