"""Recovering in tests: what a tier makes, with an audit log in memory."""

from __future__ import annotations

from managed_ledgers import Audit

from offload_core.metadata import (
    LedgerRecord,
    ManagedLedgerInfo,
    ManagedLedgerRecords,
)
from offload_core.recover import Recovered, RecoveryOutcome, UnknownFact, recover_records
from offload_core.tier import Tier
from offload_hooks.testing import MemoryMetadataStore


def recover(tier: Tier, records: ManagedLedgerRecords, **given_: object) -> list[Recovered]:
    return list(recover_records(tier, records, Audit(), **given_))  # type: ignore[arg-type]


def recovered(tier: Tier) -> tuple[ManagedLedgerInfo, tuple[UnknownFact, ...]]:
    """The one topic's record that a tier makes, and what is not known."""
    (one,) = recover(tier, ManagedLedgerRecords(MemoryMetadataStore()))
    assert one.outcome is RecoveryOutcome.NEW
    assert one.rebuilt.info is not None
    return one.rebuilt.info, one.rebuilt.unknown


def ledger(info: ManagedLedgerInfo, ledger_id: int) -> LedgerRecord:
    found = info.ledger(ledger_id)
    assert found is not None
    return found
