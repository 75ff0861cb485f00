"""Attempts and copies by the names that topics' records give them.

By a record alone it is decided whether an attempt's objects are needed or were left by it, whether another process
holds its lease, and how an incomplete one is abandoned. A copy that a record names must be as `check_copy` has it, in
the tier whose garbage is collected or in another one that copies were moved to. Of a tier that was not given nothing
is known: what lies there is not there.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue import RecordedCopy
from offload_core.metadata.catalogue.copy_check import check_stored, is_deletable_for
from offload_core.metadata.catalogue.known_tiers import is_another_place, is_same_place, tier_record
from offload_core.metadata.records import (
    DriverMetadata,
    LedgerRecord,
    ManagedLedgerInfo,
    abandon_attempt,
    abandon_replacement,
    abandon_segment,
    find_segment,
    forget_attempt,
    forget_replaced,
    forget_replacement,
)
from offload_core.metadata.records.offload_context import FAILED, STATUS_PROPERTY
from offload_core.metadata.records.replacements import (
    OtherCopy,
    OtherRole,
    other_copies,
    others_of,
    read_copies,
)
from offload_core.metadata.records.segments import shares_of
from offload_core.storage.tier import Tier
from offload_core.writing.offload.running_attempt import check_not_alive, check_over
from offload_hooks.errors import AttemptError, LiveAttemptError, StoreError


class Naming(enum.IntEnum):
    """State of an attempt by its record; of several ledgers the highest counts."""

    CONDEMNED = 1
    """Its ledgers are being deleted."""
    REPLACED = 2
    """Another copy took its place."""
    FAILED = 3
    """It was given up, and never becomes complete."""
    UNFINISHED = 4
    """It is under way, or was left: its lease tells, where it has one."""
    NEEDED = 5
    """A copy that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAttempt:
    """An attempt as a ledger's record names it.

    Attributes:
        driver: where it is; None if the record does not say.
        since_ms: of one that was replaced, when that was (ms since 1970, UTC); 0 of others.
        is_given_up: it is recorded that it never becomes complete, or is not read any more. That a ledger is neither
            hot nor cold is not enough: another program may mean something else by it.
    """

    uuid: UUID
    naming: Naming
    ledger_id: int
    driver: DriverMetadata | None = None
    since_ms: int = 0
    is_given_up: bool = False


def namings(info: ManagedLedgerInfo) -> list[NamedAttempt]:
    """The attempts that a record names; one may come several times.

    Raises:
        MetadataError: what is said of other copies is none of ours.
    """
    return [each for ledger in info.ledgers for each in _of_ledger(ledger)]


def naming_of(info: ManagedLedgerInfo | None, uuid: UUID) -> NamedAttempt | None:
    """Return how a record names this attempt; None if it does not. Errors as `namings`."""
    found = [] if info is None else [each for each in namings(info) if each.uuid == uuid]
    if not found:
        return None
    highest = max(found, key=lambda each: each.naming)
    latest = max(each.since_ms for each in found)
    return replace(highest, since_ms=latest, is_given_up=all(each.is_given_up for each in found))


def _of_ledger(ledger: LedgerRecord) -> Iterator[NamedAttempt]:
    for each in _attempts(ledger):
        yield replace(each, naming=Naming.CONDEMNED) if ledger.is_marked_for_deletion else each


def _attempts(ledger: LedgerRecord) -> Iterator[NamedAttempt]:
    ledger_id = ledger.ledger_id
    for copy in ledger.copies:
        yield _attempt(copy.uuid, ledger_id, copy.driver, complete=copy.complete)
    for other in others_of(ledger):
        if other.role is OtherRole.REPLACED:
            yield NamedAttempt(
                uuid=other.uuid,
                naming=Naming.REPLACED,
                ledger_id=ledger_id,
                driver=other.driver,
                since_ms=other.since_ms,
                is_given_up=True,
            )
        else:
            yield _attempt(other.uuid, ledger_id, other.driver, complete=False)


def _attempt(uuid: UUID, ledger_id: int, driver: DriverMetadata | None, *, complete: bool) -> NamedAttempt:
    is_failed = not complete and driver is not None and driver.get(STATUS_PROPERTY) == FAILED
    naming = Naming.NEEDED if complete else Naming.FAILED if is_failed else Naming.UNFINISHED
    return NamedAttempt(uuid=uuid, naming=naming, ledger_id=ledger_id, driver=driver, is_given_up=is_failed)


def check_not_under_way(info: ManagedLedgerInfo, uuid: UUID, now_ms: int) -> None:
    """Refuse an attempt whose lease is held (`LiveAttemptError`)."""
    segment = find_segment(info, uuid)
    if segment is not None and not segment.is_finished:
        check_over(uuid, segment.driver, now_ms, segment.begin.ledger_id)
    ledger = _ledger_of(info, uuid)
    if ledger is not None:
        check_not_alive(ledger, now_ms)
    other = _other(info, uuid)
    if other is not None and other.role is OtherRole.REPLACEMENT:
        check_over(uuid, other.driver, now_ms, other.ledger_ids[0])


def is_under_way(info: ManagedLedgerInfo, uuid: UUID, now_ms: int) -> bool:
    """Return whether an attempt's lease is held."""
    try:
        check_not_under_way(info, uuid, now_ms)
    except LiveAttemptError:
        return True
    return False


def give_up(info: ManagedLedgerInfo, uuid: UUID, now_ms: int) -> ManagedLedgerInfo:
    """Record that an attempt never becomes complete, before its objects are deleted.

    Raises:
        LiveAttemptError: its lease is held. AttemptError: it is complete, or not recorded any more.
    """
    check_not_under_way(info, uuid, now_ms)
    if find_segment(info, uuid) is not None:
        return abandon_segment(info, uuid)
    if _other(info, uuid) is not None:
        return abandon_replacement(info, uuid)
    ledger = _ledger_of(info, uuid)
    if ledger is None:
        raise AttemptError("the attempt is not recorded any more", found=uuid)
    return abandon_attempt(info, ledger.ledger_id, uuid)


def forget(info: ManagedLedgerInfo, uuid: UUID) -> ManagedLedgerInfo:
    """Forget an attempt that was given up or replaced, now that its objects are deleted.

    One at a segment stays recorded as failed: the process that goes on takes its positions. So does what ledgers name
    that are being deleted, until they are. Of an attempt that is read by now nothing is forgotten.
    """
    if uuid in read_copies(info) and _ledger_of(info, uuid) is None:
        return info
    other = _other(info, uuid)
    if other is not None:
        return (
            forget_replaced(info, uuid)
            if other.role is OtherRole.REPLACED
            else forget_replacement(info, uuid)
        )
    ledger = _ledger_of(info, uuid)
    if ledger is None or ledger.has_complete_copy or ledger.is_marked_for_deletion:
        return info
    return forget_attempt(info, ledger.ledger_id, uuid)


def _other(info: ManagedLedgerInfo, uuid: UUID) -> OtherCopy | None:
    """The attempt as a copy beside those that are read."""
    return next((copy for copy in other_copies(info) if copy.uuid == uuid), None)


def _ledger_of(info: ManagedLedgerInfo, uuid: UUID) -> LedgerRecord | None:
    """The ledger whose one object is this attempt's."""
    return next(
        (
            ledger
            for ledger in info.ledgers
            if ledger.context is not None and ledger.context.uuid == uuid and not shares_of(ledger)
        ),
        None,
    )


Asked = tuple[ObjectKey, int]
"""A copy, by the key of its data object, and a ledger of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectCopy:
    """Judges recorded copies in a tier; picklable."""

    tier: Tier

    def __call__(self, asked: tuple[RecordedCopy, LedgerRecord]) -> bool | StoreError:
        """Return whether another copy may go because of this one; an error if the tier cannot be read."""
        copy, record = asked
        try:
            return is_deletable_for(check_stored(self.tier, record, copy))
        except StoreError as error:
            error.at(key=copy.key.data_key)
            return error


class NamedCopies:
    """Judges copies, each once for a record; calls may come from many threads.

    Args:
        folder: that copies in `tier` lie in.
        elsewhere: the tiers that copies were moved to.
        inspected: copies in `tier` that were judged before, by `InspectCopy`; errors are asked for again.
    """

    def __init__(
        self,
        tier: Tier,
        folder: str,
        elsewhere: Sequence[Tier],
        inspected: Iterable[tuple[tuple[RecordedCopy, LedgerRecord], bool | StoreError]] = (),
    ) -> None:
        self._tier, self._here, self._folder = tier, tier_record(tier), folder
        self._elsewhere = [(tier_record(each), each) for each in elsewhere]
        self._known = {
            _asked(tier, copy): (record, found)
            for (copy, record), found in inspected
            if not isinstance(found, StoreError)
        }

    def holds(self, copy: RecordedCopy, record: LedgerRecord) -> bool:
        """Return whether a copy is readable, has what the ledger's record says and lost nothing. `StoreError`."""
        driver = copy.driver
        if driver is None or is_same_place(self._here, driver):
            return self._holds(self._tier, copy, record)
        elsewhere = self._tier_of(driver)
        if elsewhere is not None:
            return self._holds(elsewhere, self._at_its_root(copy), record)
        return not is_another_place(self._here, driver) and self._holds(self._tier, copy, record)

    def _holds(self, tier: Tier, copy: RecordedCopy, record: LedgerRecord) -> bool:
        asked = _asked(tier, copy)
        known = self._known.get(asked)
        if known is None or known[0] != record:
            known = self._known[asked] = (record, is_deletable_for(check_stored(tier, record, copy)))
        return known[1]

    def _tier_of(self, driver: DriverMetadata) -> Tier | None:
        return next((tier for there, tier in self._elsewhere if is_same_place(there, driver)), None)

    def _at_its_root(self, copy: RecordedCopy) -> RecordedCopy:
        """The same copy, in a tier whose URL says the folder."""
        return replace(
            copy,
            key=self._without_folder(copy.key),
            mapfile_key=None if copy.mapfile_key is None else self._without_folder(copy.mapfile_key),
        )

    def _without_folder(self, key: ObjectKey) -> ObjectKey:
        return replace(key, folder=key.folder.removeprefix(self._folder))


def _asked(tier: Tier, copy: RecordedCopy) -> tuple[int, Asked]:
    return id(tier), (copy.key, copy.ledger_id)
