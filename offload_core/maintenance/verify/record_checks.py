"""Judgement of recorded copies against stored objects, and of copies that no record names; the survey of both.

The tier is listed before the records are read: that an object is missing which a record names is doubtful, and is
looked up once more by the caller. Without records the choice is that of readers: the newest whole copy; without one,
of segments that begin with the same entry the newest. A replacement supersedes no copy, nor is it superseded: records
may name either. Of a topic's first ledger here the beginning may have been trimmed. Source: docs/formats/metadata.md,
offload_core/metadata/catalogue/model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import groupby
from uuid import UUID

from offload_core.format.codec.index import LedgerIndex, ObjectIndex
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey, parse_key
from offload_core.maintenance.verify.findings import Code, Doubtful, Finding
from offload_core.maintenance.verify.pair_checks import Examined, LedgerFacts
from offload_core.metadata.catalogue import RecordedCopy, TopicName, recorded_copies
from offload_core.metadata.catalogue.copy_check import (
    CopyStat,
    Mismatch,
    MismatchKind,
    check_coverage,
    find_mismatches,
    with_end,
)
from offload_core.metadata.catalogue.known_tiers import is_another_place, place_text, tier_record
from offload_core.metadata.catalogue.listing import Pair
from offload_core.metadata.catalogue.survey import Survey, SurveyRow, packed, unpacked
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.records import (
    AttemptStatus,
    LedgerRecord,
    ManagedLedgerInfo,
    OtherCopy,
    OtherRole,
    other_copies,
)
from offload_core.metadata.records.attempts import lease_of
from offload_core.metadata.records.segments import covered_stop, shares_of
from offload_core.storage.tier import Tier

RECENT_MS = 600_000
"""A broker's attempt has no lease; if its objects are younger, it may be about to be recorded as complete."""


_TABLES = """
    CREATE TABLE lone_checksums (key TEXT, checksums TEXT);
    CREATE TABLE standing_in (managed_ledger TEXT, object INTEGER);
    CREATE INDEX broken ON objects (managed_ledger, cluster) WHERE NOT is_whole;
    CREATE INDEX by_topic ON standing_in (managed_ledger);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPair:
    """A pair of objects.

    Attributes:
        number: in the survey.
        key: of the data object, whether that exists or not.
        is_sound: both objects exist and fit each other.
        last_ledger_id: the last of the ledgers in it; None if it is not sound.
        is_placeholder: it was made as a replacement of a copy that records may still name.
        is_spared: a ledger of it is recorded, so that they may.
        stat: of its data object; None without one.
        data_length: of the data object by the index; None if it is not sound.
    """

    number: int
    key: ObjectKey
    cluster: str | None
    managed_ledger: str | None
    has_data: bool
    has_index: bool
    is_sound: bool
    has_gaps: bool
    modified_at: float
    last_ledger_id: int | None
    is_placeholder: bool
    stat: CopyStat | None
    data_length: int | None
    is_spared: bool = False


class VerificationSurvey(Survey[StoredPair]):
    """The objects of a tier while it is verified; a context manager."""

    def __init__(self) -> None:
        super().__init__(_TABLES)

    def add(self, found: Examined) -> int:
        """Add a pair; return its number."""
        pair, number = found.pair, self._new_number()
        index = found.abridged
        stored = StoredPair(
            number=number,
            key=_key(found.key.data_key),
            cluster=found.cluster,
            managed_ledger=found.managed_ledger,
            has_data=pair.data is not None,
            has_index=pair.index is not None,
            is_sound=found.is_sound,
            has_gaps=found.marks.skips_ids,
            modified_at=max(
                each.modified_at.timestamp() for each in (pair.index, pair.data) if each is not None
            ),
            last_ledger_id=max((each.ledger_id for each in found.extents), default=None),
            is_placeholder=found.marks.is_placeholder,
            stat=found.stat,
            data_length=None if index is None else index.data_length,
        )
        self._keep([(number, _row(stored))])
        if stored.is_placeholder:
            self._file.execute("INSERT INTO standing_in VALUES (?, ?)", (stored.managed_ledger, number))
        self._keep_ledgers(
            (number, extent.ledger_id, extent.first_entry_id, packed((extent, ledger)))
            for extent, ledger in zip(found.extents, () if index is None else index.ledgers, strict=True)
        )
        return number

    def add_lone_checksums(self, pairs: Iterable[Pair]) -> None:
        """Add checksum files that lie beside nothing."""
        rows = [(pair.key.data_key, each.key) for pair in pairs for each in pair.checksums]
        self._file.executemany("INSERT INTO lone_checksums VALUES (?, ?)", rows)

    def set_stop(self, number: int, ledger_id: int, stop_entry_id: int) -> None:
        """Set the end of a ledger's entries in an object, now that they have been counted."""
        found = self._ledger(number, ledger_id)
        if found is not None:
            extent, ledger = found
            changed = packed((replace(extent, stop_entry_id=stop_entry_id), ledger))
            self._file.execute(
                "UPDATE ledgers SET packed = ? WHERE object = ? AND ledger = ?", (changed, number, ledger_id)
            )

    def set_recorded(self, numbers: Sequence[int]) -> None:
        """Mark pairs that a record names."""
        self._file.executemany(
            "UPDATE objects SET is_recorded = 1 WHERE id = ?", [(number,) for number in numbers]
        )

    def spare(self, managed_ledger: str, ledger_ids: AbstractSet[int]) -> None:
        """Mark replacements of copies of these ledgers, which a topic's record has: they are needed."""
        query = "SELECT object, ledger FROM standing_in JOIN ledgers USING (object) WHERE managed_ledger = ?"
        found = self._file.execute(query, (managed_ledger,)).fetchall()
        spared = {number for number, ledger_id in found if ledger_id in ledger_ids}
        self._keep((number, _row(replace(self._value(number), is_spared=True))) for number in spared)

    def of_uuid(self, uuid: UUID) -> list[StoredPair]:
        """Return the pairs of an attempt, in any folder."""
        return list(self._values("WHERE uuid = ?", uuid.bytes))

    def copy(self, stored: StoredPair, ledger_id: int) -> tuple[CopyStat | None, ObjectIndex | None]:
        """Return a pair's data object and a ledger's index there, for `check_copy`; no index if it is not sound."""
        if stored.data_length is None:
            return stored.stat, None
        found = self._ledger(stored.number, ledger_id)
        ledgers = () if found is None else (with_end(found[1], found[0].stop_entry_id),)
        return stored.stat, ObjectIndex(
            object_format=stored.key.object_format, data_length=stored.data_length, ledgers=ledgers
        )

    def _ledger(self, number: int, ledger_id: int) -> tuple[LedgerFacts, LedgerIndex] | None:
        query = "SELECT packed FROM ledgers WHERE object = ? AND ledger = ?"
        row = self._file.execute(query, (number, ledger_id)).fetchone()
        return None if row is None else unpacked(row[0])

    def clusters_of_recorded(self) -> set[str]:
        """Return the clusters that recorded objects name."""
        query = "SELECT DISTINCT cluster FROM objects WHERE is_recorded AND cluster IS NOT NULL"
        return {cluster for (cluster,) in self._file.execute(query)}

    def has_broken(self, cluster: str | None, managed_ledger: str | None) -> bool:
        """Return whether a topic has objects with unknown contents."""
        query = "SELECT 1 FROM objects WHERE NOT is_whole AND managed_ledger IS ? AND cluster IS ? LIMIT 1"
        return self._file.execute(query, (managed_ledger, cluster)).fetchone() is not None

    def unrecorded(self) -> Iterator[StoredPair]:
        """Yield the pairs that no record names, by key."""
        return self._values("WHERE NOT is_recorded ORDER BY key")

    def lone_checksums(self) -> Iterator[tuple[ObjectKey, str]]:
        """Yield the keys of missing data objects and of their checksum files, in the order of the listing."""
        rows = self._file.execute("SELECT key, checksums FROM lone_checksums ORDER BY rowid")
        return ((_key(key), checksums) for key, checksums in rows)

    def unrecorded_ledgers(self) -> Iterator[tuple[StoredPair, LedgerFacts]]:
        """Yield the ledgers of sound pairs that no record names, in order of cluster, topic and ledger."""
        query = (
            "SELECT object, ledger FROM objects JOIN ledgers ON object = id "
            "WHERE NOT is_recorded ORDER BY cluster, managed_ledger, ledger, first, at, key"
        )
        for number, ledger_id in self._file.execute(query):
            found = self._ledger(number, ledger_id)
            assert found is not None
            yield self._value(number), found[0]


def _key(data_key: str) -> ObjectKey:
    parsed = parse_key(data_key)
    assert parsed is not None
    return parsed


def _row(stored: StoredPair) -> SurveyRow:
    return SurveyRow(
        key=stored.key,
        packed=packed(stored),
        managed_ledger=stored.managed_ledger,
        cluster=stored.cluster,
        at=stored.modified_at,
        is_whole=stored.is_sound,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCheck:
    """Compares records with a survey of the tier.

    Attributes:
        folder: that the objects lie in, with its `/`.
        now_ms: the time, since 1970, UTC: leases that are over by then are none.
    """

    tier: Tier
    survey: VerificationSurvey
    folder: str
    now_ms: Callable[[], int]

    def check(self, topic: TopicName, info: ManagedLedgerInfo) -> Iterator[Finding | Doubtful]:
        """Yield faults of a topic's ledgers; the objects that they name are noted in the survey."""
        for record in info.in_order:
            yield from self._check_ledger(topic, record)
        for copy in other_copies(info):
            yield from self._check_other(topic, info, copy)
        needed = {each.ledger_id for each in info.ledgers if not each.is_marked_for_deletion}
        self.survey.spare(managed_ledger_of_topic(topic), needed)

    def _check_other(self, topic: TopicName, info: ManagedLedgerInfo, copy: OtherCopy) -> Iterator[Finding]:
        """Yield objects of an attempt at a replacement; nothing for a copy that was replaced."""
        named = self.survey.of_uuid(copy.uuid)
        self.survey.set_recorded([each.number for each in named])
        lease = lease_of(copy.driver)
        is_alive = lease is not None and lease.until_ms > self.now_ms()
        record = info.ledger(copy.ledger_ids[0])
        if copy.role is OtherRole.REPLACED or is_alive or record is None:
            return
        recent = (self.now_ms() - RECENT_MS) / 1000
        for each in named:
            if copy.is_abandoned or each.modified_at < recent:
                code = Code.FAILED if copy.is_abandoned else Code.UNFINISHED
                yield _Saying(topic=topic, record=record).finding(code, key=each.key.data_key)

    def _check_ledger(self, topic: TopicName, record: LedgerRecord) -> Iterator[Finding | Doubtful]:
        say = _Saying(topic=topic, record=record)
        for copy in recorded_copies(topic, record, self.folder):
            named = self.survey.of_uuid(copy.key.uuid)
            self.survey.set_recorded([each.number for each in named])
            if record.is_marked_for_deletion or copy.unfinished is not None:
                yield from self._check_unfinished(say, copy, named)
            else:
                yield from self._check_complete(say, copy, named)
        yield from _check_coverage(say)

    def _check_unfinished(
        self, say: _Saying, copy: RecordedCopy, named: list[StoredPair]
    ) -> Iterator[Finding]:
        """Yield objects of an attempt that is not read."""
        lease = lease_of(copy.driver)
        if lease is not None and lease.until_ms > self.now_ms():
            return
        share = next((each for each in shares_of(say.record) if each.uuid == copy.key.uuid), None)
        code = Code.UNFINISHED
        if say.record.is_marked_for_deletion:
            code = Code.CONDEMNED
        elif share is not None and share.status is AttemptStatus.FAILED:
            code = Code.FAILED
        recent = (self.now_ms() - RECENT_MS) / 1000
        for each in named:
            if code is not Code.UNFINISHED or each.modified_at < recent:
                yield say.finding(code, key=each.key.data_key)

    def _check_complete(
        self, say: _Saying, copy: RecordedCopy, named: list[StoredPair]
    ) -> Iterator[Finding | Doubtful]:
        keys = {copy.key, copy.mapfile_key}
        right = [each for each in named if each.key in keys or _same_but_folder(each, copy)]
        if not right:
            yield from self._without_object(say, copy, named)
            return
        stored = right[0]
        stat, index = self.survey.copy(stored, say.record.ledger_id)
        found = replace(copy, key=stored.key, mapfile_key=None)
        for mismatch in find_mismatches(say.record, found, stat, index):
            yield from _told(say, stored, mismatch)

    def _without_object(
        self, say: _Saying, copy: RecordedCopy, named: list[StoredPair]
    ) -> Iterator[Finding | Doubtful]:
        """Yield findings about a complete copy whose key no object has."""
        for other in named:
            if other.key.object_format is not copy.key.object_format and copy.mapfile_key is None:
                yield say.finding(
                    Code.RECORD_OTHER_FORMAT,
                    key=other.key.data_key,
                    expected=f"{copy.key.object_format.value} by the record",
                    found=f"{other.key.object_format.value} by the key",
                )
            else:
                yield say.finding(
                    Code.OTHER_LEDGER,
                    key=other.key.data_key,
                    expected=f"ledger {copy.ledger_id}",
                    found=f"ledger {other.key.ledger_id}",
                )
        if named:
            return
        keys = tuple(key for key in (copy.key, copy.mapfile_key) if key is not None)
        ours, key = tier_record(self.tier), copy.key.data_key
        if copy.driver is not None and is_another_place(ours, copy.driver):
            finding = say.finding(
                Code.ELSEWHERE, key=key, expected=place_text(ours), found=place_text(copy.driver)
            )
        else:
            code = Code.NO_OBJECT if say.record.has_hot_copy else Code.LOST
            finding = say.finding(code, key=key, found="nothing")
        absent = tuple(name for each in keys for name in (each.data_key, each.index_key))
        yield Doubtful(finding=finding, absent=absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saying:
    topic: TopicName
    record: LedgerRecord

    def finding(
        self,
        code: Code,
        *,
        key: str | None = None,
        entry_id: int | None = None,
        expected: str | None = None,
        found: str | None = None,
    ) -> Finding:
        """A finding about the ledger."""
        return Finding(
            code=code,
            topic=str(self.topic),
            key=key,
            ledger_id=self.record.ledger_id,
            entry_id=entry_id,
            expected=expected,
            found=found,
        )


def _same_but_folder(stored: StoredPair, copy: RecordedCopy) -> bool:
    key = stored.key
    return (key.ledger_id, key.is_mapfile) == (copy.key.ledger_id, copy.key.is_mapfile) and not key.is_mapfile


def _told(say: _Saying, stored: StoredPair, mismatch: Mismatch) -> Iterator[Finding | Doubtful]:
    """Yield what a mismatch of a complete copy is in a report."""
    kind, key = mismatch.kind, stored.key.data_key
    if kind is MismatchKind.NO_DATA:
        yield Doubtful(finding=say.finding(Code.NO_DATA, key=key), absent=(key,))
        if not say.record.has_hot_copy:
            lost = say.finding(Code.LOST, key=key, found="an index without data")
            yield Doubtful(finding=lost, absent=(key,))
        return
    if kind is MismatchKind.NO_INDEX and not stored.has_index:
        yield Doubtful(finding=say.finding(Code.NO_INDEX, key=key), absent=(stored.key.index_key,))
        return
    code = _CODES.get(kind)
    if kind is MismatchKind.FIRST_ENTRY:
        code = _code_of_first(stored, mismatch)
    if code is None or (code is Code.RECORD_ENTRIES and not say.record.info.is_closed):
        return
    bare = code is Code.BROKEN_COPY
    yield say.finding(
        code,
        key=key,
        entry_id=None if bare else mismatch.entry_id,
        expected=None if bare else mismatch.expected,
        found=None if bare else mismatch.found,
    )


_CODES = {
    MismatchKind.NO_INDEX: Code.BROKEN_COPY,
    MismatchKind.DAMAGED: Code.BROKEN_COPY,
    MismatchKind.OTHER_TOPIC: Code.OTHER_TOPIC,
    MismatchKind.OTHER_LEDGER: Code.OTHER_LEDGER,
    MismatchKind.NO_BLOCK: Code.OTHER_LEDGER,
    MismatchKind.BEYOND_END: Code.SEGMENT_END,
    MismatchKind.LAST_ENTRY: Code.SEGMENT_END,
    MismatchKind.ENTRIES: Code.RECORD_ENTRIES,
    MismatchKind.MORE_ENTRIES: Code.RECORD_ENTRIES,
    MismatchKind.SIZE: Code.RECORD_SIZE,
    MismatchKind.FILTER: Code.RECORD_FILTER,
}
"""The other kinds are findings about the objects themselves."""


def _code_of_first(stored: StoredPair, mismatch: Mismatch) -> Code:
    """Return whether a copy that begins with another entry than by its record lacks entries, or has more."""
    if stored.key.ledger_id is not None:
        return Code.RECORD_ENTRIES
    return Code.SEGMENT_GAP if mismatch.lacks else Code.SEGMENT_OVERLAP


def _check_coverage(say: _Saying) -> Iterator[Finding]:
    """Check that the segments have all entries that are recorded as offloaded or no longer hot."""
    record, context = say.record, say.record.context
    if context is None or record.is_marked_for_deletion:
        return
    mismatch, covered = check_coverage(record), covered_stop(record)
    if mismatch is not None and not record.has_hot_copy:
        yield say.finding(
            Code.LOST, entry_id=mismatch.entry_id, expected=mismatch.expected, found=mismatch.found
        )
    elif context.complete and record.info.is_closed and not record.is_fully_offloaded:
        yield say.finding(
            Code.FALSE_COMPLETE,
            entry_id=covered,
            expected=f"complete segments up to entry {(record.info.entries or 0) - 1}",
            found=f"up to entry {covered - 1}",
        )


Copy = tuple[StoredPair, LedgerFacts]
"""A ledger's entries in one object."""

HasBroken = Callable[[str | None, str | None], bool]


def check_copies(copies: Iterable[Copy], has_broken: HasBroken) -> Iterator[Finding]:
    """Yield faults of the copies of ledgers; those of one ledger together, segments by their first entries.

    `has_broken` states whether a cluster's managed ledger has objects with unknown contents.
    """
    topic_before: tuple[str | None, str | None] | None = None
    for (cluster, managed_ledger, _), of_ledger in groupby(copies, key=_ledger_of):
        is_first, topic_before = (cluster, managed_ledger) != topic_before, (cluster, managed_ledger)
        if cluster is None and managed_ledger is None:
            continue  # ids of two clusters collide: these may be of two ledgers
        found = list(of_ledger)
        whole = [each for each in found if each[0].key.object_format is not ObjectFormat.STREAMING]
        segments = [each for each in found if each[0].key.object_format is ObjectFormat.STREAMING]
        if whole:
            yield from _check_whole(whole, segments)
        else:
            is_first = is_first and managed_ledger is not None and not has_broken(cluster, managed_ledger)
            yield from _check_segments(segments, is_first=is_first)


def _ledger_of(copy: Copy) -> tuple[str | None, str | None, int]:
    return copy[0].cluster, copy[0].managed_ledger, copy[1].ledger_id


def _age(copy: Copy) -> tuple[float, str]:
    return copy[0].modified_at, copy[0].key.data_key


def _check_whole(whole: Sequence[Copy], segments: Sequence[Copy]) -> Iterator[Finding]:
    *older, newest = sorted(whole, key=_age)
    for copy in older:
        if copy[1].entries != newest[1].entries and not (copy[0].has_gaps or newest[0].has_gaps):
            yield _finding(
                Code.COPIES_DIFFER,
                copy,
                expected=f"{newest[1].entries} entries as in {newest[0].key.data_key}",
                found=f"{copy[1].entries} entries",
            )
        else:
            yield from _superseded(copy, newest)
    for copy in segments:
        yield from _superseded(copy, newest)


def _check_segments(segments: Sequence[Copy], *, is_first: bool) -> Iterator[Finding]:
    chosen: list[Copy] = []
    for _, same in groupby(segments, key=lambda copy: copy[1].first_entry_id):
        *older, newest = sorted(same, key=_age)
        for copy in older:
            yield from _superseded(copy, newest)
        chosen.append(newest)
    # What was trimmed stays in an object as long as a later ledger is in it.
    may_be_trimmed = is_first and (chosen[0][0].last_ledger_id or 0) > chosen[0][1].ledger_id
    stop: int | None = chosen[0][1].first_entry_id if may_be_trimmed else 0
    has_gaps = False
    for copy in chosen:
        first = copy[1].first_entry_id
        has_gaps |= copy[0].has_gaps
        if stop is not None and first > stop and not has_gaps:
            yield _finding(
                Code.GAP, copy, entry_id=stop, expected=f"entry {stop}", found=f"entries from {first} on"
            )
        elif stop is not None and first < stop:
            yield _finding(
                Code.OVERLAP, copy, entry_id=first, expected=f"entries from {stop} on", found=f"entry {first}"
            )
        has_gaps = copy[0].has_gaps
        stop = copy[1].stop_entry_id


def _superseded(copy: Copy, newest: Copy) -> Iterator[Finding]:
    if not (copy[0].is_placeholder or newest[0].is_placeholder):
        found = f"a newer copy in {newest[0].key.data_key}"
        yield _finding(Code.SUPERSEDED, copy, expected=None, found=found)


def _finding(
    code: Code, copy: Copy, *, expected: str | None, found: str, entry_id: int | None = None
) -> Finding:
    name = copy[0].managed_ledger
    return Finding(
        code=code,
        topic=None if name is None else str(topic_of_managed_ledger(name)),
        key=copy[0].key.data_key,
        ledger_id=copy[1].ledger_id,
        entry_id=entry_id,
        expected=expected,
        found=found,
    )
