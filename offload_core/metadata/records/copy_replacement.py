"""The steps by which another copy takes the place of a complete one, as pure functions from record to record.

    begin_replacement     before its first byte: its uuid, tier and lease, beside the copy that is read
    renew_replacement     while it goes on: its lease
    switch_replacement    it is there and verified: from now on it is read. What it replaced is remembered
    abandon_replacement   or: it failed, or somebody takes it over. From now on it cannot take the place of anything
    forget_replacement    and then: its objects are deleted, and it is forgotten
    forget_replaced       the objects of a copy that was replaced are deleted, and it is forgotten

The copy that is read stays complete and as it is until the switch, so what others do by it goes on as ever. There is
one replacement at a time of each ledger. Each step does nothing to its own result, so that it can be given to
`ManagedLedgerRecords.update`. Each refuses, with an `AttemptError`, what the record does not allow: then somebody else
was there. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from uuid import UUID

from offload_core.metadata.records.attempts import (
    AttemptLease,
    AttemptStep,
    abandoned,
    check_step,
    status_of,
    with_lease,
)
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    BEGIN_PROPERTY,
    END_PROPERTY,
    FILTER_PROPERTY,
    DriverMetadata,
    EntryPosition,
    OffloadContext,
    OffloadSegment,
)
from offload_core.metadata.records.replacement_record import (
    CopyForm,
    OtherCopy,
    OtherRole,
    find_replacement,
    other_copies,
    read_copies,
    replaced_of,
    replacement_of,
    with_replaced,
    with_replacement,
)
from offload_core.metadata.records.segment_shares import find_segment, ledger_of, place_of, with_shares
from offload_hooks.errors import AttemptError


def begin_replacement(
    info: ManagedLedgerInfo,
    ledger_ids: Sequence[int],
    uuid: UUID,
    form: CopyForm,
    driver: DriverMetadata,
    since_ms: int,
    *,
    segment: UUID | None = None,
    lease: AttemptLease | None = None,
) -> ManagedLedgerInfo:
    """Record a copy that is to take the place of others, before its first byte is written.

    Args:
        ledger_ids: what it holds, ascending: whole ledgers that follow each other; one alone of the form LEDGER. With
            `segment`, the ledgers that name that.
        driver: which driver writes, and where to; what reads the copy later.
        since_ms: the time (ms since 1970, UTC).
        segment: a complete segment that it holds the entries of, and which alone it takes the place of; its form is
            SEGMENT then. None: of all copies of its ledgers.
        lease: who makes it, and until when that is to be believed; None: anybody may take it over.

    Raises:
        AttemptError: a ledger is not there, or does not have all its entries in complete copies, or is to be deleted;
            it has a replacement that is not this one (its uuid is `found`), or the copy was replaced itself; the
            ledgers do not follow each other, or the segment has others.
    """
    copy = OtherCopy(
        role=OtherRole.REPLACEMENT,
        uuid=uuid,
        form=form,
        driver=with_lease(driver, lease),
        since_ms=since_ms,
        segment=segment,
        ledger_ids=tuple(ledger_ids),
    )
    ledgers = [ledger_of(info, ledger_id) for ledger_id in copy.ledger_ids]
    known = [replacement_of(ledger) for ledger in ledgers]
    if all(each is not None and each.uuid == uuid and not each.is_abandoned for each in known):
        return info
    if any(each.uuid == uuid and each.role is OtherRole.REPLACED for each in other_copies(info)):
        raise AttemptError(
            "the copy was replaced itself, and is to be deleted",
            ledger_id=copy.ledger_ids[0],
            expected="another copy",
            found=uuid,
        )
    for each in known:
        if each is not None:
            raise AttemptError(
                "the ledger has a replacement of its copy that is not ended",
                ledger_id=each.ledger_ids[0],
                expected="none",
                found=each.uuid,
                hint="Its objects are deleted first.",
            )
    if segment is None:
        _check_whole(info, copy)
    else:
        _check_segment(info, copy)
    return info.with_ledgers(with_replacement(ledger, copy) for ledger in ledgers)


def renew_replacement(info: ManagedLedgerInfo, uuid: UUID, lease: AttemptLease) -> ManagedLedgerInfo:
    """Record that the attempt goes on, and until when that is to be believed.

    Raises:
        AttemptError: it is not recorded, or it was abandoned, or has taken its place.
    """
    copy = _allowed(info, uuid, AttemptStep.GO_ON)
    return _with(info, copy, replace(copy, driver=with_lease(copy.driver, lease)))


def switch_replacement(
    info: ManagedLedgerInfo,
    uuid: UUID,
    now_ms: int,
    filter_records: Mapping[int, str] = MappingProxyType({}),
) -> ManagedLedgerInfo:
    """Record that the new copy is the one to be read, and that those in whose place it is may go some time.

    What else is recorded stays: whether the hot copy is gone, and since when there is a complete copy.

    Args:
        now_ms: the time (ms since 1970, UTC).
        filter_records: by ledger, what a filter did to the entries of the new copy; of others, that of the old one.

    Raises:
        AttemptError: it is not recorded, or was abandoned; or a ledger is to be deleted, or has other copies than may
            be replaced; or it had several, with filter records, and no new one is given.
    """
    if uuid in read_copies(info) and all(each.uuid != uuid for each in other_copies(info)):
        return info
    copy = _allowed(info, uuid, AttemptStep.COMPLETE)
    if copy.segment is None:
        _check_whole(info, copy)
    else:
        _check_segment(info, copy)
    return info.with_ledgers(
        _switched(info, ledger_of(info, ledger_id), copy, now_ms, filter_records.get(ledger_id))
        for ledger_id in copy.ledger_ids
    )


def abandon_replacement(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Record that a replacement never takes a copy's place, before its objects are deleted: its maker may be at it.

    Raises:
        AttemptError: it is not recorded, or has taken its place.
    """
    copy = _allowed(info, uuid, AttemptStep.ABANDON)
    return _with(info, copy, replace(copy, driver=abandoned(copy.driver)))


def forget_replacement(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Forget a replacement that was abandoned, and whose objects are deleted.

    Raises:
        AttemptError: it was not abandoned, or has taken its place.
    """
    if uuid in read_copies(info):
        raise AttemptError("the copy is read, and not forgotten", found=uuid)
    if find_replacement(info, uuid) is None:
        return info
    copy = _allowed(info, uuid, AttemptStep.FORGET)
    if not copy.is_abandoned:
        raise AttemptError("a replacement is abandoned before it is forgotten", found=uuid)
    return _with(info, copy, None)


def forget_replaced(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Forget a copy that was replaced, and whose objects are deleted.

    Raises:
        AttemptError: a ledger still reads it.
    """
    if uuid in read_copies(info):
        raise AttemptError("the copy is read, and not forgotten", found=uuid)
    changed = []
    for ledger in info.ledgers:
        old = replaced_of(ledger)
        left = [each for each in old if each.uuid != uuid]
        if len(left) < len(old):
            changed.append(with_replaced(ledger, left))
    return info.with_ledgers(changed)


def check_not_replaced(ledger: LedgerRecord) -> None:
    """Refuse to touch the copy of a ledger that another one is under way for; `AttemptError`, its uuid is `found`."""
    copy = replacement_of(ledger)
    if copy is not None and not copy.is_abandoned:
        raise AttemptError(
            "another copy of the ledger is under way",
            ledger_id=ledger.ledger_id,
            found=copy.uuid,
            hint="Wait until it has taken its place, or end it.",
        )


def _check_whole(info: ManagedLedgerInfo, copy: OtherCopy) -> None:
    """The ledgers are closed, have all entries in complete copies, and follow each other."""
    for ledger_id in copy.ledger_ids:
        ledger = ledger_of(info, ledger_id)
        if not ledger.is_fully_offloaded or not ledger.info.is_closed:
            raise AttemptError(
                "a copy is replaced that has all entries of its ledger",
                ledger_id=ledger_id,
                found="a ledger that is not offloaded as a whole",
            )
    first, last = copy.ledger_ids[0], copy.ledger_ids[-1]
    between = tuple(
        each.ledger_id
        for each in info.in_order
        if first <= each.ledger_id <= last and not (each.info.is_closed and not each.info.entries)
    )
    if between != copy.ledger_ids or (copy.form is CopyForm.LEDGER and len(between) > 1):
        raise AttemptError(
            "a copy has ledgers that follow each other, or one",
            ledger_id=first,
            expected=between,
            found=copy.ledger_ids,
        )


def _check_segment(info: ManagedLedgerInfo, copy: OtherCopy) -> None:
    """The segment is complete, and these are its ledgers."""
    assert copy.segment is not None
    segment = find_segment(info, copy.segment)
    if segment is None or not segment.is_finished or copy.form is not CopyForm.SEGMENT:
        raise AttemptError(
            "a segment is replaced by another one, when it is complete",
            ledger_id=copy.ledger_ids[0],
            expected=copy.segment,
            found="none" if segment is None else segment.status.value,
        )
    if segment.ledger_ids != copy.ledger_ids:
        raise AttemptError(
            "the segment has other ledgers",
            ledger_id=copy.ledger_ids[0],
            expected=segment.ledger_ids,
            found=copy.ledger_ids,
        )


def _switched(
    info: ManagedLedgerInfo, ledger: LedgerRecord, copy: OtherCopy, now_ms: int, filter_record: str | None
) -> LedgerRecord:
    """A ledger that reads the new copy, and remembers what that took the place of."""
    context, place = ledger.context, place_of(copy.driver)
    assert context is not None
    old = _old_copies(ledger, copy, now_ms)
    remembered = (*replaced_of(ledger), *old)
    if copy.segment is not None:
        shares = [
            _moved(share, copy, filter_record or share.filter_record, now_ms)
            if share.uuid == copy.segment
            else _with_own_place(share, context)
            for share in context.segments
        ]
        return with_replaced(with_replacement(with_shares(ledger, shares), None), remembered)
    record = filter_record or _only_filter_record(ledger)
    if copy.form is CopyForm.LEDGER:
        switched = replace(
            context,
            uuid=copy.uuid,
            complete=True,
            bookkeeper_deleted=not ledger.has_hot_copy,
            driver=place.with_property(FILTER_PROPERTY, record),
            segments=(),
        )
    else:
        share = OffloadSegment(
            uuid=copy.uuid,
            complete=True,
            bookkeeper_deleted=not ledger.has_hot_copy,
            assigned_ms=copy.since_ms,
            offloaded_ms=now_ms,
            end_entry_id=(ledger.info.entries or 0) - 1,
            driver=place,
        ).with_extent(*_extent(info, copy))
        switched = replace(
            context,
            uuid=copy.uuid,
            complete=False,
            driver=place,
            segments=(share.with_filter_record(record),),
        )
    return with_replaced(replace(ledger, context=switched), remembered)


def _with_own_place(share: OffloadSegment, context: OffloadContext) -> OffloadSegment:
    """A share that stays where it is, also if its place is said by its ledger's context alone, which changes."""
    if share.driver is not None or context.driver is None:
        return share
    return replace(share, driver=place_of(context.driver))


def _moved(share: OffloadSegment, copy: OtherCopy, filter_record: str | None, now_ms: int) -> OffloadSegment:
    """A share of the new segment, which has the entries of the old one."""
    driver = place_of(copy.driver)
    own = share.driver or DriverMetadata(name="")
    for name in (BEGIN_PROPERTY, END_PROPERTY):
        driver = driver.with_property(name, own.get(name))
    moved = replace(share, uuid=copy.uuid, driver=driver, offloaded_ms=now_ms)
    return moved.with_filter_record(filter_record)


def _old_copies(ledger: LedgerRecord, copy: OtherCopy, now_ms: int) -> list[OtherCopy]:
    """Return what the ledger reads until now, and does not any more."""
    context = ledger.context
    assert context is not None
    assert context.uuid is not None
    nowhere = DriverMetadata(name="")
    if not context.segments:
        found = [(context.uuid, CopyForm.LEDGER, context.driver or nowhere)]
    else:
        found = [
            (share.uuid, CopyForm.SEGMENT, share.driver or context.driver or nowhere)
            for share in context.segments
            if copy.segment in (None, share.uuid)
        ]
    return [
        OtherCopy(
            role=OtherRole.REPLACED,
            uuid=uuid,
            form=form,
            driver=replace(place_of(driver), unknown_fields=b""),
            since_ms=now_ms,
            ledger_ids=(ledger.ledger_id,),
        )
        for uuid, form, driver in found
    ]


def _only_filter_record(ledger: LedgerRecord) -> str | None:
    """Return what a filter did to the ledger's one copy; None if none ran. Of several copies nobody has said it."""
    context = ledger.context
    assert context is not None
    if not context.segments:
        return None if context.driver is None else context.driver.get(FILTER_PROPERTY)
    records = [share.filter_record for share in context.segments]
    if len(records) > 1 and any(records):
        raise AttemptError(
            "what filters did to several segments is said of their one copy by whoever made it",
            ledger_id=ledger.ledger_id,
        )
    return records[0]


def _extent(info: ManagedLedgerInfo, copy: OtherCopy) -> tuple[EntryPosition, EntryPosition]:
    """First and last entry of whole ledgers."""
    last = ledger_of(info, copy.ledger_ids[-1])
    return EntryPosition(copy.ledger_ids[0], 0), EntryPosition(last.ledger_id, (last.info.entries or 0) - 1)


def _allowed(info: ManagedLedgerInfo, uuid: UUID, step: AttemptStep) -> OtherCopy:
    """The replacement, whose attempt allows this step."""
    copy = find_replacement(info, uuid)
    if copy is None:
        raise AttemptError(
            "the replacement is not recorded: it was cleaned up, or has taken its place",
            expected=uuid,
            found="none",
        )
    check_step(step, status_of(copy.driver), "the replacement", uuid, copy.ledger_ids[0])
    return copy


def _with(info: ManagedLedgerInfo, copy: OtherCopy, changed: OtherCopy | None) -> ManagedLedgerInfo:
    """The record with a replacement changed, in each of its ledgers."""
    return info.with_ledgers(
        with_replacement(ledger_of(info, ledger_id), changed) for ledger_id in copy.ledger_ids
    )
