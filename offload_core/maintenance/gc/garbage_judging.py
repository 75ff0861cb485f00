"""Judgement of a pair of objects, by its facts and the record of its topic: does nothing need it?

It is judged twice: for the report, and once more, by the newest record, just before it is deleted. What may be another
cluster's is never garbage; nor is what may be the last copy of a ledger: where a record names a copy that is not here
as it should be, all others of that ledger are kept. Source: docs/gc.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.gc.garbage import Garbage, GarbageKind, objects_of
from offload_core.maintenance.gc.garbage_survey import ListedPair
from offload_core.maintenance.gc.naming import Naming, naming_of, namings
from offload_core.metadata.catalogue import RecordedCopy, TopicName, recorded_copies
from offload_core.metadata.catalogue.copy_check import check_coverage
from offload_core.metadata.catalogue.known_tiers import is_another_place, tier_record
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.records import LedgerRecord, ManagedLedgerInfo
from offload_core.storage.tier import Tier

ELSEWHERE = "it lies in another folder"
_LAST = "its ledger has no other copy here that is whole"
_MOVED = "the copy that took its place lies in another tier: relocate --delete-source deletes this one"
_STANDS_IN = "it stands in for a copy that records name, by a mapping of relocate or after a repair"
_OF_NAMING = {
    Naming.REPLACED: GarbageKind.REPLACED,
    Naming.FAILED: GarbageKind.FAILED,
    Naming.UNFINISHED: GarbageKind.UNFINISHED,
    Naming.CONDEMNED: GarbageKind.CONDEMNED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Something that nothing may need, and that stays all the same.

    Attributes:
        is_unknown: it may be another cluster's, as far as anybody can tell.
    """

    why: str
    is_unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Whose the objects of a tier are.

    Attributes:
        folder: where those of the records' cluster lie, with its `/`; empty for the tier's root.
        clusters: the names of the records' cluster: those in objects that the records name.
        is_shared: others may write here as well.
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
        """Return why objects may be another's, in words; None if they are the records' cluster's."""
        if self.is_elsewhere(found.pair.key):
            return ELSEWHERE
        if found.cluster in self.clusters or (not self.is_shared and not (found.cluster and self.clusters)):
            return None
        if found.cluster is None:
            return "it names no cluster, and others may write here"
        return f"it is of cluster {found.cluster}, which no object names that these records name"


Holds = Callable[[RecordedCopy, LedgerRecord], bool]
"""Whether a copy that a ledger's record names is where it says, can be read, and has what the record says."""


def judge_unnamed(
    found: ListedPair, topic: TopicName, info: ManagedLedgerInfo | None, folder: str, holds: Holds
) -> Garbage | Kept:
    """Objects whose topic and cluster are known, by the topic's record; None if it has none."""
    if info is None:
        return _garbage(GarbageKind.DELETED_TOPIC, found, topic)
    if naming_of(info, found.pair.key.uuid) is not None:
        return Kept(why="a record names it")
    if found.stands_in and _may_stand_in(found, info):
        return Kept(why=_STANDS_IN)
    if not found.ledger_ids:
        for ledger in info.ledgers:
            if not _has_its_copies(topic, ledger, folder, holds):
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
        elif not _has_its_copies(topic, record, folder, holds):
            return Kept(why=_LAST)
        else:
            is_superseded = is_superseded and record.has_complete_copy
    kind = _half(found) or (
        GarbageKind.SUPERSEDED if is_superseded and found.is_sound else GarbageKind.ORPHAN
    )
    return _garbage(kind, found, topic)


def judge_named(
    tier: Tier,
    found: ListedPair,
    topic: TopicName,
    info: ManagedLedgerInfo | None,
    *,
    folder: str,
    before_ms: float,
    holds: Holds,
) -> Garbage | Kept:
    """Objects of an attempt that its topic's record named as one that is not needed.

    Args:
        before_ms: what was replaced later than this (since 1970, UTC) is kept: others may be reading it.
    """
    named = naming_of(info, found.pair.key.uuid)
    if info is None or named is None:
        return Kept(why="its record does not name it any more")  # the next time it is an orphan
    if named.naming is Naming.NEEDED:
        return Kept(why="its record calls it complete")
    if named.driver is not None and is_another_place(tier_record(tier), named.driver):
        return Kept(why="by its record it lies in another tier")
    if named.naming is Naming.REPLACED:
        if named.since_ms > before_ms:
            return Kept(why="it was replaced a short while ago")
        ledgers = [ledger for ledger in info.ledgers if _names(ledger, found)]
        if not all(_has_its_copies(topic, ledger, folder, holds) for ledger in ledgers):
            is_moved = any(_is_elsewhere(tier, topic, ledger, folder) for ledger in ledgers)
            return Kept(why=_MOVED if is_moved else _LAST)
    return _garbage(_OF_NAMING[named.naming], found, topic, ledger_ids=(named.ledger_id,))


def _may_stand_in(found: ListedPair, info: ManagedLedgerInfo) -> bool:
    """Return whether a ledger is there that it may be needed for."""
    ledgers = [info.ledger(ledger_id) for ledger_id in found.ledger_ids]
    return not ledgers or any(ledger is not None and not ledger.is_marked_for_deletion for ledger in ledgers)


def _names(ledger: LedgerRecord, found: ListedPair) -> bool:
    return any(each.uuid == found.pair.key.uuid for each in namings(ManagedLedgerInfo(ledgers=(ledger,))))


def _half(found: ListedPair) -> GarbageKind | None:
    if found.pair.is_lone:
        return GarbageKind.CHECKSUMS
    if found.pair.index is None:
        return GarbageKind.NO_INDEX
    return GarbageKind.NO_DATA if found.pair.data is None else None


def copies_asked_of(
    tier: Tier, topic: TopicName, info: ManagedLedgerInfo | None, ledger_ids: Collection[int], folder: str
) -> Iterator[tuple[RecordedCopy, LedgerRecord]]:
    """The copies here that judging objects of these ledgers asks `Holds` of, if it asks; to be inspected before."""
    ledgers = [] if info is None else [info.ledger(each) for each in ledger_ids]
    for ledger in ledgers:
        if ledger is not None and not ledger.is_marked_for_deletion:
            for copy in recorded_copies(topic, ledger, folder):
                if copy.unfinished is None and not _lies_elsewhere(tier, copy):
                    yield copy, ledger


def _has_its_copies(topic: TopicName, ledger: LedgerRecord, folder: str, holds: Holds) -> bool:
    """Return whether a ledger has all that its record says, so that no other object can be the last with something."""
    if ledger.is_marked_for_deletion:
        return True
    if not ledger.has_hot_copy and check_coverage(ledger) is not None:
        return False
    for copy in recorded_copies(topic, ledger, folder):
        if copy.unfinished is not None:
            continue
        if not holds(copy, ledger):
            return False
    return True


def _is_elsewhere(tier: Tier, topic: TopicName, ledger: LedgerRecord, folder: str) -> bool:
    """Return whether a ledger is read from another tier."""
    copies = recorded_copies(topic, ledger, folder)
    return any(copy.unfinished is None and _lies_elsewhere(tier, copy) for copy in copies)


def _lies_elsewhere(tier: Tier, copy: RecordedCopy) -> bool:
    return copy.driver is not None and is_another_place(tier_record(tier), copy.driver)


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
        stands_in=found.stands_in,
        managed_ledger=found.topic,
    )
