"""What of a record can be known from objects alone: both sides of a comparison, put into the same words."""

from __future__ import annotations

from dataclasses import replace

from offload_core.metadata import (
    AttemptStatus,
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadSegment,
)
from offload_core.metadata.segment_shares import covered_stop

UNKNOWN_TIME = 1


def partly_offloaded(info: ManagedLedgerInfo) -> frozenset[int]:
    """The ledgers of which not all is in complete copies."""
    return frozenset(
        each.ledger_id for each in info.ledgers if each.context is not None and not each.is_fully_offloaded
    )


def knowable(info: ManagedLedgerInfo, *, partly: frozenset[int] | None = None) -> ManagedLedgerInfo:
    """A record without what no object tells: these fields, and no others.

    Left out: ledgers without a complete copy; shares that are not complete; the managed ledger's properties and its
    termination. Taken for alike: all times, whether the hot copy is there, and of a ledger what was not offloaded:
    `partly` are such by another record.
    """
    partly = partly_offloaded(info) if partly is None else partly
    ledgers = [_knowable(each, each.ledger_id in partly) for each in info.in_order if each.has_complete_copy]
    return replace(info, ledgers=tuple(ledgers), properties=(), terminated_at=None)


def _knowable(ledger: LedgerRecord, is_part: bool) -> LedgerRecord:
    context = ledger.context
    assert context is not None
    info = replace(ledger.info, timestamp_ms=UNKNOWN_TIME)
    shares = tuple(_share(each) for each in context.segments if each.status is AttemptStatus.OFFLOADED)
    if is_part:
        info = replace(info, entries=covered_stop(ledger), size=None)
    context = replace(
        context,
        bookkeeper_deleted=True,
        complete=not shares,
        timestamp_ms=UNKNOWN_TIME,
        segments=shares,
        driver=_driver(context.driver),
    )
    return replace(ledger, info=info, context=context)


def _share(share: OffloadSegment) -> OffloadSegment:
    return replace(
        share,
        bookkeeper_deleted=True,
        assigned_ms=None,
        offloaded_ms=UNKNOWN_TIME,
        driver=_driver(share.driver),
    )


def _driver(driver: DriverMetadata | None) -> DriverMetadata | None:
    """Properties in the order of their names: Pulsar passes over their order."""
    return None if driver is None else replace(driver, properties=tuple(sorted(driver.properties)))
