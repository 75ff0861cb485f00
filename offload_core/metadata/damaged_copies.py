"""What a record says of copies that a repair found damaged, as pure functions from record to record.

The hot copy of such a ledger is kept, until another cold copy takes the place of the damaged one. The mark is the
copy's own uuid, so that it says nothing of a copy that comes after it. Source: docs/repair.md.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from offload_core.metadata.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.offload_context import DAMAGED_PROPERTY, DriverMetadata, OffloadContext


def mark_damaged(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Record of a copy that it is damaged, in all ledgers that name it; of one without driver metadata nothing."""
    return replace(info, ledgers=tuple(_marked(ledger, uuid) for ledger in info.ledgers))


def is_marked_damaged(ledger: LedgerRecord) -> bool:
    """Whether a ledger's record says of a copy which it names that it is damaged."""
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
