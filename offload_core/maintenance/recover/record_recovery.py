"""Records of managed ledgers from a bucket alone, into a metadata store that lacks them.

A record that is there is never changed: one that says the same is left, and one that says something else is left, too,
and reported. What is written is written whole, and only if nothing is there: a recovery that was killed is made again.
Before, a placeholder is written, and the objects that the record will name are looked up: a garbage collection that
deletes them takes the placeholder's place, and one that comes later finds the record.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import UUID

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.recover.ledgers import RebuiltLedger, Unknown, UnknownFact, rebuild_ledger
from offload_core.metadata.catalogue import Ledger, TopicName, concurrently, recorded_copies
from offload_core.metadata.catalogue.concurrency import in_batches, inspect_batches
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.listing import look_up
from offload_core.metadata.catalogue.survey import FoundLedger, LedgerSurvey
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadSegment,
)
from offload_core.metadata.records.segments import as_written, first_entry_id, shares_of
from offload_core.metadata.stores import ManagedLedgerRecords, VersionedInfo
from offload_core.metadata.stores.managed_ledger_records import is_claim, placeholder
from offload_core.metadata.stores.record_paths import record_path, refuse_live_pulsar
from offload_core.storage.clock import system_now_ms
from offload_core.storage.executors import Executor
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import OffloadError, VersionConflictError

_DOMAIN = "persistent"


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltTopic:
    """A topic's record as its objects tell it.

    Attributes:
        name: the managed ledger's; None for objects of which nothing tells the topic.
        cluster: whose objects they are; None if they do not say.
        info: None if there is no record to be made, and `unknown` says why.
    """

    name: str | None
    cluster: str | None = None
    info: ManagedLedgerInfo | None = None
    unknown: tuple[UnknownFact, ...] = ()

    @property
    def topic(self) -> TopicName | None:
        """The topic, if it is known."""
        return None if self.name is None else topic_of_managed_ledger(self.name)


def rebuild_topics(
    tier: Tier, survey: LedgerSurvey, *, cluster: str | None = None, executor: Executor | None = None
) -> Iterator[RebuiltTopic]:
    """The records of all topics that a survey has found, by name; then what no topic is known of.

    Args:
        cluster: of a topic that several clusters have offloaded, the one whose objects are taken.
        executor: who reads what the objects hold; None for this process.

    Raises:
        StoreError: the tier fails.
    """
    looks = inspect_batches(
        in_batches(_parts(survey, cluster), executor), _Rebuild(tier, tier_record(tier)), executor
    )
    parts = ((part, ledger) for some, found in looks for part, ledger in zip(some, found, strict=True))
    for _, of_topic in groupby(parts, key=lambda each: each[0].number):
        yield _put_together(list(of_topic))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A topic, as far as it is known, with one of its ledgers, or none; all of one topic have its number."""

    number: int
    topic: RebuiltTopic
    ledger: Ledger | None


def _parts(survey: LedgerSurvey, cluster: str | None) -> Iterator[_Part]:
    for number, (topic, ledgers) in enumerate(_topics(survey, cluster)):
        for ledger in ledgers or (None,):
            yield _Part(number=number, topic=topic, ledger=ledger)


def _topics(survey: LedgerSurvey, cluster: str | None) -> Iterator[tuple[RebuiltTopic, list[Ledger]]]:
    """The topics with the ledgers that are to be rebuilt."""
    for name, of_topic in groupby(survey.ledgers(), key=lambda each: each.managed_ledger):
        found = list(of_topic)
        if name is None or not _is_a_name(name):
            keys = dict.fromkeys(each.key.data_key for one in found for each in one.ledger.attempts)
            nameless = tuple(UnknownFact(what=Unknown.NO_TOPIC, key=key) for key in keys)
            yield RebuiltTopic(name=None, unknown=nameless), []
            continue
        yield _topic(name, found, cluster)
    strays = tuple(
        UnknownFact(what=Unknown.NO_COPY, key=stored.key.data_key, detail=stored.detail)
        for stored in survey.strays()
    )
    if strays:
        yield RebuiltTopic(name=None, unknown=strays), []


def _is_a_name(managed_ledger: str) -> bool:
    """Return whether a record may have this name: `tenant/namespace/persistent/topic`; Pulsar 1 had a cluster in it."""
    parts = managed_ledger.split("/")
    return len(parts) in (4, 5) and parts[-2] == _DOMAIN


def _topic(name: str, found: list[FoundLedger], cluster: str | None) -> tuple[RebuiltTopic, list[Ledger]]:
    if cluster in {each.cluster for each in found}:
        found = [each for each in found if each.cluster == cluster]
    clusters = {each.cluster for each in found}
    if len(clusters) > 1:
        named = ", ".join(sorted(each or "(none named)" for each in clusters))
        return RebuiltTopic(name=name, unknown=(UnknownFact(what=Unknown.CLUSTERS, detail=named),)), []
    return RebuiltTopic(name=name, cluster=clusters.pop()), [each.ledger for each in found]


@dataclass(frozen=True, slots=True)
class _Rebuild:
    """Rebuilds ledgers; picklable."""

    tier: Tier
    place: DriverMetadata

    def __call__(self, part: _Part) -> RebuiltLedger | OffloadError | None:
        """A ledger; an error for when it is its turn, so that the topics before it are not held up."""
        if part.ledger is None:
            return None
        try:
            return rebuild_ledger(self.tier, part.ledger, self.place)
        except OffloadError as error:
            return error


def _put_together(parts: Sequence[tuple[_Part, RebuiltLedger | OffloadError | None]]) -> RebuiltTopic:
    """A topic of which all ledgers are rebuilt."""
    rebuilt: list[RebuiltLedger] = []
    for _, found in parts:
        if isinstance(found, OffloadError):
            raise found
        if found is not None:
            rebuilt.append(found)
    topic = parts[0][0].topic
    ledgers = _with_extents([each.record for each in rebuilt if each.record is not None])
    return replace(
        topic,
        info=ManagedLedgerInfo(ledgers=tuple(ledgers)) if ledgers else None,
        unknown=topic.unknown + tuple(fact for each in rebuilt for fact in each.unknown),
    )


def _with_extents(ledgers: Sequence[LedgerRecord]) -> list[LedgerRecord]:
    """The ledgers, each share with the first and last entry of its whole segment."""
    extents: dict[UUID, tuple[EntryPosition, EntryPosition]] = {}
    for ledger in ledgers:
        for share in shares_of(ledger):
            assert share.end_entry_id is not None
            begin = EntryPosition(ledger.ledger_id, first_entry_id(ledger, share.uuid))
            end = EntryPosition(ledger.ledger_id, share.end_entry_id)
            extents[share.uuid] = (extents.get(share.uuid, (begin, end))[0], end)
    return [_with_extent(ledger, extents) for ledger in ledgers]


def _with_extent(
    ledger: LedgerRecord, extents: dict[UUID, tuple[EntryPosition, EntryPosition]]
) -> LedgerRecord:
    shares = shares_of(ledger)
    if ledger.context is None or not shares:
        return ledger

    def extended(share: OffloadSegment) -> OffloadSegment:
        return share.with_extent(*extents[share.uuid])

    return replace(ledger, context=replace(ledger.context, segments=tuple(map(extended, shares))))


class RecoveryOutcome(enum.Enum):
    """Result for a topic's record."""

    NEW = "new"
    """The store has none: it is written, or would be."""
    SAME = "same"
    """The store has this record already."""
    OTHER = "other"
    """The store has another record, which stays as it is."""
    NONE = "none"
    """There is no record to be made of what lies there."""
    GONE = "gone"
    """Objects that it would name were deleted meanwhile: it is not written, and to be recovered once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A topic, and what became of its record."""

    rebuilt: RebuiltTopic
    outcome: RecoveryOutcome


def recover_records(
    tier: Tier,
    records: ManagedLedgerRecords | None,
    audit: AuditLog | None,
    *,
    wanted: Callable[[TopicName | None], bool] | None = None,
    cluster: str | None = None,
    executor: Executor | None = None,
    listener: Callable[[int], None] = lambda _: None,
) -> Iterator[Recovered]:
    """Rebuild the records of a tier's topics, and write those that are missing; one after another, by topic.

    Args:
        records: where they are written; None to see only what they would be.
        audit: where each record is told of before it is written; None writes none, and shows what would be.
        wanted: whether a topic's record is rebuilt, None for all; it is asked None of objects that name no topic.
        cluster: see `rebuild_topics`.
        executor: who reads objects; None for this process. Records are written here.
        listener: told how many pairs of objects were looked at.

    Raises:
        OptionError: the metadata store is a live Pulsar's, also if nothing is to be written.
        StoreError, FormatError: of the tier or the metadata; what was written stays, and it can be called again.
    """
    if records is not None:
        refuse_live_pulsar(records.store)
    with LedgerSurvey() as survey:
        survey.fill(tier, takes=wanted, executor=executor, listener=listener)
        for rebuilt in rebuild_topics(tier, survey, cluster=cluster, executor=executor):
            yield Recovered(rebuilt=rebuilt, outcome=_write(records, rebuilt, tier, audit))


def _write(
    records: ManagedLedgerRecords | None, rebuilt: RebuiltTopic, tier: Tier, audit: AuditLog | None
) -> RecoveryOutcome:
    name, info = rebuilt.name, rebuilt.info
    if name is None or info is None:
        return RecoveryOutcome.NONE
    if records is None:
        return RecoveryOutcome.NEW
    there = _compared(records, name, info)
    if there is not RecoveryOutcome.NEW or audit is None:
        return there
    audit.record(
        Change(
            action=ChangeAction.RECORD,
            why=f"its record is rebuilt from the objects in {tier.describe().location}",
            managed_ledger=name,
            key=record_path(name),
            after=f"{len(info.ledgers)} ledgers, {sum(each.info.entries or 0 for each in info.ledgers)} entries",
        )
    )
    try:
        claim = records.write(name, placeholder(system_now_ms()), _known_claim(records, name))
        if not _are_there(tier, rebuilt):
            records.delete(name, claim)
            return RecoveryOutcome.GONE
        records.write(name, info, claim)
    except VersionConflictError:  # another process made one since, or objects are deleted
        there = _compared(records, name, info)
        return RecoveryOutcome.GONE if there is RecoveryOutcome.NEW else there
    return RecoveryOutcome.NEW


def _compared(records: ManagedLedgerRecords, name: str, info: ManagedLedgerInfo) -> RecoveryOutcome:
    known = records.read(name)
    if known is None or is_claim(known.info):
        return RecoveryOutcome.NEW
    return RecoveryOutcome.SAME if as_written(known.info) == as_written(info) else RecoveryOutcome.OTHER


def _known_claim(records: ManagedLedgerRecords, name: str) -> VersionedInfo | None:
    """The placeholder of a deletion, which finds that another took its place."""
    known = records.read(name)
    return known if known is not None and is_claim(known.info) else None


def _are_there(tier: Tier, rebuilt: RebuiltTopic) -> bool:
    """Return whether both objects of all copies that a record will name are there."""
    topic = rebuilt.topic
    assert topic is not None
    assert rebuilt.info is not None
    keys = list(
        dict.fromkeys(copy.key for ledger in rebuilt.info.ledgers for copy in recorded_copies(topic, ledger))
    )

    def is_there(key: ObjectKey) -> bool:
        return all(look_up(tier, each) is not None for each in (key.index_key, key.data_key))

    return all(concurrently(is_there, keys))
