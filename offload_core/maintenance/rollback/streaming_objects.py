"""The streaming objects of a tier, and by the records of all their ledgers: may an object be deleted?

A streaming object's key has no `-ledger-` (`<uuid>`, `<uuid>-index`), and its index begins with its magic; where there
is no index, the data object begins with the magic of a streaming block. An object with such a key and another magic is
another program's: it is listed, and never deleted. Source: docs/formats/streaming.md.

An object may be deleted if no ledger needs it: the ledger has a hot copy, or one in an object of its own that exists,
or it is marked for deletion or was deleted. An object stays if the records do not have its ledgers, for a bucket may be
shared; and so does an attempt that is under way. Source: docs/rollback.md.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from offload_core.format.codec.block_layout import BLOCK_MAGIC
from offload_core.format.codec.object_format import INDEX_MAGIC, ObjectFormat, ObjectKey
from offload_core.metadata.catalogue import (
    Problem,
    RecordedCopy,
    StoredObject,
    TopicName,
    concurrently,
    recorded_copies,
)
from offload_core.metadata.catalogue.copy_check import check_stored, is_deletable_for
from offload_core.metadata.catalogue.listing import Pair, describe_pair, list_pairs
from offload_core.metadata.catalogue.topics import is_chosen, topic_of_managed_ledger
from offload_core.metadata.records import (
    AttemptStatus,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadSegment,
    OtherRole,
    other_copies,
)
from offload_core.metadata.records.segments import covered_stop, first_entry_id, shares_of
from offload_core.storage.tier import Tier
from offload_hooks.errors import ObjectNotFoundError, UnknownTopicError

_MAGIC_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingObject:
    """A data object and its index under the key of a streaming object, or one of the two.

    Attributes:
        foreign: how another program's object begins; None for a streaming object.
    """

    stored: StoredObject
    foreign: str | None = None

    @property
    def key(self) -> ObjectKey:
        """The data object's key."""
        return self.stored.key

    @property
    def state(self) -> str:
        """`complete`, `not-streaming`, or the code of its problem."""
        if self.foreign is not None:
            return "not-streaming"
        return "complete" if self.stored.problem is None else self.stored.problem.value

    @property
    def detail(self) -> str | None:
        """The problem, in words."""
        return self.stored.detail if self.foreign is None else self.foreign

    @property
    def ledger_ids(self) -> tuple[int, ...]:
        """The ledgers in its index, ascending; none if the index is missing or cannot be read."""
        index = self.stored.index
        return () if index is None else tuple(sorted(ledger.ledger_id for ledger in index.ledgers))

    @property
    def size_bytes(self) -> int:
        """Bytes of both objects."""
        return (self.stored.data_bytes or 0) + (self.stored.index_bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingListing:
    """The streaming objects of a tier by key, and the keys of those objects that hold one ledger and are whole.

    Attributes:
        one_object_keys: PIP-17 objects and MapFiles that have both data and index.
    """

    objects: tuple[StreamingObject, ...]
    one_object_keys: frozenset[ObjectKey]


def list_streaming(tier: Tier, prefix: str = "") -> StreamingListing:
    """List the streaming objects whose keys begin with `prefix`, without those that vanish meanwhile.

    Raises:
        StoreError: the tier cannot be listed or read.
    """
    pairs = list_pairs(tier, prefix)
    streaming = [pair for pair in pairs if pair.key.object_format is ObjectFormat.STREAMING]
    found = concurrently(lambda pair: _look(tier, pair), streaming)
    objects = [each for each in found if each is not None]
    return StreamingListing(
        objects=tuple(sorted(objects, key=lambda each: each.key.data_key)),
        one_object_keys=frozenset(
            replace(pair.key, is_index=False)
            for pair in pairs
            if pair.key.object_format is not ObjectFormat.STREAMING and pair.data and pair.index
        ),
    )


def how_it_begins(tier: Tier, stored: StoredObject) -> str | None:
    """Return how an object with a streaming object's key begins; None if as a streaming object, even a damaged one.

    Raises:
        ObjectNotFoundError: it vanished meanwhile.
        StoreError: the tier cannot be read.
    """
    if stored.index is not None:
        return None
    index = _magic(tier, stored.key.index_key, stored.index_bytes)
    if index is not None:
        expected = INDEX_MAGIC[ObjectFormat.STREAMING]
        return None if index == expected else f"the index begins with {index:08X}, not {expected:08X}"
    data = _magic(tier, stored.key.data_key, stored.data_bytes)
    if data is None:
        return "neither object is long enough to begin with a magic"
    expected = BLOCK_MAGIC[ObjectFormat.STREAMING]
    return None if data == expected else f"the data begins with {data:08X}, not {expected:08X}"


def _look(tier: Tier, pair: Pair) -> StreamingObject | None:
    try:
        stored = describe_pair(tier, pair)
        return None if stored is None else StreamingObject(stored=stored, foreign=how_it_begins(tier, stored))
    except ObjectNotFoundError:
        return None


def _magic(tier: Tier, key: str, size_bytes: int | None) -> int | None:
    """Return the first four bytes; None if there are fewer."""
    if size_bytes is None or size_bytes < _MAGIC_BYTES:
        return None
    (magic,) = struct.unpack(">I", tier.read_range(key, 0, _MAGIC_BYTES))
    return int(magic)


class Coverage(enum.Enum):
    """Share of a ledger in complete segments, by its record."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    CONDEMNED = "condemned"


def coverage_of(ledger: LedgerRecord) -> Coverage:
    """Return how much of a ledger its complete segments hold; one that is marked for deletion needs none."""
    if ledger.is_marked_for_deletion:
        return Coverage.CONDEMNED
    is_whole = ledger.info.is_closed and covered_stop(ledger) >= (ledger.info.entries or 0)
    return Coverage.COMPLETE if is_whole else Coverage.PARTIAL


def streamed_entries(ledger: LedgerRecord) -> int:
    """Return how many entries lie in complete segments; of one whose end is not recorded, none are counted."""
    return sum(
        max(0, share.end_entry_id + 1 - first_entry_id(ledger, share.uuid))
        for share in shares_of(ledger)
        if share.complete and share.end_entry_id is not None
    )


def is_under_way(ledger: LedgerRecord) -> bool:
    """Return whether a segment of it is being offloaded, or is to be."""
    return any(share.status is AttemptStatus.ASSIGNED for share in shares_of(ledger))


class Verdict(enum.Enum):
    """Permission to delete an object, the worst of its ledgers': from `FREE` to `FOREIGN`."""

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
        recorded: objects that a record still names, while the hot copy exists.
        loss: objects that are needed by records.
    """

    recorded: bool = True
    loss: bool = False

    def allows(self, verdict: Verdict) -> bool:
        """Return whether an object of this verdict is deleted; one that is unknown, under way or foreign never is."""
        return {Verdict.FREE: True, Verdict.HOT: self.recorded, Verdict.NEEDED: self.loss}.get(verdict, False)

    def leaves(self, verdict: Verdict) -> bool:
        """Return whether a streaming object of this verdict stays."""
        return verdict is not Verdict.FOREIGN and not self.allows(verdict)


_ORDER = list(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLedger:
    """A ledger of an object. `record` is None if no record has it."""

    ledger_id: int
    topic: TopicName | None
    record: LedgerRecord | None
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedObject:
    """A streaming object, its verdict, and its ledgers; none if they are not known.

    Attributes:
        topics: by the records and by its user metadata.
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
    """Judge the streaming objects of a tier, or only those of these topics; without records all are unknown.

    The tier is listed before the records are read: a process that writes an object has recorded it before.

    Raises:
        UnknownTopicError: one of these topics has neither a record nor an object.
        StoreError: of the tier; and what `read_records` raises.
    """
    listing = list_streaming(tier, prefix)
    records = None if read_records is None else read_records()

    def holds(copy: RecordedCopy, record: LedgerRecord) -> bool:
        return is_deletable_for(check_stored(tier, record, copy))

    judged = [_unrecorded(each) for each in listing.objects]
    if records is not None:
        by_records = _Records(listing, records, holds)
        judged = [by_records.judge(each) for each in listing.objects]
    known = {topic for each in judged for topic in each.topics}.union(records or ())
    for wanted in topics:
        if records is not None and not any(is_chosen(topic, [wanted]) for topic in known):
            raise UnknownTopicError("no record and no object is of this topic", found=wanted)
    return [each for each in judged if not topics or any(is_chosen(topic, topics) for topic in each.topics)]


Holds = Callable[[RecordedCopy, LedgerRecord], bool]
"""Returns whether a recorded copy exists, and has all that its record states: see `check_copy`."""


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
        """Judge one object."""
        if found.foreign is not None:
            return _unrecorded(found)
        if found.key.uuid in self._replacements:
            why = "by the record it is to take the place of another copy"
            return _alike(found, self._replacements[found.key.uuid], Verdict.UNFINISHED, why)
        shares = self._shares.get(found.key.uuid, [])
        ledgers = [_judge_share(share) for share in shares]
        recorded = {ledger.ledger_id for ledger in ledgers}
        owner = self._owner(found, shares)
        if not shares and found.stored.cluster is not None:
            why = f"it is of cluster {found.stored.cluster}, and no record names it"  # names there may be the same
            return _alike(found, owner, Verdict.UNKNOWN, why)
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
        """Return an object's topic: by the records that name it, else by its user metadata."""
        if shares:
            return shares[0].topic
        name = found.stored.managed_ledger
        return None if name is None else topic_of_managed_ledger(name)

    def _without_ledgers(self, found: StreamingObject, owner: TopicName | None) -> JudgedObject:
        """Judge an object that no record names, and whose index cannot be read."""
        if owner is None or owner not in self._records:
            verdict, why = Verdict.UNKNOWN, "whose it is, no record tells"
        elif found.stored.problem in (Problem.NO_INDEX, Problem.NO_DATA):
            verdict, why = Verdict.FREE, "one half of an attempt that no record of its topic names"
        else:
            verdict, why = Verdict.UNKNOWN, "no record names it, and it cannot be read"
        return JudgedObject(object=found, verdict=verdict, why=why, topics=_distinct([owner]))

    def _judge_unnamed(self, found: StreamingObject, ledger_id: int, owner: TopicName | None) -> JudgedLedger:
        """Judge a ledger in the object's index whose record does not name the object."""
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
        """Judge a ledger whose hot copy is gone, and whose record names other segments."""
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
        """Return whether the copies that a record names exist, and have all that it states."""
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
    return _alike(found, topic, Verdict.UNKNOWN, "whether it is needed, only records tell")


def _alike(found: StreamingObject, topic: TopicName | None, verdict: Verdict, why: str) -> JudgedObject:
    """Judge all ledgers of an object alike, whatever their records."""
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
    """Judge a ledger that its topic's record lacks: an older one was deleted, a newer one is not known yet."""
    if any(ledger.ledger_id > ledger_id for ledger in info.ledgers):
        return Verdict.FREE, "its topic does not have it any more"
    return Verdict.UNKNOWN, "it is newer than what its topic's record has"


def _distinct(topics: Iterable[TopicName | None]) -> tuple[TopicName, ...]:
    return tuple(dict.fromkeys(topic for topic in topics if topic is not None))
