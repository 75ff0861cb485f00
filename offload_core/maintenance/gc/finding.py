"""Finding of garbage: list a tier, then read records, then judge what no record needs.

In this order, since a process that writes an object has recorded its attempt before: an object that was listed, and
that no record names which was read later, is of an attempt that has ended. All is in a temporary file, so that memory
does not depend on how many objects there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import islice
from typing import Any
from uuid import UUID

from offload_core.format.codec.object_format import CLUSTER_KEY, TOPIC_KEY, parse_key
from offload_core.maintenance.gc.garbage import (
    CollectionSummary,
    Garbage,
    GarbageKind,
    ListedPair,
    Scope,
    objects_of,
)
from offload_core.maintenance.gc.garbage_judging import (
    ELSEWHERE,
    GarbageJudge,
    Kept,
    NamedAttempt,
    Naming,
    Owners,
    is_under_way,
    namings,
)
from offload_core.maintenance.verify.pair_checks import try_examine
from offload_core.metadata.catalogue import Records, TopicName, concurrently, read_each
from offload_core.metadata.catalogue.concurrency import AT_ONCE, inspect_batches
from offload_core.metadata.catalogue.listing import Pair, stream_attempts
from offload_core.metadata.catalogue.record_source import in_parts
from offload_core.metadata.catalogue.survey import Survey, SurveyRow, packed, unpacked
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores.record_paths import record_path
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError, OffloadError, OptionError, StoreError
from offload_hooks.values import ListedObject, StaleUpload, Upload

_TABLES = """
    CREATE INDEX by_topic ON objects (managed_ledger, key) WHERE managed_ledger IS NOT NULL;
    CREATE TABLE uploads (key TEXT, uuid BLOB, upload_id TEXT, started_at REAL);
    CREATE TABLE named (uuid BLOB PRIMARY KEY, naming INTEGER, topic TEXT, ledger INTEGER) WITHOUT ROWID;
"""
_NEEDED = Naming.NEEDED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The naming of an attempt by records."""

    naming: Naming
    topic: str
    ledger_id: int


class GarbageSurvey(Survey[ListedPair]):
    """The objects and uploads of a tier, and the attempts that records name; a context manager.

    A row for each pair of objects and each upload as they were listed, and one for each attempt. Objects that no record
    names are inspected, and described by what that found. One thread at a time uses it.
    """

    def __init__(self) -> None:
        super().__init__(_TABLES)

    def _unpack(self, value: bytes) -> ListedPair:
        return _pair_of(unpacked(value))

    def add(self, pairs: Iterable[Pair]) -> None:
        """Add pairs as they were listed."""
        self.describe(ListedPair(number=self._new_number(), pair=pair) for pair in pairs)

    def add_upload(self, stale: StaleUpload) -> None:
        """Add an upload as it was listed."""
        key = parse_key(stale.upload.key)
        uuid = None if key is None else key.uuid.bytes
        self._file.execute(
            "INSERT INTO uploads VALUES (?, ?, ?, ?)",
            (stale.upload.key, uuid, stale.upload.upload_id, stale.started_at.timestamp()),
        )

    def name(self, topic: str, named: Iterable[NamedAttempt]) -> None:
        """Add the attempts that a topic's record names. One that two topics name counts as needed."""
        self._file.executemany(
            "INSERT INTO named VALUES (?, ?, ?, ?) ON CONFLICT (uuid) DO UPDATE SET naming = "  # noqa: S608
            f"CASE WHEN topic = excluded.topic THEN max(naming, excluded.naming) ELSE {_NEEDED} END",
            ((each.uuid.bytes, each.naming.value, topic, each.ledger_id) for each in named),
        )

    def describe(self, found: Iterable[ListedPair]) -> None:
        """Add the findings of these pairs."""
        self._keep((each.number, _row(each)) for each in found)

    def count_younger(self, than: datetime) -> int:
        """Count the pairs that no record needs and that are younger."""
        query = (
            "SELECT count(*) FROM objects LEFT JOIN named USING (uuid) "  # noqa: S608
            f"WHERE at > ? AND coalesce(naming, 0) != {_NEEDED}"
        )
        return int(self._rows(query, than.timestamp())[0][0])

    def latest(self) -> datetime | None:
        """Return when the youngest object was written."""
        (found,) = self._file.execute("SELECT max(at) FROM objects").fetchone()
        return None if found is None else _time(found)

    def unnamed(self, than: datetime) -> Iterator[list[ListedPair]]:
        """Yield the pairs that no record names and none of whose objects is younger, some at a time, by key."""
        condition = (
            "LEFT JOIN named USING (uuid) WHERE naming IS NULL AND at <= ? AND objects.id > ? "
            "ORDER BY objects.id LIMIT ?"
        )
        last = 0
        while some := list(self._values(condition, than.timestamp(), last, AT_ONCE)):
            last = some[-1].number
            yield some

    def described(self) -> Iterator[list[ListedPair]]:
        """Yield the pairs that were described and have a topic, those of one topic together, some at a time."""
        condition = (
            "WHERE managed_ledger IS NOT NULL AND (managed_ledger, key) > (?, ?) "
            "ORDER BY managed_ledger, key LIMIT ?"
        )
        last = ("", "")
        while some := list(self._values(condition, *last, AT_ONCE)):
            last = (some[-1].topic or "", some[-1].pair.key.data_key)
            yield some

    def not_needed(self, than: datetime) -> Iterator[list[tuple[ListedPair, Named]]]:
        """Yield the pairs that records name and do not need, and none of whose objects is younger."""
        condition = f"naming != {_NEEDED} AND at <= ? AND objects.id > ? ORDER BY objects.id LIMIT ?"
        last = 0
        while some := self._named(condition, than.timestamp(), last, AT_ONCE):
            last = some[-1][0].number
            yield some

    def uploads(self, than: datetime) -> Iterator[tuple[StaleUpload, Named | None]]:
        """Yield the uploads that were begun before, with how records name their attempts."""
        query = (
            "SELECT uploads.rowid, key, upload_id, started_at, naming, topic, ledger "
            "FROM uploads LEFT JOIN named USING (uuid) "
            "WHERE started_at <= ? AND uploads.rowid > ? ORDER BY uploads.rowid LIMIT 1000"
        )
        last = 0
        while rows := self._rows(query, than.timestamp(), last):
            last = rows[-1][0]
            for _, key, upload_id, started_at, *naming in rows:
                stale = StaleUpload(upload=Upload(key=key, upload_id=upload_id), started_at=_time(started_at))
                yield stale, None if naming[0] is None else _naming(naming)

    def needed(self, most: int) -> list[tuple[ListedPair, Named]]:
        """Return some of the whole pairs that records need."""
        return self._named(f"naming = {_NEEDED} AND is_whole GROUP BY named.topic LIMIT ?", most)

    def _named(self, condition: str, *given: object) -> list[tuple[ListedPair, Named]]:
        query = (
            "SELECT objects.id, naming, named.topic, ledger FROM objects JOIN named USING (uuid) "  # noqa: S608
            f"WHERE {condition}"
        )
        return [(self._value(number), _naming(naming)) for number, *naming in self._rows(query, *given)]

    def _rows(self, query: str, *given: object) -> list[Any]:
        return self._file.execute(query, given).fetchall()


def _row(found: ListedPair) -> SurveyRow:
    """Pack a pair as plain values, for there are as many as the tier has objects."""
    pair = found.pair
    beside = (pair.data_checksums, pair.index_checksums, pair.block_checksums) if pair.is_lone else ()
    listed = [
        each and (each.key, each.size_bytes, each.modified_at, each.storage_class)
        for each in (pair.data, pair.index, *beside)
    ]
    facts = (found.number, found.topic, found.cluster, found.is_sound, found.ledger_ids, found.is_placeholder)
    return SurveyRow(
        key=pair.key,
        packed=packed((pair.key.data_key, listed, facts)),
        managed_ledger=found.topic,
        at=found.youngest.timestamp(),
        is_whole=pair.data is not None and pair.index is not None,
    )


def _pair_of(row: tuple[str, list[Any], tuple[Any, ...]]) -> ListedPair:
    data_key, listed, facts = row
    key = parse_key(data_key)
    assert key is not None
    data, index, *beside = (None if each is None else _listed(*each) for each in listed)
    pair = Pair(key, data=data, index=index)
    if beside:
        pair.data_checksums, pair.index_checksums, pair.block_checksums = beside
    number, topic, cluster, is_sound, ledger_ids, is_placeholder = facts
    return ListedPair(
        number=number,
        pair=pair,
        topic=topic,
        cluster=cluster,
        is_sound=is_sound,
        ledger_ids=ledger_ids,
        is_placeholder=is_placeholder,
    )


def _listed(key: str, size_bytes: int, modified_at: datetime, storage_class: str | None) -> ListedObject:
    return ListedObject(key=key, size_bytes=size_bytes, modified_at=modified_at, storage_class=storage_class)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def _naming(row: Sequence[Any]) -> Named:
    naming, topic, ledger_id = row
    return Named(naming=Naming(naming), topic=topic, ledger_id=ledger_id)


_SAMPLES = 256
"""Objects that are inspected for their cluster, each of another topic."""


_Due = tuple[ListedPair, TopicName, ManagedLedgerInfo | None]
"""Objects to be judged, with their topic and its record as it is now."""

_Judgement = Callable[[GarbageJudge, ListedPair, TopicName, ManagedLedgerInfo | None], Garbage | Kept]


class Finder:
    """Finds garbage, step by step: `list_all`, `read_records`, `garbage`.

    Attributes:
        owners: of the objects, once records were read.
        unrecorded: topics that were listed and have no record, once records were read.
    """

    def __init__(
        self,
        tier: Tier,
        survey: GarbageSurvey,
        scope: Scope,
        summary: CollectionSummary,
        listener: Callable[[CollectionSummary], None],
        elsewhere: Sequence[Tier] = (),
    ) -> None:
        self._tier = tier
        self._elsewhere = elsewhere
        self._survey = survey
        self._scope = scope
        self._summary = summary
        self._listener = listener
        self._before = scope.before
        self._topics: frozenset[TopicName] = frozenset()
        self.owners = Owners(folder=scope.folder, clusters=(), is_shared=scope.is_shared)
        self.unrecorded: list[TopicName] = []

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

    def read_records(self, records: Records, topics: Sequence[TopicName]) -> None:
        """Read all records and add the attempts that they name. `StoreError`: they cannot be read."""
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
        """Return the clusters that objects name which records need, if they name the record's topic."""

        def look(needed: tuple[ListedPair, Named]) -> str | None:
            found, named = needed
            data = found.pair.data
            assert data is not None
            try:
                metadata = self._tier.stat(data.key).user_metadata
            except (StoreError, FormatError):
                return None
            is_its = metadata.get(TOPIC_KEY) == named.topic
            return metadata.get(CLUSTER_KEY) if is_its else None

        found = concurrently(look, self._survey.needed(_SAMPLES))
        return frozenset(cluster for cluster in found if cluster is not None)

    def garbage(self, records: Records) -> Iterator[Garbage]:
        """Yield all that nothing needs, by records as they are now."""
        for named in self._named(records):
            yield from self._judged(records, named, GarbageJudge.judge_named)
        self._describe_unnamed()
        for unnamed in self._unnamed(records):
            yield from self._judged(records, unnamed, GarbageJudge.judge_unnamed)
        yield from self._uploads(records)

    def _named(self, records: Records) -> Iterator[list[_Due]]:
        """Yield, some at a time, pairs that records name and do not need, that lie here and under no lease."""
        for some in self._survey.not_needed(self._before):
            due = [(found, topic_of_managed_ledger(named.topic)) for found, named in some]
            here = []
            for found, topic, info in self._with_records(records, due):
                if self.owners.is_elsewhere(found.pair.key):
                    self._summary.unknown[ELSEWHERE] += 1
                elif info is not None and is_under_way(info, found.pair.key.uuid, self._scope.now_ms()):
                    self._summary.live += 1
                else:
                    here.append((found, topic, info))
            yield here

    def _describe_unnamed(self) -> None:
        """Inspect what no record names: topics, clusters and ledgers."""
        for _, inspected in inspect_batches(self._survey.unnamed(self._before), self._inspect):
            described = []
            for found in inspected:
                if isinstance(found, OffloadError):
                    self._summary.fail(found)
                elif found is not None:
                    described.append(found)
            self._survey.describe(described)
            self._listener(self._summary)

    def _inspect(self, found: ListedPair) -> ListedPair | OffloadError | None:
        examined = try_examine(self._tier, found.pair)
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
            is_placeholder=examined.marks.is_placeholder and not self._scope.takes_stand_ins,
        )

    def _unnamed(self, records: Records) -> Iterator[list[_Due]]:
        """Yield, some at a time, pairs that no record names and that are the records' cluster's."""
        for some in self._survey.described():
            due = []
            for found in some:
                if not found.topic:
                    self._summary.nameless += 1
                    continue
                topic = topic_of_managed_ledger(found.topic)
                why = self.owners.why_not_ours(found)
                if why is None:
                    due.append((found, topic))
                elif self._scope.is_chosen(topic):
                    self._summary.unknown[why] += 1
            yield self._with_records(records, due)

    def _with_records(self, records: Records, due: Iterable[tuple[ListedPair, TopicName]]) -> list[_Due]:
        """Return the pairs of topics that are asked for, with records that are readable."""
        due = [(found, topic) for found, topic in due if self._scope.is_chosen(topic)]
        infos = self._read(records, dict.fromkeys(topic for _, topic in due))
        return [(found, topic, infos[topic]) for found, topic in due if topic in infos]

    def _judged(self, records: Records, due: Sequence[_Due], by: _Judgement) -> Iterator[Garbage]:
        judge = GarbageJudge(self._tier, self.owners.folder, self._elsewhere, self._before)

        def judged(each: _Due) -> Garbage | Kept | OffloadError:
            try:
                return by(judge, *each)
            except StoreError as error:
                return error.at(key=each[0].pair.key.data_key)

        for found, (listed, *_) in zip(concurrently(judged, due), due, strict=True):
            if isinstance(found, OffloadError):
                self._summary.fail(found)
            elif isinstance(found, Kept):
                self._count_kept(found, listed)
            elif found.kind is GarbageKind.DELETED_TOPIC and records.why_incomplete is not None:
                self._summary.unknown["its topic has no record here, which may be elsewhere"] += 1
            else:
                yield found

    def _count_kept(self, kept: Kept, found: ListedPair) -> None:
        if kept.is_unknown:
            self._summary.unknown[kept.why] += 1
        else:
            self._summary.kept[kept.why] += 1
            self._summary.kept_bytes[kept.why] += sum(each.size_bytes for each in objects_of(found.pair))

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
        """Return the records of these topics as they are now, None where there is none, without unreadable ones."""
        asked = list(topics)
        known = asked if records.why_incomplete is None else [each for each in asked if each in self._topics]
        found = {topic: _readable(info) for topic, info in read_each(records, known)}
        self._summary.kept["its topic's record cannot be read"] += sum(
            isinstance(info, FormatError) for info in found.values()
        )
        infos = {topic: found.get(topic) for topic in asked}
        return {topic: info for topic, info in infos.items() if not isinstance(info, FormatError)}


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
    named = info if isinstance(info, FormatError) else _namings(info)
    return named if isinstance(named, FormatError) else info


def _checked(managed_ledger: str | None) -> str:
    """Return the name that objects have; empty for one that no record can have."""
    try:
        if managed_ledger is not None:
            record_path(managed_ledger_of_topic(topic_of_managed_ledger(managed_ledger)))
            return managed_ledger
    except OptionError:
        pass
    return ""
