"""Judgement of streaming objects, by the records of all ledgers that each has to do with: may it be deleted?

An object may go if no ledger needs it: the ledger has a hot copy, or one in an object of its own that is there, or it
is to be deleted or was. What the records do not tell of stays in any case, for a bucket may be shared; so does an
attempt that is under way, and what is no streaming object. Source: docs/rollback.md.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.rollback.streaming_objects import (
    Coverage,
    StreamingListing,
    StreamingObject,
    coverage_of,
    list_streaming,
)
from offload_core.metadata.catalogue import Problem, RecordedCopy, TopicName, recorded_copies
from offload_core.metadata.catalogue.copy_check import check_stored, is_deletable_for
from offload_core.metadata.catalogue.topics import is_chosen, topic_of_managed_ledger
from offload_core.metadata.records import (
    AttemptStatus,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadSegment,
    OtherRole,
    other_copies,
)
from offload_core.metadata.records.segments import shares_of
from offload_core.storage.tier import Tier
from offload_hooks.errors import UnknownTopicError


class Verdict(enum.Enum):
    """Permission to delete an object, the worst of what its ledgers say: from `FREE` to `FOREIGN`."""

    FREE = "free"
    HOT = "hot"
    NEEDED = "needed"
    UNKNOWN = "unknown"
    UNFINISHED = "unfinished"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Objects that may be deleted besides those that are `FREE`.

    Attributes:
        recorded: what a record still names, while the hot copy is there.
        loss: what records say to be needed.
    """

    recorded: bool = True
    loss: bool = False

    def allows(self, verdict: Verdict) -> bool:
        """Return whether an object of this verdict is deleted; what is not known, under way or another's never is."""
        return {
            Verdict.FREE: True,
            Verdict.HOT: self.recorded,
            Verdict.NEEDED: self.loss,
        }.get(verdict, False)

    def leaves(self, verdict: Verdict) -> bool:
        """Return whether a streaming object of this verdict stays; what is none is not to be deleted at all."""
        return verdict is not Verdict.FOREIGN and not self.allows(verdict)


_ORDER = list(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLedger:
    """A ledger that an object has to do with. `record` is None if none of the records has it."""

    ledger_id: int
    topic: TopicName | None
    record: LedgerRecord | None
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedObject:
    """A streaming object, what becomes of it and why, and its ledgers; none of these where nothing tells which.

    Attributes:
        topics: whose it is, by the records and by its user metadata.
    """

    object: StreamingObject
    verdict: Verdict
    why: str
    ledgers: tuple[JudgedLedger, ...] = ()
    topics: tuple[TopicName, ...] = ()


def judge_tier(
    tier: Tier,
    read_records: Callable[[], Mapping[TopicName, ManagedLedgerInfo]] | None,
    *,
    prefix: str = "",
    topics: Sequence[TopicName] = (),
) -> list[JudgedObject]:
    """The streaming objects of a tier, or only those of these topics; without records none is known not to be needed.

    The tier is listed before the records are read: who writes an object has recorded it before.

    Raises:
        UnknownTopicError: one of these topics has neither a record nor an object.
        StoreError: of the tier; and what `read_records` raises.
    """
    listing = list_streaming(tier, prefix)
    records = None if read_records is None else read_records()

    def holds(copy: RecordedCopy, record: LedgerRecord) -> bool:
        return is_deletable_for(check_stored(tier, record, copy))

    judged = (
        [_unrecorded(each) for each in listing.objects] if records is None else judge(listing, records, holds)
    )
    known = {topic for each in judged for topic in each.topics}.union(records or ())
    for wanted in topics:
        if records is not None and not any(is_chosen(topic, [wanted]) for topic in known):
            raise UnknownTopicError("no record and no object is of this topic", found=wanted)
    return [each for each in judged if not topics or any(is_chosen(topic, topics) for topic in each.topics)]


Holds = Callable[[RecordedCopy, LedgerRecord], bool]
"""Whether a copy that a ledger's record names is here, and has all that the record says: see `check_copy`."""


def judge(
    listing: StreamingListing, records: Mapping[TopicName, ManagedLedgerInfo], holds: Holds
) -> list[JudgedObject]:
    """All objects of a listing, by records that were read after it."""
    known = _Records(listing, records, holds)
    return [known.judge(each) for each in listing.objects]


@dataclass(frozen=True, slots=True)
class _Share:
    topic: TopicName
    record: LedgerRecord
    segment: OffloadSegment


class _Records:
    def __init__(
        self, listing: StreamingListing, records: Mapping[TopicName, ManagedLedgerInfo], holds: Holds
    ) -> None:
        self._listing = listing
        self._records = records
        self._holds = holds
        self._held: dict[tuple[ObjectKey, int], bool] = {}
        self._shares: dict[object, list[_Share]] = {}
        self._replacements = {
            copy.uuid: topic
            for topic, info in records.items()
            for copy in other_copies(info)
            if copy.role is OtherRole.REPLACEMENT and not copy.is_abandoned
        }
        for topic, info in records.items():
            for ledger in info.in_order:
                for segment in shares_of(ledger):
                    self._shares.setdefault(segment.uuid, []).append(_Share(topic, ledger, segment))

    def judge(self, found: StreamingObject) -> JudgedObject:
        """One object."""
        if found.foreign is not None:
            return _unrecorded(found)
        if found.key.uuid in self._replacements:
            return _replacement(found, self._replacements[found.key.uuid])
        shares = self._shares.get(found.key.uuid, [])
        ledgers = [_judge_share(share) for share in shares]
        recorded = {ledger.ledger_id for ledger in ledgers}
        owner = self._owner(found, shares)
        if not shares and found.stored.cluster is not None:
            return _of_a_cluster(found, found.stored.cluster, owner)
        ledgers += [
            self._judge_unnamed(found, each, owner) for each in found.ledger_ids if each not in recorded
        ]
        if not ledgers:
            return self._without_ledgers(found, owner)
        worst = max(ledgers, key=lambda ledger: _ORDER.index(ledger.verdict))
        return JudgedObject(
            object=found,
            verdict=worst.verdict,
            why=f"ledger {worst.ledger_id}: {worst.why}",
            ledgers=tuple(sorted(ledgers, key=lambda ledger: ledger.ledger_id)),
            topics=_distinct([owner, *(ledger.topic for ledger in ledgers)]),
        )

    def _owner(self, found: StreamingObject, shares: Sequence[_Share]) -> TopicName | None:
        """Whose an object is: by the records that name it, else by what it says itself."""
        if shares:
            return shares[0].topic
        name = found.stored.managed_ledger
        return None if name is None else topic_of_managed_ledger(name)

    def _without_ledgers(self, found: StreamingObject, owner: TopicName | None) -> JudgedObject:
        """No record names it, and no index can be read."""
        if owner is None or owner not in self._records:
            verdict, why = Verdict.UNKNOWN, "whose it is, no record tells"
        elif found.stored.problem in (Problem.NO_INDEX, Problem.NO_DATA):
            verdict, why = Verdict.FREE, "one half of an attempt that no record of its topic names"
        else:
            verdict, why = Verdict.UNKNOWN, "no record names it, and it cannot be read"
        return JudgedObject(object=found, verdict=verdict, why=why, topics=_distinct([owner]))

    def _judge_unnamed(self, found: StreamingObject, ledger_id: int, owner: TopicName | None) -> JudgedLedger:
        """A ledger that the object's index lists, and whose record does not name the object."""
        info = None if owner is None else self._records.get(owner)
        record = None if info is None else info.ledger(ledger_id)
        if owner is None or info is None:
            verdict, why = Verdict.UNKNOWN, "whose it is, no record tells"
        elif record is None:
            verdict, why = _judge_absent(info, ledger_id)
        elif coverage_of(record) is Coverage.CONDEMNED:
            verdict, why = Verdict.FREE, "it is being deleted"
        elif record.has_hot_copy:
            verdict, why = Verdict.FREE, "its record does not name this object, and its hot copy is there"
        elif shares_of(record):
            verdict, why = self._judge_superseded(owner, record, found)
        elif self._has_one_object(owner, record, found):
            verdict, why = Verdict.FREE, "its record names a copy that is one object"
        else:
            verdict, why = (
                Verdict.NEEDED,
                "the copy that its record names is not here, and its hot copy is gone",
            )
        return JudgedLedger(ledger_id=ledger_id, topic=owner, record=record, verdict=verdict, why=why)

    def _judge_superseded(
        self, topic: TopicName, record: LedgerRecord, found: StreamingObject
    ) -> tuple[Verdict, str]:
        """A ledger whose hot copy is gone, and whose record names other segments."""
        if coverage_of(record) is Coverage.COMPLETE and self._has_its_copies(topic, record, found):
            return Verdict.FREE, "its record names other segments for all of it"
        return Verdict.NEEDED, "its hot copy is gone, and other segments that are here do not have all of it"

    def _has_one_object(self, topic: TopicName, record: LedgerRecord, found: StreamingObject) -> bool:
        is_listed = any(
            {copy.key, copy.mapfile_key} & self._listing.one_object_keys
            for copy in recorded_copies(topic, record, found.key.folder)
        )
        return is_listed and self._has_its_copies(topic, record, found)

    def _has_its_copies(self, topic: TopicName, record: LedgerRecord, found: StreamingObject) -> bool:
        """Return whether the copies that a record names are here, and have all that it says."""
        copies = [
            copy for copy in recorded_copies(topic, record, found.key.folder) if copy.unfinished is None
        ]
        for copy in copies:
            asked = (copy.key, copy.ledger_id)
            if asked not in self._held:
                self._held[asked] = self._holds(copy, record)
            if not self._held[asked]:
                return False
        return bool(copies)


def _unrecorded(found: StreamingObject) -> JudgedObject:
    if found.foreign is not None:
        return JudgedObject(object=found, verdict=Verdict.FOREIGN, why=found.foreign)
    name = found.stored.managed_ledger
    topic = None if name is None else topic_of_managed_ledger(name)
    return _unknown(found, topic, "whether it is needed, only records tell")


def _of_a_cluster(found: StreamingObject, cluster: str, topic: TopicName | None) -> JudgedObject:
    """Judge an object that names a cluster: another program wrote it; names there may be the same."""
    return _unknown(found, topic, f"it is of cluster {cluster}, and no record names it")


def _replacement(found: StreamingObject, topic: TopicName) -> JudgedObject:
    """Return what a relocation or a repair is about to have the record name."""
    why = "by the record it is to take the place of another copy"
    return _alike(found, topic, Verdict.UNFINISHED, why)


def _unknown(found: StreamingObject, topic: TopicName | None, why: str) -> JudgedObject:
    return _alike(found, topic, Verdict.UNKNOWN, why)


def _alike(found: StreamingObject, topic: TopicName | None, verdict: Verdict, why: str) -> JudgedObject:
    """An object all of whose ledgers are judged alike, whatever their records."""
    return JudgedObject(
        object=found,
        verdict=verdict,
        why=why,
        ledgers=tuple(
            JudgedLedger(ledger_id=each, topic=topic, record=None, verdict=verdict, why=why)
            for each in found.ledger_ids
        ),
        topics=_distinct([topic]),
    )


def _judge_share(share: _Share) -> JudgedLedger:
    """A ledger whose record names the object as a segment's."""
    status = share.segment.status
    if coverage_of(share.record) is Coverage.CONDEMNED:
        verdict, why = Verdict.FREE, "it is being deleted"
    elif status is AttemptStatus.ASSIGNED:
        verdict, why = Verdict.UNFINISHED, "by its record this segment is under way"
    elif share.record.has_hot_copy:
        verdict, why = Verdict.HOT, "its record names this segment, and its hot copy is there"
    elif status is AttemptStatus.FAILED:
        verdict, why = Verdict.FREE, "by its record the offload of this segment failed"
    else:
        verdict, why = Verdict.NEEDED, "its hot copy is gone, and this segment is its only copy"
    return JudgedLedger(
        ledger_id=share.record.ledger_id, topic=share.topic, record=share.record, verdict=verdict, why=why
    )


def _judge_absent(info: ManagedLedgerInfo, ledger_id: int) -> tuple[Verdict, str]:
    """A ledger that its topic's record does not have: an older one was deleted, a newer one is not known yet."""
    if any(ledger.ledger_id > ledger_id for ledger in info.ledgers):
        return Verdict.FREE, "its topic does not have it any more"
    return Verdict.UNKNOWN, "it is newer than what its topic's record has"


def _distinct(topics: Iterable[TopicName | None]) -> tuple[TopicName, ...]:
    return tuple(dict.fromkeys(topic for topic in topics if topic is not None))
