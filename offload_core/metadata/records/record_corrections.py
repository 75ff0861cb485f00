"""Corrections of a record that a repair makes, as pure functions from record to record: damaged copies, and counts.

The hot copy of a ledger whose cold copy is marked as damaged is kept, until another cold copy takes the place of that.
The mark is the copy's own uuid, so that it says nothing of a copy that comes after it. Counts are the entries of a
closed ledger and their bytes. A step does nothing to its own result, so that it can be given to
`ManagedLedgerRecords.update`. It refuses, with an `AttemptError`, a ledger that is not as it was when it was counted.
Source: docs/repair.md, docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import DAMAGED_PROPERTY, DriverMetadata, OffloadContext
from offload_core.metadata.records.segment_shares import ledger_of
from offload_hooks.errors import AttemptError


def mark_damaged(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Record of a copy that it is damaged, in all ledgers that name it; of one without driver metadata nothing."""
    return replace(info, ledgers=tuple(_marked(ledger, uuid) for ledger in info.ledgers))


def is_marked_damaged(ledger: LedgerRecord) -> bool:
    """Return whether a ledger's record says of a copy which it names that it is damaged."""
    context = ledger.context
    if context is None:
        return False
    named = [(context.uuid, context.driver)]
    if context.segments:
        named = [(share.uuid, share.driver or context.driver) for share in context.segments]
    return any(
        driver is not None and driver.get(DAMAGED_PROPERTY) == str(uuid)
        for uuid, driver in named
        if uuid is not None
    )


def _marked(ledger: LedgerRecord, uuid: UUID) -> LedgerRecord:
    context = ledger.context
    if context is None:
        return ledger
    shares = tuple(
        replace(share, driver=_with_mark(share.driver or context.driver, uuid))
        if share.uuid == uuid
        else share
        for share in context.segments
    )
    if shares == context.segments and (context.segments or context.uuid != uuid):
        return ledger
    changed: OffloadContext = replace(context, segments=shares)
    if not shares:
        changed = replace(changed, driver=_with_mark(context.driver, uuid))
    return replace(ledger, context=changed)


def _with_mark(driver: DriverMetadata | None, uuid: UUID) -> DriverMetadata | None:
    return None if driver is None else driver.with_property(DAMAGED_PROPERTY, str(uuid))


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCounts:
    """Entries of a ledger, and the bytes of them all; None where a record does not say it."""

    entries: int | None
    size_bytes: int | None

    def __str__(self) -> str:
        return f"entries {self.entries}, size {self.size_bytes}"


def counts_of(ledger: LedgerRecord) -> LedgerCounts:
    """Return what a record says."""
    return LedgerCounts(entries=ledger.info.entries, size_bytes=ledger.info.size)


def copies_read(ledger: LedgerRecord) -> tuple[UUID, ...]:
    """The attempts that a ledger is read from, in their order; none if one of them is not complete."""
    if ledger.context is None or ledger.context.uuid is None or ledger.is_condemned:
        return ()
    return ledger.copy_uuids if all(copy.complete for copy in ledger.copies) else ()


def correct_counts(
    info: ManagedLedgerInfo,
    ledger_id: int,
    copies: Sequence[UUID],
    before: LedgerCounts,
    counts: LedgerCounts,
) -> ManagedLedgerInfo:
    """Record how many entries a closed ledger has, and their bytes.

    Args:
        copies: that were counted: the ledger is read from these, and no others.
        before: what the record said then.

    Raises:
        AttemptError: the ledger is gone, or open, or has other copies by now, or its record says something else.
    """
    ledger = ledger_of(info, ledger_id)
    if not ledger.info.is_closed or copies_read(ledger) != tuple(copies):
        raise AttemptError(
            "the ledger has other copies by now",
            ledger_id=ledger_id,
            expected=", ".join(map(str, copies)),
            found=", ".join(map(str, copies_read(ledger))) or "none that is complete",
        )
    if counts_of(ledger) == counts:
        return info
    if counts_of(ledger) != before:
        raise AttemptError(
            "the ledger's record was changed meanwhile",
            ledger_id=ledger_id,
            expected=before,
            found=counts_of(ledger),
        )
    changed = replace(ledger.info, entries=counts.entries, size=counts.size_bytes)
    return info.with_ledger(replace(ledger, info=changed))
