"""Other changes of ledgers' records, as pure functions: deletion, release of segments, damage marks, and counts.

A ledger that is to be deleted is marked first, and has no part in its segments any more. An object is deleted when the
last ledger that names it is marked: no ledger reads it, and none will, for a segment gets another ledger only while
its attempt goes on, and marking one of its ledgers ends that. What no unmarked ledger names can be deleted at any time
later, as often as needed.

After a release, for a rollback, the record is that of a ledger that was never offloaded. The hot copy of a ledger whose
cold copy is marked as damaged is kept until another cold copy replaces that; the mark is the copy's own uuid. A repair
corrects counts: the entries of a closed ledger and their bytes. The rules of steps are those of `attempts`. Source:
PIP-76; docs/formats/metadata.md; docs/rollback.md; docs/repair.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from offload_core.metadata.records.attempts import abandoned, ledger_of
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.offload_context import (
    DAMAGED_PROPERTY,
    AttemptStatus,
    DriverMetadata,
    OffloadContext,
)
from offload_core.metadata.records.replacements import (
    OtherRole,
    abandon_replacement,
    check_not_replaced,
    other_copies,
    others_of,
    read_copies,
)
from offload_core.metadata.records.segments import abandon_segment, segments_of, with_hot_copy_deleted
from offload_hooks.errors import AttemptError


def mark_for_deletion(info: ManagedLedgerInfo, ledger_ids: Collection[int]) -> ManagedLedgerInfo:
    """Record that ledgers are to be deleted, with all their copies, whole ones or shares of segments.

    An attempt that is under way cannot complete, nor a copy take the place of another; of a segment, in no ledger.
    """
    deleted = set(ledger_ids)
    for copy in other_copies(info):
        if copy.role is OtherRole.REPLACEMENT and deleted.intersection(copy.ledger_ids):
            info = abandon_replacement(info, copy.uuid)
    for segment in segments_of(info):
        if not segment.is_finished and deleted.intersection(segment.ledger_ids):
            info = abandon_segment(info, segment.uuid)
    return replace(
        info,
        ledgers=tuple(
            _condemned(ledger)
            if ledger.ledger_id in deleted and not ledger.is_marked_for_deletion
            else ledger
            for ledger in info.ledgers
        ),
    )


def needed_objects(info: ManagedLedgerInfo) -> frozenset[UUID]:
    """The objects of all ledgers that are not marked for deletion: current, replaced and replacing ones.

    Those that others name are to be deleted.
    """
    return read_copies(info) | frozenset(
        copy.uuid
        for ledger in info.ledgers
        if not ledger.is_marked_for_deletion
        for copy in others_of(ledger)
    )


def _condemned(ledger: LedgerRecord) -> LedgerRecord:
    gone = with_hot_copy_deleted(ledger)
    context = gone.context or OffloadContext()
    return replace(
        gone,
        context=replace(
            context,
            complete=False,
            driver=_failed(context.driver),
            segments=tuple(
                replace(share, complete=False, driver=_failed(share.driver)) for share in context.segments
            ),
        ),
    )


def _failed(driver: DriverMetadata | None) -> DriverMetadata | None:
    return None if driver is None else abandoned(driver)


def release_segments(info: ManagedLedgerInfo, ledger_id: int) -> ManagedLedgerInfo:
    """Forget the segments of a ledger with a hot copy; one without segments stays as it is.

    Raises:
        AttemptError: there is no such ledger, its hot copy is gone, it is open, or a segment of it is under way, or
            a copy that is to take the place of one.
    """
    return info.with_ledger(without_segments(ledger_of(info, ledger_id)))


def without_segments(ledger: LedgerRecord) -> LedgerRecord:
    """Do the same on the record of one ledger; errors as `release_segments`."""
    context, ledger_id = ledger.context, ledger.ledger_id
    if context is None or not context.segments:
        return ledger
    check_not_replaced(ledger)
    if not ledger.has_hot_copy:
        raise AttemptError(
            "the ledger's hot copy is gone, so its segments are not released",
            ledger_id=ledger_id,
            found=context.uuid,
        )
    if not ledger.info.is_closed:
        raise AttemptError(
            "a ledger that is written to keeps its segments",
            ledger_id=ledger_id,
            hint="Switch streaming off, and wait until the ledger is closed.",
        )
    for share in context.segments:
        if share.status is AttemptStatus.ASSIGNED:
            raise AttemptError(
                "the ledger has a segment that is under way",
                ledger_id=ledger_id,
                found=share.uuid,
                hint="Switch streaming off, and wait until the segment is complete.",
            )
    rest = replace(context, uuid=None, complete=False, timestamp_ms=None, driver=None, segments=())
    return replace(ledger, context=None if rest == OffloadContext() else rest)


def mark_damaged(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Record of a copy that it is damaged, in all ledgers that name it; of one without driver metadata nothing."""
    return replace(info, ledgers=tuple(_marked(ledger, uuid) for ledger in info.ledgers))


def is_marked_damaged(ledger: LedgerRecord) -> bool:
    """Return whether a ledger's record marks one of its copies as damaged."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCounts:
    """Entries of a ledger, and the bytes of them all; None where it is not recorded."""

    entries: int | None
    size_bytes: int | None

    def __str__(self) -> str:
        return f"entries {self.entries}, size {self.size_bytes}"


def counts_of(ledger: LedgerRecord) -> LedgerCounts:
    """Return the recorded counts."""
    return LedgerCounts(entries=ledger.info.entries, size_bytes=ledger.info.size)


def copies_read(ledger: LedgerRecord) -> tuple[UUID, ...]:
    """The attempts that a ledger is read from, in their order; none if one of them is not complete."""
    if ledger.context is None or ledger.context.uuid is None or ledger.is_marked_for_deletion:
        return ()
    return ledger.copy_uuids if all(copy.complete for copy in ledger.copies) else ()


def correct_counts(
    info: ManagedLedgerInfo,
    ledger_id: int,
    copies: Sequence[UUID],
    before: LedgerCounts,
    counts: LedgerCounts,
) -> ManagedLedgerInfo:
    """Record how many entries a closed ledger has, and their bytes.

    Args:
        copies: those that were counted; the ledger is read from these only.
        before: the counts that were recorded then.

    Raises:
        AttemptError: the ledger is gone or open, or its copies or its record have changed.
    """
    ledger = ledger_of(info, ledger_id)
    if not ledger.info.is_closed or copies_read(ledger) != tuple(copies):
        raise AttemptError(
            "the ledger has other copies by now",
            ledger_id=ledger_id,
            expected=", ".join(map(str, copies)),
            found=", ".join(map(str, copies_read(ledger))) or "none that is complete",
        )
    if counts_of(ledger) == counts:
        return info
    if counts_of(ledger) != before:
        raise AttemptError(
            "the ledger's record was changed meanwhile",
            ledger_id=ledger_id,
            expected=before,
            found=counts_of(ledger),
        )
    changed = replace(ledger.info, entries=counts.entries, size=counts.size_bytes)
    return info.with_ledger(replace(ledger, info=changed))
