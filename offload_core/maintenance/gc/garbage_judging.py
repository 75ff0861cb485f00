"""Judgement of objects, by their facts and by the record of their topic: does nothing need them?

Objects are judged twice: for the report, and once more, by the newest record, just before they are deleted. What may be
another cluster's is never garbage; nor is what may be the last copy of a ledger: where a record names a copy that is
not as `check_copy` has it, in this tier or in another one that was given, all other copies of that ledger are kept.
The steps that abandon and forget an attempt are here as well. Source: docs/gc.md.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.gc.garbage import Garbage, GarbageKind, ListedPair, objects_of
from offload_core.metadata.catalogue import RecordedCopy, TopicName, recorded_copies
from offload_core.metadata.catalogue.copy_check import check_coverage, check_stored, is_deletable_for
from offload_core.metadata.catalogue.known_tiers import is_another_place, is_same_place, tier_record
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
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
from offload_hooks.errors import AttemptError, LiveAttemptError


class Naming(enum.IntEnum):
    """State of an attempt by its record; of several ledgers the highest counts."""

    MARKED = 1
    """Its ledgers are marked for deletion."""
    REPLACED = 2
    """Another copy took its place."""
    FAILED = 3
    """It was abandoned, and never becomes complete."""
    UNFINISHED = 4
    """It is not complete; its lease, if it has one, states whether it goes on."""
    NEEDED = 5
    """A copy that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedAttempt:
    """An attempt as a ledger's record names it.

    Attributes:
        driver: its tier; None if it is not recorded.
        since_ms: when it was replaced (ms since 1970, UTC); 0 if it was not.
        is_given_up: by its record it never becomes complete, or is not read any more. A ledger that is neither hot nor
            cold is not enough: another program may mean something else by that.
    """

    uuid: UUID
    naming: Naming
    ledger_id: int
    driver: DriverMetadata | None = None
    since_ms: int = 0
    is_given_up: bool = False


def namings(info: ManagedLedgerInfo) -> list[NamedAttempt]:
    """List the attempts that a record names; one may come several times.

    Raises:
        MetadataError: its replacements cannot be parsed.
    """
    return [
        replace(each, naming=Naming.MARKED) if ledger.is_marked_for_deletion else each
        for ledger in info.ledgers
        for each in _attempts(ledger)
    ]


def naming_of(info: ManagedLedgerInfo | None, uuid: UUID) -> NamedAttempt | None:
    """Return how a record names this attempt; None if it does not. Errors as of `namings`."""
    found = [] if info is None else [each for each in namings(info) if each.uuid == uuid]
    if not found:
        return None
    highest = max(found, key=lambda each: each.naming)
    latest = max(each.since_ms for each in found)
    return replace(highest, since_ms=latest, is_given_up=all(each.is_given_up for each in found))


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
    """Forget an attempt that was abandoned or replaced, now that its objects are deleted.

    A segment's stays recorded as failed: the next attempt takes its positions. So does one of a ledger that is marked
    for deletion. An attempt that is read by now is not forgotten.
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
    return next((copy for copy in other_copies(info) if copy.uuid == uuid), None)


def _ledger_of(info: ManagedLedgerInfo, uuid: UUID) -> LedgerRecord | None:
    return next(
        (
            ledger
            for ledger in info.ledgers
            if ledger.context is not None and ledger.context.uuid == uuid and not shares_of(ledger)
        ),
        None,
    )


ELSEWHERE = "it lies in another folder"
_LAST = "its ledger has no other copy here that is whole"
_MOVED = "the copy that took its place lies in another tier: relocate --delete-source deletes this one"
_STANDS_IN = "it stands in for a copy that records name, by a mapping of relocate or after a repair"
_OF_NAMING = {
    Naming.REPLACED: GarbageKind.REPLACED,
    Naming.FAILED: GarbageKind.FAILED,
    Naming.UNFINISHED: GarbageKind.UNFINISHED,
    Naming.MARKED: GarbageKind.CONDEMNED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Reason why objects stay that may be garbage.

    Attributes:
        is_unknown: they may be another cluster's.
    """

    why: str
    is_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Owner of the objects in a tier.

    Attributes:
        folder: where the objects of the records' cluster lie, with its `/`; empty for the tier's root.
        clusters: the names of the records' cluster, from objects that the records name.
        is_shared: other clusters may write here as well.
    """

    folder: str
    clusters: Collection[str]
    is_shared: bool

    def is_elsewhere(self, key: ObjectKey) -> bool:
        """Return whether objects lie in another folder, such as a backup: a MapFile's key has the topic."""
        name = key.managed_ledger
        if name is None:
            return key.folder != self.folder
        return managed_ledger_of_topic(topic_of_managed_ledger(name)) != name

    def why_not_ours(self, found: ListedPair) -> str | None:
        """Return why objects may be another cluster's, in words; None if they are the records' cluster's."""
        if self.is_elsewhere(found.pair.key):
            return ELSEWHERE
        if found.cluster in self.clusters or (not self.is_shared and not (found.cluster and self.clusters)):
            return None
        if found.cluster is None:
            return "it names no cluster, and others may write here"
        return f"it is of cluster {found.cluster}, which no object names that these records name"


class GarbageJudge:
    """Judges pairs of objects whose topic and cluster are known; calls may come from many threads.

    Each recorded copy is inspected once for a record. Errors of its methods: `StoreError`.

    Args:
        folder: that copies in `tier` lie in.
        elsewhere: the tiers that copies were moved to. Copies in any other tier are taken as missing.
        before: by the store's clock; copies that were replaced later than this are kept: a reader may have them open.
    """

    def __init__(self, tier: Tier, folder: str, elsewhere: Sequence[Tier], before: datetime) -> None:
        self._tier, self._here, self._folder = tier, tier_record(tier), folder
        self._elsewhere = [(tier_record(each), each) for each in elsewhere]
        self._before_ms = before.timestamp() * 1000
        self._inspected: dict[tuple[int, ObjectKey, int], tuple[LedgerRecord, bool]] = {}

    def judge_unnamed(
        self, found: ListedPair, topic: TopicName, info: ManagedLedgerInfo | None
    ) -> Garbage | Kept:
        """Judge objects by their topic's record, which is to name them nowhere; None if it has none."""
        if info is None:
            return _garbage(GarbageKind.DELETED_TOPIC, found, topic)
        if naming_of(info, found.pair.key.uuid) is not None:
            return Kept(why="a record names it")
        if found.is_placeholder and _may_stand_in(found, info):
            return Kept(why=_STANDS_IN)
        if not found.ledger_ids:
            if not all(self._has_its_copies(topic, ledger) for ledger in info.ledgers):
                return Kept(
                    why="a ledger of its topic has no copy here that is whole: this may be what is left of it"
                )
            return _garbage(_half(found) or GarbageKind.ORPHAN, found, topic)
        is_superseded = True
        for ledger_id in found.ledger_ids:
            record = info.ledger(ledger_id)
            if record is None:
                if all(ledger.ledger_id < ledger_id for ledger in info.ledgers):
                    return Kept(why="its ledger is newer than its topic's record", is_unknown=True)
                is_superseded = False
            elif not self._has_its_copies(topic, record):
                return Kept(why=_LAST)
            else:
                is_superseded = is_superseded and record.has_complete_copy
        kind = _half(found) or (
            GarbageKind.SUPERSEDED if is_superseded and found.is_sound else GarbageKind.ORPHAN
        )
        return _garbage(kind, found, topic)

    def judge_named(
        self, found: ListedPair, topic: TopicName, info: ManagedLedgerInfo | None
    ) -> Garbage | Kept:
        """Judge objects of an attempt that its topic's record named as one that is not needed."""
        named = naming_of(info, found.pair.key.uuid)
        if info is None or named is None:
            return Kept(why="its record does not name it any more")  # the next time it is an orphan
        if named.naming is Naming.NEEDED:
            return Kept(why="its record calls it complete")
        if named.driver is not None and is_another_place(self._here, named.driver):
            return Kept(why="by its record it lies in another tier")
        if named.naming is Naming.REPLACED:
            if named.since_ms > self._before_ms:
                return Kept(why="it was replaced a short while ago")
            ledgers = [ledger for ledger in info.ledgers if _names(ledger, found)]
            if not all(self._has_its_copies(topic, ledger) for ledger in ledgers):
                is_moved = any(self._is_elsewhere(topic, ledger) for ledger in ledgers)
                return Kept(why=_MOVED if is_moved else _LAST)
        return _garbage(_OF_NAMING[named.naming], found, topic, ledger_ids=(named.ledger_id,))

    def holds(self, copy: RecordedCopy, record: LedgerRecord) -> bool:
        """Return True if a recorded copy can be read, matches the ledger's record, and lost no entry."""
        driver = copy.driver
        if driver is None or is_same_place(self._here, driver):
            return self._holds(self._tier, copy, record)
        elsewhere = next((tier for there, tier in self._elsewhere if is_same_place(there, driver)), None)
        if elsewhere is not None:
            return self._holds(elsewhere, self._at_its_root(copy), record)
        return not is_another_place(self._here, driver) and self._holds(self._tier, copy, record)

    def _holds(self, tier: Tier, copy: RecordedCopy, record: LedgerRecord) -> bool:
        asked = id(tier), copy.key, copy.ledger_id
        known = self._inspected.get(asked)
        if known is None or known[0] != record:
            known = self._inspected[asked] = (record, is_deletable_for(check_stored(tier, record, copy)))
        return known[1]

    def _at_its_root(self, copy: RecordedCopy) -> RecordedCopy:
        """Return the same copy, in a tier whose URL has the folder."""

        def without_folder(key: ObjectKey) -> ObjectKey:
            return replace(key, folder=key.folder.removeprefix(self._folder))

        mapfile_key = None if copy.mapfile_key is None else without_folder(copy.mapfile_key)
        return replace(copy, key=without_folder(copy.key), mapfile_key=mapfile_key)

    def _has_its_copies(self, topic: TopicName, ledger: LedgerRecord) -> bool:
        """Return True if a ledger's copies have all recorded entries, so that no other object is the last with any."""
        if ledger.is_marked_for_deletion:
            return True
        if not ledger.has_hot_copy and check_coverage(ledger) is not None:
            return False
        return all(self.holds(copy, ledger) for copy in self._complete_copies(topic, ledger))

    def _is_elsewhere(self, topic: TopicName, ledger: LedgerRecord) -> bool:
        return any(
            copy.driver is not None and is_another_place(self._here, copy.driver)
            for copy in self._complete_copies(topic, ledger)
        )

    def _complete_copies(self, topic: TopicName, ledger: LedgerRecord) -> Iterator[RecordedCopy]:
        return (copy for copy in recorded_copies(topic, ledger, self._folder) if copy.unfinished is None)


def _may_stand_in(found: ListedPair, info: ManagedLedgerInfo) -> bool:
    """Return whether a ledger is recorded that these objects may be needed for."""
    ledgers = [info.ledger(ledger_id) for ledger_id in found.ledger_ids]
    return not ledgers or any(ledger is not None and not ledger.is_marked_for_deletion for ledger in ledgers)


def _names(ledger: LedgerRecord, found: ListedPair) -> bool:
    return any(each.uuid == found.pair.key.uuid for each in _attempts(ledger))


def _half(found: ListedPair) -> GarbageKind | None:
    if found.pair.is_lone:
        return GarbageKind.CHECKSUMS
    if found.pair.index is None:
        return GarbageKind.NO_INDEX
    return GarbageKind.NO_DATA if found.pair.data is None else None


def _garbage(
    kind: GarbageKind, found: ListedPair, topic: TopicName, ledger_ids: tuple[int, ...] | None = None
) -> Garbage:
    return Garbage(
        kind=kind,
        why=kind.meaning,
        key=found.pair.key.data_key,
        pair=found.pair,
        upload=None,
        topic=topic,
        ledger_ids=found.ledger_ids if ledger_ids is None else ledger_ids,
        size_bytes=sum(each.size_bytes for each in objects_of(found.pair)),
        modified_at=found.youngest,
        is_placeholder=found.is_placeholder,
        managed_ledger=found.topic,
    )
