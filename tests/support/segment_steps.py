"""Steps of a streaming segment with what they need given, and records to begin with."""

from __future__ import annotations

from collections.abc import Callable

from records import DRIVER, closed, managed_ledger, position, still_open
from tiers import uuid_of

from offload_core.metadata import (
    DriverMetadata,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
    pack_managed_ledger_info,
    parse_managed_ledger_info,
)
from offload_core.metadata.attempts import AttemptHolder, AttemptLease
from offload_core.metadata.segments import (
    assign_segment,
    complete_segment,
)

MINE, OTHER, LATER = uuid_of(1), uuid_of(2), uuid_of(3)
ASSIGNED_MS, OFFLOADED_MS = 1_700_000_005_000, 1_700_000_006_000
LEASE = AttemptLease(holder=AttemptHolder(machine=0xAB, process=7, started=11), until_ms=ASSIGNED_MS + 60_000)
FRESH = managed_ledger(still_open(9), closed(3, 10), closed(5, 4), closed(7, 20))

Step = Callable[[ManagedLedgerInfo], ManagedLedgerInfo]


def assign(info: ManagedLedgerInfo, ledger_id: int, entry_id: int = 0, **given: object) -> ManagedLedgerInfo:
    """A segment of mine is begun."""
    options = {"uuid": MINE, "driver": DRIVER, "assigned_ms": ASSIGNED_MS} | given
    return assign_segment(info, begin=position(ledger_id, entry_id), **options)  # type: ignore[arg-type]


def complete(info: ManagedLedgerInfo, *ends: tuple[int, int], **given: object) -> ManagedLedgerInfo:
    """It ends with the last of these entries."""
    options = {"uuid": MINE, "offloaded_ms": OFFLOADED_MS} | given
    return complete_segment(info, end=position(*ends[-1]), end_entry_ids=dict(ends), **options)  # type: ignore[arg-type]


def context(info: ManagedLedgerInfo, ledger_id: int) -> OffloadContext | None:
    """What the record says of a ledger's offload."""
    ledger = info.ledger(ledger_id)
    assert ledger is not None
    return ledger.context


def shares(info: ManagedLedgerInfo, ledger_id: int) -> tuple[OffloadSegment, ...]:
    """A ledger's shares of segments."""
    found = context(info, ledger_id)
    return () if found is None else found.segments


def placed(driver: DriverMetadata = DRIVER, **properties: str) -> DriverMetadata:
    """A driver with these properties."""
    for name, value in properties.items():
        driver = driver.with_property(name, value)
    return driver


def taken_twice(info: ManagedLedgerInfo, step: Step) -> ManagedLedgerInfo:
    """The record after a step, which does nothing to its own result, and which is stored and read without loss."""
    changed = step(info)
    assert step(changed) == changed
    assert parse_managed_ledger_info(pack_managed_ledger_info(changed)) == changed
    assert [ledger.info for ledger in changed.ledgers] == [ledger.info for ledger in info.ledgers]
    return changed
