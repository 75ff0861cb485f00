"""Streaming segments in a managed ledger's record: each ledger's shares of them, and the segments as values.

A share is an `OffloadSegment`: what one ledger's record says of one segment. The context's own UUID and driver are the
first share's; it never has `complete`, so that a Pulsar which passes over segments offloads the ledger anew.

Segments are put together from the shares. Records of either layout are read, also such as do not tell where a segment
begins and ends: that follows from the shares then. Ledgers that are being deleted have no part in it. A place where a
segment may not begin, go on or end is refused with an `AttemptError`: then another process was there, or the caller is
wrong. Source: PIP-76, Migration; docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from offload_core.metadata.records.attempts import LEASE_PROPERTY
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    BEGIN_PROPERTY,
    DAMAGED_PROPERTY,
    END_PROPERTY,
    FILTER_PROPERTY,
    REPLACED_PROPERTY,
    REPLACEMENT_PROPERTY,
    STATUS_PROPERTY,
    AttemptStatus,
    DriverMetadata,
    EntryPosition,
    OffloadContext,
    OffloadSegment,
)
from offload_hooks.errors import AttemptError

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
    """Return where a copy is, without what is said of its attempt."""
    for name in _OF_ATTEMPT + _OTHERS:
        driver = driver.with_property(name, None)
    return driver


def _with_others(driver: DriverMetadata, old: DriverMetadata | None) -> DriverMetadata:
    """The place of the first share, with the ledger's copies beside those that are read, which the context names."""
    driver = place_of(driver)
    for name in _OTHERS:
        driver = driver.with_property(name, None if old is None else old.get(name))
    return driver


def ledger_of(info: ManagedLedgerInfo, ledger_id: int) -> LedgerRecord:
    """The ledger of this id; `AttemptError` if the managed ledger has none."""
    ledger = info.ledger(ledger_id)
    if ledger is None:
        raise AttemptError("the managed ledger has no such ledger", ledger_id=ledger_id)
    return ledger


def check_free(ledger: LedgerRecord) -> LedgerRecord:
    """Refuse a ledger that cannot have another segment, wherever that would begin."""
    ledger_id, context = ledger.ledger_id, ledger.context
    if context is None:
        return ledger
    if not ledger.has_hot_copy:
        raise AttemptError("the ledger's hot copy is gone", ledger_id=ledger_id)
    if context.uuid is not None and not context.segments:
        raise AttemptError(
            "the ledger is offloaded as one object, or about to be", ledger_id=ledger_id, found=context.uuid
        )
    return ledger


def next_ledger(info: ManagedLedgerInfo, behind: int, ledger_id: int) -> LedgerRecord:
    """The ledger of this id, which must be the next behind another that has entries or may get some."""
    following = next(
        (
            each.ledger_id
            for each in info.in_order
            if each.ledger_id > behind and not (each.info.is_closed and not each.info.entries)
        ),
        None,
    )
    if following != ledger_id:
        raise AttemptError(
            "a segment goes on into the next ledger", ledger_id=ledger_id, expected=following, found=ledger_id
        )
    return _without_shares(check_free(ledger_of(info, ledger_id)))


def closed_ledgers(
    info: ManagedLedgerInfo, begin: EntryPosition, end: EntryPosition
) -> list[tuple[LedgerRecord, int]]:
    """The closed ledgers with entries from one position to another, and the last entry of each that is in between."""
    chosen: list[tuple[LedgerRecord, int]] = []
    for ledger in info.in_order:
        if not begin.ledger_id <= ledger.ledger_id <= end.ledger_id:
            continue
        if ledger.info.is_closed and not ledger.info.entries:
            continue
        check_free(ledger)
        if not ledger.info.is_closed:
            raise AttemptError("a segment with an end has closed ledgers only", ledger_id=ledger.ledger_id)
        if chosen:
            _without_shares(ledger)
        last = (ledger.info.entries or 0) - 1
        chosen.append((ledger, min(last, end.entry_id) if ledger.ledger_id == end.ledger_id else last))
    reached = EntryPosition(chosen[-1][0].ledger_id, chosen[-1][1]) if chosen else None
    if reached != end or end < begin:
        raise AttemptError(
            "a segment ends with an entry behind its begin",
            ledger_id=end.ledger_id,
            expected=reached,
            found=end,
        )
    return chosen


def check_whole(ledger: LedgerRecord, first: int, last: int | None, end: EntryPosition) -> None:
    """Refuse a segment's share of a ledger with a gap: an entry before its end is not in it."""
    entries = ledger.info.entries or 0
    if last is None:
        is_whole = ledger.ledger_id > end.ledger_id
    elif ledger.ledger_id == end.ledger_id:
        is_whole = first <= last and not (ledger.info.is_closed and last >= entries)
    else:
        is_whole = ledger.info.is_closed and first <= last == entries - 1
    if not is_whole:
        raise AttemptError(
            "the segment has not all entries from its begin to its end",
            ledger_id=ledger.ledger_id,
            expected=f"from entry {first} to {end}",
            found="none of it" if last is None else f"to entry {last}",
        )


def _without_shares(ledger: LedgerRecord) -> LedgerRecord:
    if shares_of(ledger):
        raise AttemptError("the next ledger has segments of its own", ledger_id=ledger.ledger_id)
    return ledger


_Part = tuple[LedgerRecord, OffloadSegment]
"""A ledger, and its share of a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of positions of a managed ledger, in one data object.

    Attributes:
        uuid: the attempt's; the data object's key.
        begin: its first entry, perhaps of a ledger that was deleted since.
        end: its last entry; None while it is open.
        assigned_ms, offloaded_ms: milliseconds since 1970, UTC; None where it is not recorded.
        driver: which driver writes it, and where to, with the properties of the attempt.
        ledger_ids: the ledgers whose records name it, ascending, without those that are being deleted.
    """

    uuid: UUID
    begin: EntryPosition
    end: EntryPosition | None
    status: AttemptStatus
    assigned_ms: int | None
    offloaded_ms: int | None
    driver: DriverMetadata | None
    ledger_ids: tuple[int, ...]

    @property
    def is_finished(self) -> bool:
        """True if its copy is complete; else it is being offloaded, or has to be."""
        return self.status is AttemptStatus.OFFLOADED


def segments_of(info: ManagedLedgerInfo) -> tuple[Segment, ...]:
    """The segments of a managed ledger, in the topic's order.

    Raises:
        MetadataError: a property that is to say where a segment begins or ends is no position.
    """
    parts: dict[UUID, list[_Part]] = {}
    for ledger in info.in_order:
        if not ledger.is_condemned:
            for share in shares_of(ledger):
                parts.setdefault(share.uuid, []).append((ledger, share))
    return tuple(_segment(uuid, found) for uuid, found in parts.items())


def find_segment(info: ManagedLedgerInfo, uuid: UUID) -> Segment | None:
    """The segment of this attempt; None if no ledger's record names it. Errors as `segments_of`."""
    parts = [
        (ledger, share)
        for ledger in info.in_order
        for share in shares_of(ledger)
        if share.uuid == uuid and not ledger.is_condemned
    ]
    return _segment(uuid, parts) if parts else None


def unfinished_segment(info: ManagedLedgerInfo) -> Segment | None:
    """The segment that is assigned or failed; None if all are offloaded. There is never more than one.

    Errors as `segments_of`.
    """
    for ledger in info.in_order:
        for share in shares_of(ledger):
            if share.status is not AttemptStatus.OFFLOADED and not ledger.is_condemned:
                return find_segment(info, share.uuid)
    return None


def _segment(uuid: UUID, parts: Sequence[_Part]) -> Segment:
    ledgers, shares = [ledger for ledger, _ in parts], [share for _, share in parts]
    first, begin, end = ledgers[0], shares[0].begin, shares[-1].end
    last_entry_id = shares[-1].end_entry_id
    if begin is None and end is None and last_entry_id is not None:
        # with a begin it is open: it goes on behind the ledger that has ended
        end = EntryPosition(ledgers[-1].ledger_id, last_entry_id)
    return Segment(
        uuid=uuid,
        begin=begin or EntryPosition(first.ledger_id, first_entry_id(first, uuid)),
        end=end,
        status=_status(shares),
        assigned_ms=shares[0].assigned_ms,
        offloaded_ms=shares[-1].offloaded_ms,
        driver=shares[-1].driver,
        ledger_ids=tuple(ledger.ledger_id for ledger in ledgers),
    )


def _status(shares: Sequence[OffloadSegment]) -> AttemptStatus:
    """Offloaded if all shares are, and failed if one is: our changes make all of them alike."""
    statuses = {share.status for share in shares}
    if AttemptStatus.FAILED in statuses:
        return AttemptStatus.FAILED
    return statuses.pop() if len(statuses) == 1 else AttemptStatus.ASSIGNED
