"""A managed ledger's record from the objects of its topic, and what cannot be known of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import UUID

from offload_core.catalogue import Ledger, TopicName
from offload_core.catalogue.concurrency import in_batches, look_at
from offload_core.catalogue.known_tiers import tier_record
from offload_core.catalogue.survey import FoundLedger, LedgerSurvey
from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.executors import Executor
from offload_core.metadata import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadSegment,
)
from offload_core.metadata.segment_shares import first_entry_id, shares_of
from offload_core.recover.ledgers import RebuiltLedger, rebuild_ledger
from offload_core.recover.unknown import Unknown, UnknownFact
from offload_core.tier import Tier
from offload_hooks.errors import OffloadError

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
    looks = look_at(
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
    """Whether a record may have this name: `tenant/namespace/persistent/topic`; Pulsar 1 had a cluster in it."""
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
