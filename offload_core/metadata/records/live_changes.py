"""Records of a running Pulsar, as pure functions: what we change of them, and the mirrors that keep our own attempts.

A broker writes its topics' records. Of those we change one thing: sealed ledgers get the copy that we made, also in the
place of one that they have. Our attempts are kept in a **mirror**, a record of the same topic in a store of our own, so
that no broker ever sees half of one. There a copy is ours until a broker was seen to use it (**confirmed**), and until
then it names those that it replaced; copies of the live record are marked as mirrored.

    mirrored        the mirror as it is to be, by the live record and the mirror that there is
    settled         the same, with copies that replace what the live record has, or nothing
    own_ledgers     ledgers of a mirror with an attempt or a copy of ours
    given_ledgers   those that the live record has as well
    why_no_copy     whether a ledger of a live record may get a copy
    with_copies     the live record with copies of ours
    without_copies  and again without them

A context for the last ledger of a record is refused: a broker that loads the topic makes that ledger's record anew from
BookKeeper, without a context. Source: docs/tiering.md, tried with Pulsar 4.0.8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from offload_core.metadata.records.attempts import abandoned
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import MIRRORED_PROPERTY, DriverMetadata, OffloadContext
from offload_core.metadata.records.replacements import (
    OtherCopy,
    replaced_of,
    replacement_of,
    with_replaced,
    with_replacement,
)


def is_own(ledger: LedgerRecord) -> bool:
    """Return whether a ledger of a mirror has an attempt or a copy of ours."""
    context = ledger.context
    if context is None or context.uuid is None or context.driver is None:
        return False
    return context.driver.get(MIRRORED_PROPERTY) is None


def own_ledgers(mirror: ManagedLedgerInfo) -> tuple[LedgerRecord, ...]:
    """The ledgers of a mirror that have an attempt or a copy of ours, in order."""
    return tuple(ledger for ledger in mirror.in_order if is_own(ledger))


def given_ledgers(live: ManagedLedgerInfo, mirror: ManagedLedgerInfo) -> tuple[LedgerRecord, ...]:
    """The ledgers of a live record that have a copy of ours which is not confirmed, in order.

    They name what the copy replaced, by the mirror.
    """
    own = {each.ledger_id: each for each in own_ledgers(mirror)}
    return tuple(
        with_replaced(ledger, replaced_of(ours))
        for ledger in live.in_order
        if ledger.has_complete_copy
        and (ours := own.get(ledger.ledger_id)) is not None
        and set(ledger.copy_uuids).intersection(ours.copy_uuids)
    )


def mirrored(
    live: ManagedLedgerInfo, mirror: ManagedLedgerInfo, *, confirmed: Collection[UUID] = ()
) -> ManagedLedgerInfo:
    """The mirror of a live record: its ledgers and complete copies, and our own attempts.

    An attempt of ours stays, also where the live record has it, or another copy, or the ledger no more, until it is
    confirmed or forgotten; so does one at a copy that is to replace the live record's. Attempts of brokers are theirs
    alone.
    """
    known = {ledger.ledger_id: ledger for ledger in mirror.ledgers}
    ledgers = [_mirrored(ledger, known.get(ledger.ledger_id), confirmed) for ledger in live.ledgers]
    there = {ledger.ledger_id for ledger in live.ledgers}
    left = [
        ledger
        for ledger in mirror.in_order
        if ledger.ledger_id not in there and (is_own(ledger) or replacement_of(ledger) is not None)
    ]
    return ManagedLedgerInfo(ledgers=(*ledgers, *left), terminated_at=live.terminated_at)


def _mirrored(live: LedgerRecord, ours: LedgerRecord | None, confirmed: Collection[UUID]) -> LedgerRecord:
    own = ours.context if ours is not None and is_own(ours) else None
    if own is not None and not (own.uuid in confirmed and own.uuid in live.copy_uuids):
        return replace(live, context=own)
    mirror = replace(live, context=None)
    if live.has_complete_copy and live.context is not None:
        driver = live.context.driver or DriverMetadata(name="")
        marked = driver.with_property(MIRRORED_PROPERTY, "true")
        mirror = replace(live, context=replace(live.context, driver=marked))
    moving = None if ours is None else replacement_of(ours)
    if ours is None or moving is None or moving.uuid in live.copy_uuids:
        return mirror
    if mirror.context is None:
        return replace(live, context=ours.context)
    return with_replacement(mirror, moving)


def settled(live: ManagedLedgerInfo, mirror: ManagedLedgerInfo) -> ManagedLedgerInfo:
    """The mirror in which complete copies of ours replace what the live record has, or nothing.

    So what is taken back later was the live record's. One that it has already stays as it is.
    """

    def replaces(ledger: LedgerRecord) -> Iterator[OtherCopy]:
        known = live.ledger(ledger.ledger_id)
        uuids = () if known is None or not known.has_complete_copy else known.copy_uuids
        return (
            old for old in replaced_of(ledger) if old.uuid in uuids or set(ledger.copy_uuids) & set(uuids)
        )

    return mirror.with_ledgers(
        with_replaced(ledger, replaces(ledger))
        for ledger in own_ledgers(mirror)
        if ledger.context is not None and ledger.context.complete
    )


def why_no_copy(live: ManagedLedgerInfo, ledger_id: int, replaces: Collection[UUID] = ()) -> str | None:
    """Why a ledger of a live record may not get a copy of ours; None if it may.

    Args:
        replaces: the copies whose place it may take.
    """
    ledger = live.ledger(ledger_id)
    if ledger is None:
        return "the topic has it no more"
    if ledger_id == max(each.ledger_id for each in live.ledgers):
        return "it is the topic's last ledger, whose copy brokers would forget"
    if not ledger.info.is_closed:
        return "it is open"
    if not ledger.info.entries:
        return "it has no entries"
    context = ledger.context
    if context is None:
        return None
    if context.segments:
        return "it is offloaded by segments"
    if context.complete:
        return None if context.uuid in replaces else "it has a cold copy"
    if context.uuid is not None:
        return f"a broker has begun to offload it (attempt {context.uuid})"
    if not ledger.has_hot_copy:
        return "its hot copy is gone"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCopies:
    """A live record with copies of ours.

    Attributes:
        given: the ledgers that have ours, also from before.
        refused: the others, and why.
    """

    info: ManagedLedgerInfo
    given: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)


def with_copies(live: ManagedLedgerInfo, copies: Sequence[LedgerRecord], timestamp_ms: int) -> GivenCopies:
    """Give ledgers the copies that we made, where they may have them; what is given already stays.

    Args:
        copies: the ledgers, with complete copies by driver metadata that brokers understand, and what they replace.
        timestamp_ms: since when (1970, UTC) a ledger has its copy, if BookKeeper has it still: a broker's deletion lag
            begins then; it may be a time to come.
    """
    given: list[int] = []
    refused: dict[int, str] = {}
    changed: list[LedgerRecord] = []
    for copy in copies:
        context, ledger = with_replaced(copy, ()).context, live.ledger(copy.ledger_id)
        assert context is not None
        assert context.complete
        known = None if ledger is None else ledger.context
        if known is not None and known.complete and known.uuid == context.uuid:
            given.append(copy.ledger_id)
            continue
        replaces = [each.uuid for each in replaced_of(copy)]
        why = why_no_copy(live, copy.ledger_id, replaces) or _other_extent(ledger, copy)
        if why is not None or ledger is None:
            refused[copy.ledger_id] = why or ""
            continue
        given.append(copy.ledger_id)
        rest = known or OffloadContext()
        since_ms = rest.timestamp_ms if rest.bookkeeper_deleted else timestamp_ms
        new = replace(rest, uuid=context.uuid, complete=True, timestamp_ms=since_ms, driver=context.driver)
        changed.append(replace(ledger, context=new))
    return GivenCopies(info=live.with_ledgers(changed), given=tuple(given), refused=refused)


def _other_extent(live: LedgerRecord | None, copy: LedgerRecord) -> str | None:
    if live is None or (live.info.entries, live.info.size) == (copy.info.entries, copy.info.size):
        return None
    return (
        f"the copy has {copy.info.entries} entries of {copy.info.size} bytes, the record "
        f"{live.info.entries} of {live.info.size}"
    )


def without_copies(live: ManagedLedgerInfo, copies: Sequence[LedgerRecord]) -> ManagedLedgerInfo:
    """Take copies of ours out of a live record again: what they replaced is read, or a hot copy, where there is one.

    Args:
        copies: as of `with_copies`, or `given_ledgers`.
    """
    return live.with_ledgers(
        left
        for copy in copies
        if (ledger := live.ledger(copy.ledger_id)) is not None
        and (left := _without(ledger, copy)) is not None
    )


def _without(ledger: LedgerRecord, copy: LedgerRecord) -> LedgerRecord | None:
    context = ledger.context
    if context is None or context.uuid not in copy.copy_uuids:
        return None
    if olds := replaced_of(copy):
        return replace(ledger, context=replace(context, uuid=olds[0].uuid, driver=olds[0].driver))
    return replace(ledger, context=None) if ledger.has_hot_copy else None


def abandon_own(mirror: ManagedLedgerInfo, ledger_id: int, uuid: UUID) -> ManagedLedgerInfo:
    """Record in a mirror that an attempt or a copy of ours is to be deleted: it is given to no live record any more.

    Nothing is changed if it is not there, or not ours: another process was faster.
    """
    ledger = mirror.ledger(ledger_id)
    context = None if ledger is None or not is_own(ledger) else ledger.context
    if ledger is None or context is None or context.uuid != uuid:
        return mirror
    driver = context.driver or DriverMetadata(name="")
    left = replace(context, complete=False, timestamp_ms=None, driver=abandoned(driver))
    return mirror.with_ledger(replace(ledger, context=left))
