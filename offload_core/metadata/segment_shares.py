"""A ledger's shares of streaming segments, in its offload context: found, replaced, and whether they cover the ledger.

A share is an `OffloadSegment`: what one ledger's record says of one segment. The context's own UUID and driver are the
first share's, and it is complete if every entry of the ledger, which is closed, lies in complete shares. Source:
docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from offload_core.metadata.attempt_lease import LEASE_PROPERTY
from offload_core.metadata.managed_ledger_info import LedgerRecord
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
            driver=old.driver if shares[0].driver is None else _with_others(shares[0].driver, old.driver),
            segments=tuple(shares),
            timestamp_ms=old.timestamp_ms if timestamp_ms is None else timestamp_ms,
        )
    else:
        context = replace(old, uuid=None, driver=None, segments=(), timestamp_ms=None)
    changed = replace(ledger, context=None if context == OffloadContext() else context)
    return with_coverage(changed)


def with_share(ledger: LedgerRecord, share: OffloadSegment) -> LedgerRecord:
    """The ledger with this share in the place of the one of its UUID, or as its last."""
    shares = shares_of(ledger)
    if share_of(ledger, share.uuid) is None:
        return with_shares(ledger, [*shares, share])
    return with_shares(ledger, [share if each.uuid == share.uuid else each for each in shares])


def without_share(ledger: LedgerRecord, uuid: UUID) -> LedgerRecord:
    """The ledger without its share of this segment."""
    return with_shares(ledger, [share for share in shares_of(ledger) if share.uuid != uuid])


def with_coverage(ledger: LedgerRecord) -> LedgerRecord:
    """The ledger with its context complete if it is closed and each of its entries lies in a complete share."""
    context = ledger.context
    if context is None or not context.segments:
        return ledger
    complete = ledger.info.is_closed and covered_stop(ledger) >= (ledger.info.entries or 0) > 0
    return replace(ledger, context=replace(context, complete=complete))


def covered_stop(ledger: LedgerRecord) -> int:
    """One past the last entry that, with all before it, lies in complete shares; 0 if there is none."""
    covered: list[OffloadSegment] = []
    for share in shares_of(ledger):
        if not share.complete or share.end_entry_id is None:
            break
        covered.append(share)
    return _stop_of(covered)


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
