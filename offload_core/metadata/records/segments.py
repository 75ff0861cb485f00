"""The steps of a streaming segment, as pure functions from record to record.

    assign_segment     before the first byte is written: its attempt's uuid and begin, and its lease
    extend_segment     it goes on into the next ledger
    renew_segment      while it goes on: its lease
    complete_segment   data and index are there: all its shares are complete, in one update. From now on it is read
    abandon_segment    or: it failed, or somebody takes it over. From now on it cannot become complete
    resume_segment     and then: its objects are deleted, and another attempt has its positions
    forget_segment     or: it has no entries, or they went
    mark_segmented_hot_copy_deleted   after the deletion lag, and after the objects were checked

Each does nothing to its own result, so that it can be given to `ManagedLedgerRecords.update`. Each refuses, with an
`AttemptError`, what the record does not allow: then somebody else was there. A new segment is assigned only after the
last is complete. Source: PIP-76; docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

from offload_core.metadata.records.attempts import (
    AttemptLease,
    AttemptStep,
    abandoned,
    check_step,
    with_lease,
)
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    AttemptStatus,
    DriverMetadata,
    EntryPosition,
    OffloadSegment,
)
from offload_core.metadata.records.segment_shares import (
    Segment,
    check_free,
    check_whole,
    closed_ledgers,
    find_segment,
    first_entry_id,
    ledger_of,
    next_ledger,
    offered_stop,
    place_of,
    share_of,
    shares_of,
    unfinished_segment,
    with_hot_copy_deleted,
    with_share,
    with_shares,
    without_share,
)
from offload_hooks.errors import AttemptError

_WHAT = "the segment's attempt"


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
        begin: entry 0 of a ledger that has no cold copy, or the one behind the ledger's last segment.
        driver: which driver writes, and where to; what reads the copy later.
        end: its last entry, of ledgers that are closed: it is recorded in all from `begin` to there that have entries.
            None for a segment that stays open.
        lease: who makes the attempt, and until when that is to be believed; None: anybody may take it over.

    Raises:
        AttemptError: another segment is not complete (its uuid is `found`), or a ledger is not there, has a copy that
            is one object, or an attempt at one, or lost its hot copy; or `begin` is not directly behind what is
            offloaded of its ledger, or `end` not in closed ledgers from there on.
    """
    unfinished = unfinished_segment(info)
    if (
        unfinished is not None
        and unfinished.uuid == uuid
        and _allowed(info, uuid, AttemptStep.GO_ON).begin == begin
    ):
        return info
    if unfinished is not None:
        raise AttemptError(
            "a segment is assigned after the last one is complete",
            ledger_id=begin.ledger_id,
            expected="none that is not",
            found=unfinished.uuid,
            hint="It is resumed first.",
        )
    first = check_free(ledger_of(info, begin.ledger_id))
    stop = offered_stop(first)
    if begin.entry_id != stop or (first.info.is_closed and stop >= (first.info.entries or 0)):
        raise AttemptError(
            "a segment begins directly behind what is offloaded of its ledger",
            ledger_id=begin.ledger_id,
            expected=f"entry {stop} of {first.info.entries if first.info.is_closed else 'an open ledger'}",
            found=begin,
        )
    share = OffloadSegment(uuid=uuid, assigned_ms=assigned_ms, driver=with_lease(driver, lease))
    share = share.with_extent(begin, end)
    if end is None:
        return info.with_ledger(with_share(first, share))
    return info.with_ledgers(
        with_share(ledger, replace(share, end_entry_id=last))
        for ledger, last in closed_ledgers(info, begin, end)
    )


def extend_segment(info: ManagedLedgerInfo, uuid: UUID, ledger_id: int) -> ManagedLedgerInfo:
    """Record that an open segment goes on into the next ledger, where the last one, which is closed, ends.

    A segment that got no entry of the last one begins with the next.

    Raises:
        AttemptError: the segment is not recorded, was abandoned, has an end or is complete; or the next ledger is
            another one, or cannot be offloaded by segments; or the last one is open.
    """
    segment = _allowed(info, uuid, AttemptStep.GO_ON)
    if ledger_id in segment.ledger_ids:
        return info
    if segment.end is not None:
        raise AttemptError("a segment that has an end does not go on", ledger_id=ledger_id, found=segment.end)
    last = ledger_of(info, segment.ledger_ids[-1])
    if not last.info.is_closed:
        raise AttemptError("a segment goes on when its ledger is closed", ledger_id=last.ledger_id)
    following_ledger = next_ledger(info, last.ledger_id, ledger_id)
    share = _share(last, uuid).with_extent(segment.begin, None)
    if first_entry_id(last, uuid) < (last.info.entries or 0):
        info = info.with_ledger(with_share(last, replace(share, end_entry_id=(last.info.entries or 0) - 1)))
    else:
        info = info.with_ledger(without_share(last, uuid))
        if segment.begin.ledger_id == last.ledger_id:
            share = share.with_extent(EntryPosition(ledger_id, 0), None)
    return info.with_ledger(with_share(following_ledger, share))


def renew_segment(info: ManagedLedgerInfo, uuid: UUID, lease: AttemptLease) -> ManagedLedgerInfo:
    """Record that the attempt goes on, and until when that is to be believed.

    Raises:
        AttemptError: the segment is not recorded, was abandoned or is complete.
    """
    segment = _allowed(info, uuid, AttemptStep.GO_ON)
    return _each_share(info, segment, lambda share: _leased(share, lease))


def complete_segment(
    info: ManagedLedgerInfo,
    uuid: UUID,
    end: EntryPosition,
    end_entry_ids: Mapping[int, int],
    offloaded_ms: int,
    filter_records: Mapping[int, str] = MappingProxyType({}),
) -> ManagedLedgerInfo:
    """Record that data and index of the segment are there, since `offloaded_ms` (since 1970, UTC).

    Args:
        end: its last entry.
        end_entry_ids: of each ledger in it, the last entry. A ledger that it got no entry of is not touched any more.
        filter_records: of each ledger that went through a filter, what that did.

    Raises:
        AttemptError: the segment is not recorded or was abandoned; or what is there is not what was to be: it ends
            elsewhere, or has not all entries from its begin to its end.
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
        check_whole(ledger, first_entry_id(ledger, uuid), last, end)
        if last is None:
            return without_share(ledger, uuid)
        share = _leased(_share(ledger, uuid), None).with_extent(segment.begin, end)
        share = share.with_filter_record(filter_records.get(ledger.ledger_id))
        share = replace(share, complete=True, offloaded_ms=offloaded_ms, end_entry_id=last)
        shares = [share if each.uuid == uuid else each for each in shares_of(ledger)]
        return with_shares(ledger, shares, timestamp_ms=offloaded_ms)

    return _each_ledger(info, segment, complete)


def abandon_segment(
    info: ManagedLedgerInfo, uuid: UUID, end: EntryPosition | None = None
) -> ManagedLedgerInfo:
    """Record that an attempt never becomes complete, before its objects are deleted: who made it may still be at it.

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

    Of a segment whose first ledgers are deleted meanwhile, what is left.

    Raises:
        AttemptError: the old attempt is not recorded, or it was not abandoned.
    """
    if find_segment(info, old_uuid) is None and find_segment(info, new_uuid) is not None:
        _allowed(info, new_uuid, AttemptStep.GO_ON)
        return info
    segment = _allowed(info, old_uuid, AttemptStep.ABANDON)
    if segment.status is not AttemptStatus.FAILED:
        raise AttemptError("a segment is resumed after its attempt was abandoned", found=old_uuid)
    begin = segment.begin
    if begin.ledger_id not in segment.ledger_ids:
        begin = EntryPosition(segment.ledger_ids[0], 0)
    fresh = with_lease(driver, lease)

    def resume(share: OffloadSegment) -> OffloadSegment:
        changed = replace(share, uuid=new_uuid, driver=fresh, assigned_ms=assigned_ms)
        return changed.with_extent(begin, segment.end)

    return _each_share(info, segment, resume)


def forget_segment(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Forget a segment without entries, or whose entries are not to be offloaded any more; its objects are deleted.

    Raises:
        AttemptError: it is complete.
    """
    segment = find_segment(info, uuid)
    if segment is None:
        return info
    _allowed(info, uuid, AttemptStep.FORGET)
    return _each_ledger(info, segment, lambda ledger: without_share(ledger, uuid))


def mark_segmented_hot_copy_deleted(info: ManagedLedgerInfo, ledger_id: int) -> ManagedLedgerInfo:
    """Record that the hot copy of a ledger goes, all of whose entries lie in segments that were checked to be there.

    Its context says so and each of its shares; a segment's share of another ledger does not.

    Raises:
        AttemptError: the ledger is not there, has no segments, or entries that are in none that is complete.
    """
    ledger = ledger_of(info, ledger_id)
    if not shares_of(ledger) or not ledger.is_fully_offloaded:
        raise AttemptError(
            "the hot copy of a ledger is needed until all its entries are in complete segments",
            ledger_id=ledger_id,
        )
    return info.with_ledger(with_hot_copy_deleted(ledger))


def _with_end(info: ManagedLedgerInfo, segment: Segment, end: EntryPosition) -> ManagedLedgerInfo:
    """An open segment with this last entry; ledgers behind it are not touched any more."""
    if end < segment.begin or end.ledger_id not in segment.ledger_ids:
        raise AttemptError(
            "a segment ends with an entry behind its begin",
            ledger_id=end.ledger_id,
            expected=segment.begin,
            found=end,
        )

    def cut(ledger: LedgerRecord) -> LedgerRecord:
        if ledger.ledger_id > end.ledger_id:
            return without_share(ledger, segment.uuid)
        share = _share(ledger, segment.uuid).with_extent(segment.begin, end)
        if ledger.ledger_id == end.ledger_id:
            if ledger.info.is_closed and end.entry_id >= (ledger.info.entries or 0):
                raise AttemptError("the ledger has no such entry", ledger_id=ledger.ledger_id, found=end)
            share = replace(share, end_entry_id=end.entry_id)
        return with_share(ledger, share)

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
    """The ledger's share, with its driver: that of the context, if it has none of its own."""
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
    touched = set(segment.ledger_ids)
    return replace(
        info,
        ledgers=tuple(change(ledger) if ledger.ledger_id in touched else ledger for ledger in info.ledgers),
    )


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
