"""What the hot tier has of ledgers whose records say that their hot copies are there."""

from __future__ import annotations

from contextlib import closing

from offload_core.managed_ledger.environment import NAME_KEY
from offload_core.metadata import LedgerRecord
from offload_core.metadata.ledger_counts import LedgerCounts
from offload_hooks.errors import UnknownLedgerError
from offload_hooks.ledger_stores import LedgerStatus, LedgerStore


def find_hot(store: LedgerStore, name: str, ledger_id: int) -> LedgerStatus | None:
    """A managed ledger's ledger as the hot tier has it; None if it has none of this id, or another's.

    Raises:
        StoreError, FormatError: it cannot be read.
    """
    try:
        with closing(store.open(ledger_id)) as reader:
            status = reader.status()
    except UnknownLedgerError:
        return None
    return status if status.custom_metadata.get(NAME_KEY) == name.encode() else None


def why_hot_forbids(
    store: LedgerStore | None, name: str, ledger: LedgerRecord, counts: LedgerCounts
) -> str | None:
    """Why a record must not say these counts, by its ledger's hot copy; None if nothing speaks against it.

    Args:
        store: the hot tier; None if it is not known.

    Raises:
        StoreError, FormatError: it cannot be read.
    """
    if not ledger.has_hot_copy:
        return None
    if store is None:
        return (
            "by its record the hot copy is there, and it was not asked: --config says where the hot tier is"
        )
    status = find_hot(store, name, ledger.ledger_id)
    if status is None:
        return "by its record the hot copy is there, and the hot tier does not have it"
    if not status.sealed:
        return "its hot copy is not sealed"
    found = LedgerCounts(entries=status.entry_count, size_bytes=status.size_bytes)
    return None if found == counts else f"its hot copy says otherwise: {found}"
