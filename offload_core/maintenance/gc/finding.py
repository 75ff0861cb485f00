"""Finds what nothing in a tier needs: the tier is listed first, then records are read, then what is left is judged.

In this order, since who writes an object has recorded its attempt before: what was listed, and is not named by a record
that was read later, is of an attempt that has ended. Memory does not depend on how many objects there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from uuid import UUID

from offload_core.format.codec.object_format import CLUSTER_KEY, TOPIC_KEY, parse_key
from offload_core.maintenance.gc.garbage import CollectionSummary, Garbage, GarbageKind, Scope, objects_of
from offload_core.maintenance.gc.garbage_judging import (
    ELSEWHERE,
    Kept,
    Owners,
    copies_asked_of,
    judge_named,
    judge_unnamed,
)
from offload_core.maintenance.gc.garbage_survey import GarbageSurvey, ListedPair, Named
from offload_core.maintenance.gc.naming import (
    Asked,
    InspectCopy,
    NamedAttempt,
    NamedCopies,
    Naming,
    is_under_way,
    namings,
)
from offload_core.maintenance.verify.pair_checks import Examine
from offload_core.metadata.catalogue import RecordedCopy, Records, TopicName, concurrently, read_each
from offload_core.metadata.catalogue.concurrency import AT_ONCE, batch_size, inspect_batches
from offload_core.metadata.catalogue.listing import stream_attempts
from offload_core.metadata.catalogue.record_source import in_parts
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.records import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.stores.record_paths import record_path
from offload_core.storage.executors import Executor
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError, OffloadError, OptionError, StoreError
from offload_hooks.values import StaleUpload

_SAMPLES = 256
"""Objects that are asked for their cluster, each of another topic."""


class Finder:
    """Finds garbage, step by step: `list_all`, `read_records`, `garbage`.

    Attributes:
        owners: whose objects are whose, once records were read.
        unrecorded: topics that were listed and have no record, once records were read.
    """

    def __init__(
        self,
        tier: Tier,
        survey: GarbageSurvey,
        scope: Scope,
        summary: CollectionSummary,
        listener: Callable[[CollectionSummary], None],
        *,
        elsewhere: Sequence[Tier] = (),
        executor: Executor | None = None,
    ) -> None:
        self._tier = tier
        self._elsewhere = elsewhere
        self._survey = survey
        self._scope = scope
        self._summary = summary
        self._listener = listener
        self._executor = executor
        self._before = scope.before
        self._topics: frozenset[TopicName] = frozenset()
        self.owners = Owners(folder=scope.folder, clusters=(), is_shared=scope.is_shared)
        self.unrecorded: list[TopicName] = []

    # --- listing -------------------------------------------------------------------------------

    def list_all(self) -> None:
        """List uploads and objects. `StoreError`: the tier cannot be listed."""
        summary, prefix = self._summary, self._scope.prefix
        self._before = self._scope.before
        if self._tier.describe().capabilities.stale_uploads:
            with suppress(ObjectNotFoundError):  # a tier that nothing was ever written to
                for stale in self._tier.list_uploads(prefix):
                    self._survey.add_upload(stale)
                    summary.uploads += 1
        pairs = stream_attempts(self._tier, prefix)
        while some := list(islice(pairs, AT_ONCE)):
            self._survey.add(some)
            summary.objects += sum(not pair.is_lone for pair in some)
            summary.object_bytes += sum(each.size_bytes for pair in some for each in objects_of(pair))
            self._listener(summary)
        latest = self._survey.latest()
        if latest is not None and latest > self._scope.now() + self._scope.clock_skew:
            summary.why_incomplete = (
                "an object is of a later time than it is now: the clocks of store and machine are further apart than "
                f"{self._scope.clock_skew.total_seconds():.0f} s"
            )

    # --- records -------------------------------------------------------------------------------

    def read_records(self, records: Records, topics: Sequence[TopicName]) -> None:
        """Note what all records name. `StoreError`: they cannot be read."""
        self._topics = frozenset(topics)
        for some in in_parts(topics):
            found = dict(read_each(records, some))
            self.unrecorded += [topic for topic in some if topic not in found]
            for topic, info in found.items():
                named = info if isinstance(info, FormatError) else _namings(info)
                if isinstance(named, FormatError):
                    self._summary.why_incomplete = f"the record of {topic} cannot be read: {named}"
                    continue
                self._survey.name(managed_ledger_of_topic(topic), named)
                self._summary.topics += 1
            self._listener(self._summary)
        self._summary.younger = self._survey.count_younger(self._before)
        self.owners = replace(self.owners, clusters=self._clusters())

    def _clusters(self) -> frozenset[str]:
        """The clusters that objects name which records need, and which say that they are of that topic."""

        def look(needed: tuple[ListedPair, Named]) -> str | None:
            found, named = needed
            data = found.pair.data
            assert data is not None
            try:
                metadata = {} if found.pair.key.is_mapfile else self._tier.stat(data.key).user_metadata
            except (StoreError, FormatError):
                return None
            is_its = metadata.get(TOPIC_KEY) == named.topic
            return metadata.get(CLUSTER_KEY) if is_its else None

        found = concurrently(look, self._survey.needed(_SAMPLES))
        return frozenset(cluster for cluster in found if cluster is not None)

    # --- what is garbage -----------------------------------------------------------------------

    def garbage(self, records: Records) -> Iterator[Garbage]:
        """All that nothing needs, by records as they are now."""
        yield from self._named(records)
        self._describe_unnamed()
        yield from self._unnamed(records)
        yield from self._uploads(records)

    def _named(self, records: Records) -> Iterator[Garbage]:
        for due, copies in self._looked_ahead(self._named_to_judge(records)):
            for found, topic in due.objects:
                try:
                    judged = judge_named(
                        self._tier,
                        found,
                        topic,
                        due.infos[topic],
                        folder=self.owners.folder,
                        before_ms=self._before.timestamp() * 1000,
                        holds=copies.holds,
                    )
                except StoreError as error:
                    self._summary.fail(error.at(key=found.pair.key.data_key))
                    continue
                yield from self._counted(judged, found)

    def _named_to_judge(self, records: Records) -> Iterator[_ToJudge]:
        """Yield what records name and do not need, that is here and under no lease, with its records now."""
        for some in self._survey.not_needed(self._before, batch_size(self._executor)):
            topics = {named.topic: topic_of_managed_ledger(named.topic) for _, named in some}
            wanted = {name: topic for name, topic in topics.items() if self._scope.is_chosen(topic)}
            due = _ToJudge(self._read(records, wanted.values()))
            for found, named in some:
                topic = wanted.get(named.topic)
                if topic is None or topic not in due.infos:
                    continue
                if self.owners.is_elsewhere(found.pair.key):
                    self._summary.unknown[ELSEWHERE] += 1
                    continue
                info = due.infos[topic]
                if info is not None and is_under_way(info, found.pair.key.uuid, self._scope.now_ms()):
                    self._summary.live += 1
                    continue
                is_asked = named.naming is Naming.REPLACED
                self._add(due, found, topic, (named.ledger_id,) if is_asked else ())
            yield due

    def _add(self, due: _ToJudge, found: ListedPair, topic: TopicName, ledger_ids: Sequence[int]) -> None:
        """Take objects; the copies of these ledgers are going to be asked for."""
        due.objects.append((found, topic))
        asked = copies_asked_of(self._tier, topic, due.infos[topic], ledger_ids, self.owners.folder)
        due.copies.update(((copy.key, copy.ledger_id), (copy, record)) for copy, record in asked)

    def _looked_ahead(self, dues: Iterable[_ToJudge]) -> Iterator[tuple[_ToJudge, NamedCopies]]:
        """The same with the copies judged, many at once."""
        drawn: deque[_ToJudge] = deque()

        def copies() -> Iterator[list[tuple[RecordedCopy, LedgerRecord]]]:
            for due in dues:
                drawn.append(due)
                yield list(due.copies.values())

        for asked, found in inspect_batches(copies(), InspectCopy(tier=self._tier), self._executor):
            inspected = zip(asked, found, strict=True)
            yield (
                drawn.popleft(),
                NamedCopies(self._tier, self.owners.folder, self._elsewhere, inspected),
            )

    def _describe_unnamed(self) -> None:
        """Ask for the topics, clusters and ledgers of what no record names."""
        unnamed = self._survey.unnamed(self._before, batch_size(self._executor))
        for _, looked_at in inspect_batches(
            unnamed, _Look(self._tier, self._scope.takes_stand_ins), self._executor
        ):
            described = []
            for found in looked_at:
                if isinstance(found, OffloadError):
                    self._summary.fail(found)
                elif found is not None:
                    described.append(found)
            self._survey.describe(described)
            self._listener(self._summary)

    def _unnamed(self, records: Records) -> Iterator[Garbage]:
        for due, copies in self._looked_ahead(self._unnamed_to_judge(records)):
            yield from self._judged(records, due, copies)

    def _unnamed_to_judge(self, records: Records) -> Iterator[_ToJudge]:
        """Yield what no record names, and is ours; some at a time, with its topics' records now."""
        for some in self._survey.described(batch_size(self._executor)):
            ours: list[tuple[ListedPair, TopicName]] = []
            for found in some:
                if not found.topic:
                    self._summary.nameless += 1
                    continue
                topic = topic_of_managed_ledger(found.topic)
                if not self._scope.is_chosen(topic):
                    continue
                why = self.owners.why_not_ours(found)
                if why is not None:
                    self._summary.unknown[why] += 1
                else:
                    ours.append((found, topic))
            due = _ToJudge(self._read(records, dict.fromkeys(topic for _, topic in ours)))
            for found, topic in ours:
                if topic in due.infos:
                    self._add(due, found, topic, found.ledger_ids)
            yield due

    def _judged(self, records: Records, due: _ToJudge, copies: NamedCopies) -> Iterator[Garbage]:
        def judge(each: tuple[ListedPair, TopicName]) -> Garbage | Kept | OffloadError:
            found, topic = each
            try:
                return judge_unnamed(found, topic, due.infos[topic], self.owners.folder, copies.holds)
            except StoreError as error:
                return error.at(key=found.pair.key.data_key)

        for judged, (found, _) in zip(concurrently(judge, due.objects), due.objects, strict=True):
            if isinstance(judged, OffloadError):
                self._summary.fail(judged)
            elif (
                isinstance(judged, Garbage)
                and judged.kind is GarbageKind.DELETED_TOPIC
                and records.why_incomplete is not None
            ):
                self._summary.unknown["its topic has no record here, which may be elsewhere"] += 1
            else:
                yield from self._counted(judged, found)

    def _uploads(self, records: Records) -> Iterator[Garbage]:
        for stale, named in self._survey.uploads(self._before):
            key = parse_key(stale.upload.key)
            if named is not None and key is not None:
                topic = topic_of_managed_ledger(named.topic)
                if self._scope.is_chosen(topic):
                    yield from self._upload_of_attempt(records, stale, topic, named, key.uuid)
            elif not self._scope.is_chosen(None):
                continue
            elif not stale.upload.key or not (self._scope.is_shared or key is None):
                yield _upload(GarbageKind.UPLOAD, stale, None, ())
            else:
                self._summary.unknown["an upload of an attempt that no record names"] += 1

    def _upload_of_attempt(
        self, records: Records, stale: StaleUpload, topic: TopicName, named: Named, uuid: UUID
    ) -> Iterator[Garbage]:
        kind = GarbageKind.UPLOAD
        if named.naming is Naming.UNFINISHED:
            info = self._read(records, [topic]).get(topic)
            if info is not None and is_under_way(info, uuid, self._scope.now_ms()):
                self._summary.live += 1
                return
            kind = GarbageKind.UNFINISHED
        yield _upload(kind, stale, topic, (named.ledger_id,))

    def _read(
        self, records: Records, topics: Iterable[TopicName]
    ) -> dict[TopicName, ManagedLedgerInfo | None]:
        """The records of these topics as they are now, None where there is none; without those that are unreadable."""
        asked = list(topics)
        known = asked if records.why_incomplete is None else [each for each in asked if each in self._topics]
        found = {topic: _readable(info) for topic, info in read_each(records, known)}
        self._summary.kept["its topic's record cannot be read"] += sum(
            isinstance(info, FormatError) for info in found.values()
        )
        infos = {topic: found.get(topic) for topic in asked}
        return {topic: info for topic, info in infos.items() if not isinstance(info, FormatError)}

    def _counted(self, judged: Garbage | Kept, found: ListedPair) -> Iterator[Garbage]:
        if isinstance(judged, Garbage):
            yield judged
        elif judged.is_unknown:
            self._summary.unknown[judged.why] += 1
        else:
            self._summary.kept[judged.why] += 1
            self._summary.kept_bytes[judged.why] += sum(each.size_bytes for each in objects_of(found.pair))


@dataclass(frozen=True, slots=True)
class _ToJudge:
    """Objects with their topics, whose records are these; and the recorded copies that they are held against."""

    infos: Mapping[TopicName, ManagedLedgerInfo | None]
    objects: list[tuple[ListedPair, TopicName]] = field(default_factory=list)
    copies: dict[Asked, tuple[RecordedCopy, LedgerRecord]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Look:
    """Asks objects for their topics, clusters and ledgers; picklable."""

    tier: Tier
    takes_stand_ins: bool

    def __call__(self, found: ListedPair) -> ListedPair | OffloadError | None:
        examined = Examine(tier=self.tier)(found.pair)
        if examined is None or isinstance(examined, StoreError):
            return examined
        ids = [each.ledger_id for each in examined.extents]
        if not ids and found.pair.key.ledger_id is not None:
            ids = [found.pair.key.ledger_id]
        return replace(
            found,
            topic=_checked(examined.managed_ledger),
            cluster=examined.cluster,
            is_sound=examined.is_sound,
            ledger_ids=tuple(sorted(ids)),
            stands_in=examined.stands_in and not self.takes_stand_ins,
        )


def _upload(
    kind: GarbageKind, stale: StaleUpload, topic: TopicName | None, ledger_ids: tuple[int, ...]
) -> Garbage:
    return Garbage(
        kind=kind,
        why=kind.meaning,
        key=stale.upload.key,
        pair=None,
        upload=stale.upload,
        topic=topic,
        ledger_ids=ledger_ids,
        size_bytes=None,
        modified_at=stale.started_at,
    )


def _namings(info: ManagedLedgerInfo) -> list[NamedAttempt] | FormatError:
    try:
        return namings(info)
    except FormatError as error:
        return error


def _readable(info: ManagedLedgerInfo | FormatError) -> ManagedLedgerInfo | FormatError:
    """A record, if all that it names can be told."""
    named = info if isinstance(info, FormatError) else _namings(info)
    return named if isinstance(named, FormatError) else info


def _checked(managed_ledger: str | None) -> str:
    """The name that objects have; empty for one that no record can have."""
    try:
        if managed_ledger is not None:
            record_path(managed_ledger_of_topic(topic_of_managed_ledger(managed_ledger)))
            return managed_ledger
    except OptionError:
        pass
    return ""
