"""Copies that a record names beside the one that is read, and the steps by which one takes the place of another.

They are two properties in the driver metadata of the ledger's offload context, which Pulsar keeps and ignores:
`pulsar-offload.replacement`, a JSON object, while another copy is made, and `pulsar-offload.replaced`, a list of such
objects, until theirs are deleted. Each ledger of a copy has it.

    begin_replacement     before its first byte is written
    renew_replacement     while it goes on: its lease
    switch_replacement    it exists and is verified: from now on it is read
    abandon_replacement   it failed, or another process takes it over
    forget_replacement    its objects are deleted
    forget_replaced       the objects of a copy that was replaced are deleted

The copy that is read stays complete and unchanged until the switch. A ledger has one replacement at a time. The rules
of steps are those of `attempts`. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any
from uuid import UUID

from offload_core.metadata.records.attempts import (
    AttemptLease,
    AttemptStep,
    abandoned,
    check_step,
    ledger_of,
    place_of,
    status_of,
    with_lease,
)
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    BEGIN_PROPERTY,
    END_PROPERTY,
    FILTER_PROPERTY,
    REPLACED_PROPERTY,
    REPLACEMENT_PROPERTY,
    AttemptStatus,
    DriverMetadata,
    EntryPosition,
    OffloadContext,
    OffloadSegment,
)
from offload_core.metadata.records.segments import find_segment, with_shares
from offload_hooks.errors import AttemptError, MetadataError, placed
from offload_hooks.json_text import JsonObject, read_json

_MOST_PARSED = 1 << 14
"""Properties of ledgers that stay parsed: each step of a move looks at all of its topic's."""


class CopyForm(enum.Enum):
    """Form of a copy's objects, which their keys are made of."""

    LEDGER = "ledger"
    """A whole ledger: `<uuid>-ledger-<id>`, or a MapFile if the driver is `filesystem`."""
    SEGMENT = "segment"
    """Consecutive entries of any ledgers: `<uuid>`."""


class OtherRole(enum.Enum):
    """Role of a copy that a record names and no reader reads."""

    REPLACEMENT = "replacement"
    """A copy that is being written, to take the place of the current one; or it was abandoned."""
    REPLACED = "replaced"
    """Another one took its place; its objects may still be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCopy:
    """A copy that a record names beside the one that is read.

    Attributes:
        driver: the driver that wrote it, and its place; of a replacement, with the lease and status of its attempt.
        since_ms: when it was begun; of one that was replaced, when that was. Milliseconds since 1970, UTC.
        segment: of a replacement, the segment that it is to replace; None for all copies of its ledgers.
        ledger_ids: the ledgers whose records name it, ascending.
    """

    role: OtherRole = OtherRole.REPLACEMENT
    uuid: UUID
    form: CopyForm
    driver: DriverMetadata
    since_ms: int
    segment: UUID | None = None
    ledger_ids: tuple[int, ...]

    @property
    def is_abandoned(self) -> bool:
        """True if it is a replacement that never takes the place of a copy."""
        return status_of(self.driver) is AttemptStatus.FAILED


def replacement_of(ledger: LedgerRecord) -> OtherCopy | None:
    """The replacement of a ledger's copy, under way or abandoned; None if there is none.

    Raises:
        MetadataError: the property cannot be parsed.
    """
    text = _property(ledger, REPLACEMENT_PROPERTY)
    return None if text is None else _replacement_in(text, ledger.ledger_id)


def replaced_of(ledger: LedgerRecord) -> tuple[OtherCopy, ...]:
    """The copies of a ledger that were replaced, and whose objects may still be there; errors as `replacement_of`."""
    text = _property(ledger, REPLACED_PROPERTY)
    return () if text is None else _replaced_in(text, ledger.ledger_id)


def others_of(ledger: LedgerRecord) -> tuple[OtherCopy, ...]:
    """The copies that a ledger's record names beside those that are read; errors as `replacement_of`."""
    under_way = replacement_of(ledger)
    return (*replaced_of(ledger), *(() if under_way is None else (under_way,)))


def other_copies(info: ManagedLedgerInfo) -> tuple[OtherCopy, ...]:
    """The replacements of a managed ledger's record, each once, in the topic's order; errors as `replacement_of`.

    A segment of several ledgers that was replaced in one of them may still be read in another: see `read_copies`.
    """
    return _joined(each for ledger in info.ledgers for each in others_of(ledger))


def find_replacement(info: ManagedLedgerInfo, uuid: UUID) -> OtherCopy | None:
    """The replacement of this uuid, under way or abandoned; None if there is none."""
    under_way = (replacement_of(ledger) for ledger in info.ledgers)
    return next(iter(_joined(each for each in under_way if each is not None and each.uuid == uuid)), None)


def _joined(copies: Iterable[OtherCopy]) -> tuple[OtherCopy, ...]:
    """Each copy once, with all ledgers that name it, in the topic's order."""
    found: dict[tuple[UUID, OtherRole], OtherCopy] = {}
    for copy in sorted(copies, key=lambda each: each.ledger_ids):
        known = found.get((copy.uuid, copy.role))
        found[copy.uuid, copy.role] = (
            copy if known is None else replace(known, ledger_ids=known.ledger_ids + copy.ledger_ids)
        )
    return tuple(found.values())


def check_reads(info: ManagedLedgerInfo, ledger_ids: Sequence[int], uuids: Sequence[UUID]) -> None:
    """Refuse to go on if the ledgers are not read from these copies any more (`AttemptError`)."""
    ledgers = [info.ledger(ledger_id) for ledger_id in ledger_ids]
    found = read_copies(ManagedLedgerInfo(ledgers=tuple(each for each in ledgers if each is not None)))
    if not found.issuperset(uuids):
        raise AttemptError(
            "the ledgers have other copies by now",
            ledger_id=ledger_ids[0],
            expected=", ".join(map(str, uuids)),
            found=", ".join(sorted(map(str, found))) or "none",
        )


def read_copies(info: ManagedLedgerInfo) -> frozenset[UUID]:
    """The copies, complete or not, of all ledgers that are not marked for deletion."""
    return frozenset(
        uuid for ledger in info.ledgers if not ledger.is_marked_for_deletion for uuid in ledger.copy_uuids
    )


def with_replacement(ledger: LedgerRecord, copy: OtherCopy | None) -> LedgerRecord:
    """The ledger, which has a copy, with this replacement; None removes it."""
    return _with_property(ledger, REPLACEMENT_PROPERTY, None if copy is None else _dumps(_fields(copy)))


def with_replaced(ledger: LedgerRecord, copies: Iterable[OtherCopy]) -> LedgerRecord:
    """The ledger, which has a copy, with these replaced copies."""
    fields = [_fields(copy) for copy in copies]
    return _with_property(ledger, REPLACED_PROPERTY, _dumps(fields) if fields else None)


def _property(ledger: LedgerRecord, name: str) -> str | None:
    driver = None if ledger.context is None else ledger.context.driver
    return None if driver is None else driver.get(name)


def _with_property(ledger: LedgerRecord, name: str, value: str | None) -> LedgerRecord:
    context = ledger.context
    assert context is not None
    if _property(ledger, name) == value:
        return ledger
    driver = (context.driver or DriverMetadata(name="")).with_property(name, value)
    return replace(ledger, context=replace(context, driver=driver))


def _fields(copy: OtherCopy) -> Mapping[str, Any]:
    fields: dict[str, Any] = {
        "uuid": str(copy.uuid),
        "form": copy.form.value,
        "since": copy.since_ms,
        "driver": copy.driver.name,
        "properties": dict(copy.driver.properties),
    }
    if copy.segment is not None:
        fields["segment"] = str(copy.segment)
    return fields


@lru_cache(_MOST_PARSED)
def _replacement_in(text: str, ledger_id: int) -> OtherCopy:
    with placed(ledger_id=ledger_id):
        return _parse(_loads(text), OtherRole.REPLACEMENT, ledger_id)


@lru_cache(_MOST_PARSED)
def _replaced_in(text: str, ledger_id: int) -> tuple[OtherCopy, ...]:
    with placed(ledger_id=ledger_id):
        found = _loads(text)
        if not isinstance(found, list):
            raise MetadataError("a list of replaced copies is damaged", found=type(found).__name__)
        return tuple(_parse(fields, OtherRole.REPLACED, ledger_id) for fields in found)


def _parse(value: object, role: OtherRole, ledger_id: int) -> OtherCopy:
    fields = JsonObject.of(value, f"a {role.value} copy's record", error=MetadataError)
    return OtherCopy(
        role=role,
        uuid=fields.uuid("uuid"),
        form=fields.choice("form", CopyForm),
        driver=DriverMetadata(
            name=fields.text("driver"), properties=tuple(fields.texts("properties").items())
        ),
        since_ms=fields.integer("since"),
        segment=fields.optional_uuid("segment"),
        ledger_ids=(ledger_id,),
    )


def _loads(text: str) -> Any:
    return read_json(text, "the record of another copy", error=MetadataError)


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def begin_replacement(
    info: ManagedLedgerInfo, copy: OtherCopy, *, lease: AttemptLease | None = None
) -> ManagedLedgerInfo:
    """Record a copy that is to take the place of others, before its first byte is written.

    Args:
        copy: a replacement, without a lease. Its ledgers are whole and follow each other; the form LEDGER has one
            only. If it replaces a complete segment, it has the form SEGMENT and the ledgers that name that.
        lease: None: any process may take the attempt over.

    Raises:
        AttemptError: a ledger does not exist, or does not have all its entries in complete copies, or is marked for
            deletion; it has another replacement (its uuid is `found`), or the copy was replaced itself; the ledgers
            do not follow each other, or the segment has others.
    """
    uuid, segment = copy.uuid, copy.segment
    copy = replace(copy, driver=with_lease(copy.driver, lease))
    ledgers = [ledger_of(info, ledger_id) for ledger_id in copy.ledger_ids]
    known = [replacement_of(ledger) for ledger in ledgers]
    if all(each is not None and each.uuid == uuid and not each.is_abandoned for each in known):
        return info
    if any(each.uuid == uuid for ledger in info.ledgers for each in replaced_of(ledger)):
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
                hint="Delete its objects first.",
            )
    if segment is None:
        _check_whole(info, copy)
    else:
        _check_segment(info, copy)
    return info.with_ledgers(with_replacement(ledger, copy) for ledger in ledgers)


def renew_replacement(info: ManagedLedgerInfo, uuid: UUID, lease: AttemptLease) -> ManagedLedgerInfo:
    """Renew the attempt's lease; `AttemptError` if it is not recorded, was abandoned, or is read by now."""
    copy = _allowed(info, uuid, AttemptStep.CONTINUE)
    return _with(info, copy, replace(copy, driver=with_lease(copy.driver, lease)))


def switch_replacement(
    info: ManagedLedgerInfo, uuid: UUID, now_ms: int, filter_records: Mapping[int, str] = MappingProxyType({})
) -> ManagedLedgerInfo:
    """Record that the new copy is read, and that those it replaces may be deleted.

    Whether the hot copy is gone, and since when there is a complete copy, stays as it is.

    Args:
        now_ms: the time (ms since 1970, UTC).
        filter_records: short filter records of the new copy, by ledger, empty where no filter ran; other ledgers keep
            that of the old one.

    Raises:
        AttemptError: it is not recorded, or was abandoned; or a ledger is marked for deletion, or has copies that
            cannot be replaced; or it had several, with filter records, and no new one is given.
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
    """Record that a replacement never becomes current. Its objects are deleted after that: its process may still write.

    Raises:
        AttemptError: it is not recorded, or is read by now.
    """
    copy = _allowed(info, uuid, AttemptStep.ABANDON)
    return _with(info, copy, replace(copy, driver=abandoned(copy.driver)))


def forget_replacement(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Forget a replacement that was abandoned, and whose objects are deleted.

    Raises:
        AttemptError: it was not abandoned, or is read by now.
    """
    if uuid in read_copies(info):
        raise AttemptError("the copy is read, and not forgotten", found=uuid)
    if find_replacement(info, uuid) is None:
        return info
    return _with(info, _allowed(info, uuid, AttemptStep.FOLLOW), None)


def forget_replaced(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Forget a copy that was replaced, and whose objects are deleted.

    Raises:
        AttemptError: a ledger still reads it.
    """
    if uuid in read_copies(info):
        raise AttemptError("the copy is read, and not forgotten", found=uuid)
    return info.with_ledgers(
        with_replaced(ledger, [each for each in old if each.uuid != uuid])
        for ledger in info.ledgers
        if (old := replaced_of(ledger))
    )


def check_not_replaced(ledger: LedgerRecord) -> None:
    """Refuse a ledger whose copy is being replaced (`AttemptError`; `found` is the replacement's uuid)."""
    copy = replacement_of(ledger)
    if copy is not None and not copy.is_abandoned:
        raise AttemptError(
            "another copy of the ledger is under way",
            ledger_id=ledger.ledger_id,
            found=copy.uuid,
            hint="Wait until it has taken its place, or end it.",
        )


def _check_whole(info: ManagedLedgerInfo, copy: OtherCopy) -> None:
    """Refuse ledgers that are open, lack entries in complete copies, or do not follow each other."""
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
    """Refuse a segment that is not complete, or has other ledgers."""
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
    """A ledger that reads the new copy, and records what that replaced."""
    context, place = ledger.context, place_of(copy.driver)
    assert context is not None
    old = _old_copies(ledger, copy, now_ms)
    remembered = (*replaced_of(ledger), *old)
    if copy.segment is not None:
        shares = [
            _moved(
                share, copy, share.filter_record if filter_record is None else filter_record or None, now_ms
            )
            if share.uuid == copy.segment
            else _with_own_place(share, context)
            for share in context.segments
        ]
        return with_replaced(with_replacement(with_shares(ledger, shares), None), remembered)
    record = _only_filter_record(ledger) if filter_record is None else filter_record or None
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
    """A share that stays, with a place of its own: that of its ledger's context is about to change."""
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
    """The copies that the ledger reads until now, and that this one replaces."""
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
            driver=replace(
                place_of(driver).with_property(FILTER_PROPERTY, driver.get(FILTER_PROPERTY)),
                unknown_fields=b"",
            ),
            since_ms=now_ms,
            ledger_ids=(ledger.ledger_id,),
        )
        for uuid, form, driver in found
    ]


def _only_filter_record(ledger: LedgerRecord) -> str | None:
    """The filter record of the ledger's one copy, None if no filter ran. Records of several copies cannot be joined."""
    context = ledger.context
    assert context is not None
    if not context.segments:
        return None if context.driver is None else context.driver.get(FILTER_PROPERTY)
    records = [share.filter_record for share in context.segments]
    if len(records) > 1 and any(records):
        raise AttemptError(
            "the filter records of several segments cannot be joined to one", ledger_id=ledger.ledger_id
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
