"""Streaming segments in a managed ledger's record: ledgers' shares of them, and their steps as pure functions.

A share is an `OffloadSegment`: the part of one ledger's record that is about one segment. The context's own UUID and
driver are the first share's; it never has `complete`, so that a Pulsar that ignores segments offloads the ledger anew.
Segments are put together from the shares; so are their first and last entries where these are not recorded.
Ledgers that are marked for deletion have no part in segments.

    assign_segment     before the first byte is written
    extend_segment     it goes on into the next ledger
    renew_segment      while it goes on: its lease
    complete_segment   data and index exist: all its shares are complete, in one update
    abandon_segment    it failed, or another process takes it over
    resume_segment     its objects are deleted: another attempt has its positions
    forget_segment     it has no entries, or they went

The rules of steps are those of `attempts`. A segment is assigned only after the last one is complete. Source: PIP-76,
Migration; docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from types import MappingProxyType
from uuid import UUID

from offload_core.metadata.records.attempts import (
    AttemptLease,
    AttemptStep,
    abandoned,
    check_step,
    ledger_of,
    place_of,
    with_lease,
)
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    REPLACED_PROPERTY,
    REPLACEMENT_PROPERTY,
    AttemptStatus,
    DriverMetadata,
    EntryPosition,
    OffloadContext,
    OffloadSegment,
)
from offload_hooks.errors import AttemptError

_WHAT = "the segment's attempt"


def shares_of(ledger: LedgerRecord) -> tuple[OffloadSegment, ...]:
    """The ledger's shares, oldest first; none of one that is offloaded as a whole, or not at all."""
    return () if ledger.context is None else ledger.context.segments


def share_of(ledger: LedgerRecord, uuid: UUID) -> OffloadSegment | None:
    """The ledger's share of this segment; None if it has none."""
    return next((share for share in shares_of(ledger) if share.uuid == uuid), None)


def first_entry_id(ledger: LedgerRecord, uuid: UUID) -> int:
    """The entry with which this segment begins in the ledger: the first that no share before it has."""
    return _stop_of(takewhile(lambda share: share.uuid != uuid, shares_of(ledger)))


def offered_stop(ledger: LedgerRecord) -> int:
    """One past the last entry of all shares whose end is known: where the next one begins."""
    return _stop_of(shares_of(ledger))


def with_shares(
    ledger: LedgerRecord, shares: Sequence[OffloadSegment], *, timestamp_ms: int | None = None
) -> LedgerRecord:
    """The ledger with these shares, and its context to match; `timestamp_ms` if one was completed."""
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


def _with_share(ledger: LedgerRecord, share: OffloadSegment) -> LedgerRecord:
    """The ledger with this share in the place of the one of its UUID, or as its last."""
    shares = shares_of(ledger)
    if share_of(ledger, share.uuid) is None:
        return with_shares(ledger, [*shares, share])
    return with_shares(ledger, [share if each.uuid == share.uuid else each for each in shares])


def _without_share(ledger: LedgerRecord, uuid: UUID) -> LedgerRecord:
    """The ledger without its share of this segment."""
    return with_shares(ledger, [share for share in shares_of(ledger) if share.uuid != uuid])


def with_hot_copy_deleted(ledger: LedgerRecord) -> LedgerRecord:
    """The ledger without a hot copy: marked in its context, and in each share that has the field."""
    context = ledger.context or OffloadContext()
    shares = tuple(_hot_copy_deleted(share, context.driver) for share in context.segments)
    return replace(ledger, context=replace(context, bookkeeper_deleted=True, segments=shares))


def as_written(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
    """The record as it is written today.

    Older records of ledgers with segments have `complete` in the context, and no mark in the shares that the hot copy
    is gone.
    """
    segmented = [ledger for ledger in info.ledgers if shares_of(ledger)]
    return info.with_ledgers(map(_as_written, segmented)) if segmented else info


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


def _stop_of(shares: Iterable[OffloadSegment]) -> int:
    ends = [share.end_entry_id for share in shares if share.end_entry_id is not None]
    return max(ends, default=-1) + 1


def _with_others(driver: DriverMetadata, old: DriverMetadata | None) -> DriverMetadata:
    """The place of the first share, with the replacement and the replaced copies that the context names."""
    driver = place_of(driver)
    for name in (REPLACEMENT_PROPERTY, REPLACED_PROPERTY):
        driver = driver.with_property(name, None if old is None else old.get(name))
    return driver


def _check_free(ledger: LedgerRecord) -> LedgerRecord:
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


def _next_ledger(info: ManagedLedgerInfo, last_id: int, ledger_id: int) -> LedgerRecord:
    """The ledger of this id, which must be the next one after the last that has entries or may get some."""
    following = next(
        (
            each.ledger_id
            for each in info.in_order
            if each.ledger_id > last_id and not (each.info.is_closed and not each.info.entries)
        ),
        None,
    )
    if following != ledger_id:
        raise AttemptError(
            "a segment goes on into the next ledger", ledger_id=ledger_id, expected=following, found=ledger_id
        )
    return _without_shares(_check_free(ledger_of(info, ledger_id)))


def _closed_ledgers(
    info: ManagedLedgerInfo, begin: EntryPosition, end: EntryPosition
) -> list[tuple[LedgerRecord, int]]:
    """The closed ledgers with entries from one position to another, and the last entry of each that is in between."""
    chosen: list[tuple[LedgerRecord, int]] = []
    for ledger in info.in_order:
        if not begin.ledger_id <= ledger.ledger_id <= end.ledger_id:
            continue
        if ledger.info.is_closed and not ledger.info.entries:
            continue
        _check_free(ledger)
        if not ledger.info.is_closed:
            raise AttemptError("a segment with an end has closed ledgers only", ledger_id=ledger.ledger_id)
        if chosen:
            _without_shares(ledger)
        last = (ledger.info.entries or 0) - 1
        chosen.append((ledger, min(last, end.entry_id) if ledger.ledger_id == end.ledger_id else last))
    reached = EntryPosition(chosen[-1][0].ledger_id, chosen[-1][1]) if chosen else None
    if reached != end or end < begin:
        raise AttemptError(
            "a segment ends with an entry after its begin",
            ledger_id=end.ledger_id,
            expected=reached,
            found=end,
        )
    return chosen


def _check_whole(ledger: LedgerRecord, first: int, last: int | None, end: EntryPosition) -> None:
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


_Share = tuple[LedgerRecord, OffloadSegment]
"""A ledger, and its share of a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive positions of a managed ledger, in one data object.

    Attributes:
        uuid: the attempt's; the data object's key.
        begin: its first entry, perhaps of a ledger that was deleted since.
        end: its last entry; None while it is open.
        assigned_ms, offloaded_ms: milliseconds since 1970, UTC; None where it is not recorded.
        driver: the driver that writes it, its place, and the properties of the attempt.
        ledger_ids: the ledgers whose records name it, ascending, without those that are marked for deletion.
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
        MetadataError: the property for a segment's begin or end is no position.
    """
    return tuple(_segment(uuid, shares) for uuid, shares in _shares_by_uuid(info).items())


def find_segment(info: ManagedLedgerInfo, uuid: UUID) -> Segment | None:
    """The segment of this attempt; None if no ledger's record names it. Errors as `segments_of`."""
    shares = _shares_by_uuid(info).get(uuid)
    return None if shares is None else _segment(uuid, shares)


def unfinished_segment(info: ManagedLedgerInfo) -> Segment | None:
    """The segment that is assigned or failed; None if all are offloaded. There is never more than one.

    Errors as `segments_of`.
    """
    for uuid, found in _shares_by_uuid(info).items():
        if _status([share for _, share in found]) is not AttemptStatus.OFFLOADED:
            return _segment(uuid, found)
    return None


def _shares_by_uuid(info: ManagedLedgerInfo) -> dict[UUID, list[_Share]]:
    """The shares of each segment, in the topic's order, of ledgers that are not marked for deletion."""
    found: dict[UUID, list[_Share]] = {}
    for ledger in info.in_order:
        if not ledger.is_marked_for_deletion:
            for share in shares_of(ledger):
                found.setdefault(share.uuid, []).append((ledger, share))
    return found


def _segment(uuid: UUID, found: Sequence[_Share]) -> Segment:
    ledgers, shares = [ledger for ledger, _ in found], [share for _, share in found]
    first, begin, end = ledgers[0], shares[0].begin, shares[-1].end
    last_entry_id = shares[-1].end_entry_id
    if begin is None and end is None and last_entry_id is not None:
        # with a begin it is open: it goes on after the ledger that has ended
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
    """Offloaded if all shares are, failed if one is. Our steps change all shares alike."""
    statuses = {share.status for share in shares}
    if AttemptStatus.FAILED in statuses:
        return AttemptStatus.FAILED
    return statuses.pop() if len(statuses) == 1 else AttemptStatus.ASSIGNED


def assign_segment(
    info: ManagedLedgerInfo,
    uuid: UUID,
    begin: EntryPosition,
    driver: DriverMetadata,
    assigned_ms: int,
    *,
    end: EntryPosition | None = None,
    lease: AttemptLease | None = None,
) -> ManagedLedgerInfo:
    """Record a segment, before its first byte is written.

    Args:
        info: the record.
        uuid: the segment's, never used before.
        begin: entry 0 of a ledger that has no cold copy, or the one after the ledger's last segment.
        driver: the driver that writes, and its place.
        assigned_ms: the time, since 1970, UTC.
        end: its last entry, of ledgers that are closed: it is recorded in all from `begin` to there that have entries.
            None for a segment that stays open.
        lease: None: any process may take the attempt over.

    Raises:
        AttemptError: another segment is not complete (its uuid is `found`), or a ledger does not exist, has a copy that
            is one object, or an attempt at one, or lost its hot copy; or `begin` does not directly follow what is
            offloaded of its ledger, or `end` is not in closed ledgers from there on.
    """
    unfinished = unfinished_segment(info)
    if (
        unfinished is not None
        and unfinished.uuid == uuid
        and _allowed(info, uuid, AttemptStep.CONTINUE).begin == begin
    ):
        return info
    if unfinished is not None:
        raise AttemptError(
            "a segment is assigned after the last one is complete",
            ledger_id=begin.ledger_id,
            expected="none that is not",
            found=unfinished.uuid,
            hint="Resume that one first.",
        )
    first = _check_free(ledger_of(info, begin.ledger_id))
    stop = offered_stop(first)
    if begin.entry_id != stop or (first.info.is_closed and stop >= (first.info.entries or 0)):
        raise AttemptError(
            "a segment begins directly after what is offloaded of its ledger",
            ledger_id=begin.ledger_id,
            expected=f"entry {stop} of {first.info.entries if first.info.is_closed else 'an open ledger'}",
            found=begin,
        )
    share = OffloadSegment(uuid=uuid, assigned_ms=assigned_ms, driver=with_lease(driver, lease))
    share = share.with_extent(begin, end)
    if end is None:
        return info.with_ledger(_with_share(first, share))
    return info.with_ledgers(
        _with_share(ledger, replace(share, end_entry_id=last))
        for ledger, last in _closed_ledgers(info, begin, end)
    )


def extend_segment(info: ManagedLedgerInfo, uuid: UUID, ledger_id: int) -> ManagedLedgerInfo:
    """Record that an open segment goes on into the next ledger, after the end of its last one, which is closed.

    A segment that got no entry of its last ledger begins with the next.

    Raises:
        AttemptError: the segment is not recorded, was abandoned, has an end or is complete; or the next ledger is
            another one, or cannot be offloaded by segments; or the last one is open.
    """
    segment = _allowed(info, uuid, AttemptStep.CONTINUE)
    if ledger_id in segment.ledger_ids:
        return info
    if segment.end is not None:
        raise AttemptError("a segment that has an end does not go on", ledger_id=ledger_id, found=segment.end)
    last = ledger_of(info, segment.ledger_ids[-1])
    if not last.info.is_closed:
        raise AttemptError("a segment goes on when its ledger is closed", ledger_id=last.ledger_id)
    following_ledger = _next_ledger(info, last.ledger_id, ledger_id)
    share = _share(last, uuid).with_extent(segment.begin, None)
    if first_entry_id(last, uuid) < (last.info.entries or 0):
        info = info.with_ledger(_with_share(last, replace(share, end_entry_id=(last.info.entries or 0) - 1)))
    else:
        info = info.with_ledger(_without_share(last, uuid))
        if segment.begin.ledger_id == last.ledger_id:
            share = share.with_extent(EntryPosition(ledger_id, 0), None)
    return info.with_ledger(_with_share(following_ledger, share))


def renew_segment(info: ManagedLedgerInfo, uuid: UUID, lease: AttemptLease) -> ManagedLedgerInfo:
    """Renew the attempt's lease; `AttemptError` if it is not recorded, was abandoned or is complete."""
    segment = _allowed(info, uuid, AttemptStep.CONTINUE)
    return _each_share(info, segment, lambda share: _leased(share, lease))


def complete_segment(
    info: ManagedLedgerInfo,
    uuid: UUID,
    end: EntryPosition,
    end_entry_ids: Mapping[int, int],
    offloaded_ms: int,
    filter_records: Mapping[int, str] = MappingProxyType({}),
) -> ManagedLedgerInfo:
    """Record that data and index of the segment exist, since `offloaded_ms` (since 1970, UTC).

    Args:
        info: the record.
        uuid: the segment's.
        end: its last entry.
        end_entry_ids: the last entry of each ledger in it. A ledger without any gives up its share.
        offloaded_ms: when both existed.
        filter_records: the short record of each ledger that went through a filter.

    Raises:
        AttemptError: the segment is not recorded or was abandoned; or it ends elsewhere, or has not all entries from
            its begin to its end.
    """
    segment = _recorded(info, uuid)
    if segment.is_finished and segment.end == end:
        return info
    check_step(AttemptStep.COMPLETE, segment.status, _WHAT, uuid)
    if segment.end not in (None, end):
        raise AttemptError("the segment ends elsewhere", expected=segment.end, found=end)
    strangers = sorted(set(end_entry_ids) - set(segment.ledger_ids))
    if strangers or end_entry_ids.get(end.ledger_id) != end.entry_id:
        raise AttemptError(
            "the segment has other ledgers", expected=segment.ledger_ids, found=tuple(sorted(end_entry_ids))
        )

    def complete(ledger: LedgerRecord) -> LedgerRecord:
        last = end_entry_ids.get(ledger.ledger_id)
        _check_whole(ledger, first_entry_id(ledger, uuid), last, end)
        if last is None:
            return _without_share(ledger, uuid)
        share = _leased(_share(ledger, uuid), None).with_extent(segment.begin, end)
        share = share.with_filter_record(filter_records.get(ledger.ledger_id))
        share = replace(share, complete=True, offloaded_ms=offloaded_ms, end_entry_id=last)
        shares = [share if each.uuid == uuid else each for each in shares_of(ledger)]
        return with_shares(ledger, shares, timestamp_ms=offloaded_ms)

    return _each_ledger(info, segment, complete)


def abandon_segment(
    info: ManagedLedgerInfo, uuid: UUID, end: EntryPosition | None = None
) -> ManagedLedgerInfo:
    """Record that an attempt never becomes complete. Its objects are deleted after that: its process may still write.

    Its positions stay, for the next attempt. `end`, its last entry, closes a segment that was open.

    Raises:
        AttemptError: the segment is not recorded, or complete, or ends elsewhere.
    """
    segment = _allowed(info, uuid, AttemptStep.ABANDON)
    if end is not None and segment.end is None:
        info = _with_end(info, segment, end)
        segment = _recorded(info, uuid)
    elif end is not None and segment.end != end:
        raise AttemptError("the segment ends elsewhere", expected=segment.end, found=end)
    return _each_share(info, segment, _abandoned)


def resume_segment(
    info: ManagedLedgerInfo,
    old_uuid: UUID,
    new_uuid: UUID,
    driver: DriverMetadata,
    assigned_ms: int,
    *,
    lease: AttemptLease | None = None,
) -> ManagedLedgerInfo:
    """Record another attempt at the positions of one that was abandoned, whose objects are deleted.

    If the segment's first ledgers were deleted meanwhile, it begins with the first one that remains.

    Raises:
        AttemptError: the old attempt is not recorded, or it was not abandoned.
    """
    if find_segment(info, old_uuid) is None and find_segment(info, new_uuid) is not None:
        _allowed(info, new_uuid, AttemptStep.CONTINUE)
        return info
    segment = _allowed(info, old_uuid, AttemptStep.FOLLOW)
    begin = segment.begin
    if begin.ledger_id not in segment.ledger_ids:
        begin = EntryPosition(segment.ledger_ids[0], 0)
    fresh = with_lease(driver, lease)

    def resume(share: OffloadSegment) -> OffloadSegment:
        changed = replace(share, uuid=new_uuid, driver=fresh, assigned_ms=assigned_ms)
        return changed.with_extent(begin, segment.end)

    return _each_share(info, segment, resume)


def forget_segment(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Forget a segment without entries, or whose entries will not be offloaded. Its objects are deleted before.

    Raises:
        AttemptError: it is complete.
    """
    segment = find_segment(info, uuid)
    if segment is None:
        return info
    _allowed(info, uuid, AttemptStep.FORGET)
    return _each_ledger(info, segment, lambda ledger: _without_share(ledger, uuid))


def mark_segmented_hot_copy_deleted(info: ManagedLedgerInfo, ledger_id: int) -> ManagedLedgerInfo:
    """Record that the hot copy of a ledger is deleted, after the segments with all its entries were checked.

    Raises:
        AttemptError: the ledger does not exist, has no segments, or entries that are in no complete segment.
    """
    ledger = ledger_of(info, ledger_id)
    if not shares_of(ledger) or not ledger.is_fully_offloaded:
        raise AttemptError(
            "the hot copy of a ledger is needed until all its entries are in complete segments",
            ledger_id=ledger_id,
        )
    return info.with_ledger(with_hot_copy_deleted(ledger))


def _with_end(info: ManagedLedgerInfo, segment: Segment, end: EntryPosition) -> ManagedLedgerInfo:
    """An open segment with this last entry; ledgers after it have no share any more."""
    if end < segment.begin or end.ledger_id not in segment.ledger_ids:
        raise AttemptError(
            "a segment ends with an entry after its begin",
            ledger_id=end.ledger_id,
            expected=segment.begin,
            found=end,
        )

    def cut(ledger: LedgerRecord) -> LedgerRecord:
        if ledger.ledger_id > end.ledger_id:
            return _without_share(ledger, segment.uuid)
        share = _share(ledger, segment.uuid).with_extent(segment.begin, end)
        if ledger.ledger_id == end.ledger_id:
            if ledger.info.is_closed and end.entry_id >= (ledger.info.entries or 0):
                raise AttemptError("the ledger has no such entry", ledger_id=ledger.ledger_id, found=end)
            share = replace(share, end_entry_id=end.entry_id)
        return _with_share(ledger, share)

    return _each_ledger(info, segment, cut)


def _recorded(info: ManagedLedgerInfo, uuid: UUID) -> Segment:
    segment = find_segment(info, uuid)
    if segment is None:
        raise AttemptError(
            "another attempt took the place of this segment's, or it was cleaned up",
            expected=uuid,
            found="none",
        )
    return segment


def _allowed(info: ManagedLedgerInfo, uuid: UUID, step: AttemptStep) -> Segment:
    """The segment, whose attempt allows this step."""
    segment = _recorded(info, uuid)
    check_step(step, segment.status, _WHAT, uuid)
    return segment


def _share(ledger: LedgerRecord, uuid: UUID) -> OffloadSegment:
    """The ledger's share, with its own driver or that of the context."""
    share = share_of(ledger, uuid)
    assert share is not None
    assert ledger.context is not None
    return replace(share, driver=share.driver or place_of(ledger.context.driver or DriverMetadata(name="")))


def _abandoned(share: OffloadSegment) -> OffloadSegment:
    assert share.driver is not None
    return replace(share, driver=abandoned(share.driver))


def _leased(share: OffloadSegment, lease: AttemptLease | None) -> OffloadSegment:
    assert share.driver is not None
    return replace(share, driver=with_lease(share.driver, lease))


def _each_ledger(
    info: ManagedLedgerInfo, segment: Segment, change: Callable[[LedgerRecord], LedgerRecord]
) -> ManagedLedgerInfo:
    """The record with each of a segment's ledgers changed."""
    return info.with_ledgers(change(ledger_of(info, ledger_id)) for ledger_id in segment.ledger_ids)


def _each_share(
    info: ManagedLedgerInfo, segment: Segment, change: Callable[[OffloadSegment], OffloadSegment]
) -> ManagedLedgerInfo:
    """The record with each of a segment's shares changed alike."""

    def change_share(ledger: LedgerRecord) -> LedgerRecord:
        shares = [
            change(_share(ledger, share.uuid)) if share.uuid == segment.uuid else share
            for share in shares_of(ledger)
        ]
        return with_shares(ledger, shares)

    return _each_ledger(info, segment, change_share)
