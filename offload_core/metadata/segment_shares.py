"""A ledger's shares of streaming segments, in its offload context: found and replaced.

A share is an `OffloadSegment`: what one ledger's record says of one segment. The context's own UUID and driver are the
first share's; it never has `complete`, so that a Pulsar which passes over segments offloads the ledger anew. Source:
PIP-76, Migration; docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from offload_core.metadata.attempt_lease import LEASE_PROPERTY
from offload_core.metadata.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.offload_context import (
    BEGIN_PROPERTY,
    DAMAGED_PROPERTY,
    END_PROPERTY,
    FILTER_PROPERTY,
    REPLACED_PROPERTY,
    REPLACEMENT_PROPERTY,
    STATUS_PROPERTY,
    DriverMetadata,
    OffloadContext,
    OffloadSegment,
)

_OTHERS = (REPLACEMENT_PROPERTY, REPLACED_PROPERTY)
_OF_ATTEMPT = (
    LEASE_PROPERTY,
    STATUS_PROPERTY,
    BEGIN_PROPERTY,
    END_PROPERTY,
    FILTER_PROPERTY,
    DAMAGED_PROPERTY,
)


def shares_of(ledger: LedgerRecord) -> tuple[OffloadSegment, ...]:
    """The ledger's shares, oldest first; none of one that is offloaded as a whole, or not at all."""
    return () if ledger.context is None else ledger.context.segments


def share_of(ledger: LedgerRecord, uuid: UUID) -> OffloadSegment | None:
    """The ledger's share of this segment; None if it has none."""
    return next((share for share in shares_of(ledger) if share.uuid == uuid), None)


def first_entry_id(ledger: LedgerRecord, uuid: UUID) -> int:
    """The entry with which this segment begins in the ledger: the first that no share before it has."""
    before: list[OffloadSegment] = []
    for share in shares_of(ledger):
        if share.uuid == uuid:
            break
        before.append(share)
    return _stop_of(before)


def offered_stop(ledger: LedgerRecord) -> int:
    """One past the last entry of all shares whose end is known: where the next one begins."""
    return _stop_of(shares_of(ledger))


def with_shares(
    ledger: LedgerRecord, shares: Sequence[OffloadSegment], *, timestamp_ms: int | None = None
) -> LedgerRecord:
    """The ledger with these shares and what its context says of them; `timestamp_ms` if one was completed."""
    old = ledger.context or OffloadContext()
    if shares:
        context = replace(
            old,
            uuid=shares[0].uuid,
            complete=False,
            driver=old.driver if shares[0].driver is None else _with_others(shares[0].driver, old.driver),
            segments=tuple(shares),
            timestamp_ms=old.timestamp_ms if timestamp_ms is None else timestamp_ms,
        )
    else:
        context = replace(old, uuid=None, driver=None, segments=(), timestamp_ms=None)
    return replace(ledger, context=None if context == OffloadContext() else context)


def with_share(ledger: LedgerRecord, share: OffloadSegment) -> LedgerRecord:
    """The ledger with this share in the place of the one of its UUID, or as its last."""
    shares = shares_of(ledger)
    if share_of(ledger, share.uuid) is None:
        return with_shares(ledger, [*shares, share])
    return with_shares(ledger, [share if each.uuid == share.uuid else each for each in shares])


def without_share(ledger: LedgerRecord, uuid: UUID) -> LedgerRecord:
    """The ledger without its share of this segment."""
    return with_shares(ledger, [share for share in shares_of(ledger) if share.uuid != uuid])


def with_hot_copy_deleted(ledger: LedgerRecord) -> LedgerRecord:
    """The ledger without a hot copy: its context says so, and each share that has room for it."""
    context = ledger.context or OffloadContext()
    shares = tuple(_hot_copy_deleted(share, context.driver) for share in context.segments)
    return replace(ledger, context=replace(context, bookkeeper_deleted=True, segments=shares))


def as_written(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
    """The record as it is written today: of a ledger with segments, older ones have `complete` in its context, and
    not in its shares that the hot copy is gone.
    """
    return info.with_ledgers(_as_written(ledger) for ledger in info.ledgers if shares_of(ledger))


def _as_written(ledger: LedgerRecord) -> LedgerRecord:
    context = ledger.context
    assert context is not None
    if context.complete:
        ledger = replace(ledger, context=replace(context, complete=False))
    return with_hot_copy_deleted(ledger) if context.bookkeeper_deleted else ledger


def _hot_copy_deleted(share: OffloadSegment, driver: DriverMetadata | None) -> OffloadSegment:
    own = share.driver or (None if driver is None else place_of(driver))
    return share if own is None else replace(share, bookkeeper_deleted=True, driver=own)


def covered_stop(ledger: LedgerRecord) -> int:
    """One past the last entry that, with all before it, lies in complete shares; 0 if there is none."""
    return 0 if ledger.context is None else ledger.context.covered_stop()


def _stop_of(shares: Sequence[OffloadSegment]) -> int:
    ends = [share.end_entry_id for share in shares if share.end_entry_id is not None]
    return max(ends, default=-1) + 1


def place_of(driver: DriverMetadata) -> DriverMetadata:
    """Where a copy is, without what is said of its attempt."""
    for name in _OF_ATTEMPT + _OTHERS:
        driver = driver.with_property(name, None)
    return driver


def _with_others(driver: DriverMetadata, old: DriverMetadata | None) -> DriverMetadata:
    """The place of the first share, with the ledger's copies beside those that are read, which the context names."""
    driver = place_of(driver)
    for name in _OTHERS:
        driver = driver.with_property(name, None if old is None else old.get(name))
    return driver
