"""Copies judged by records: recorded copies against stored objects, and copies that no record names.

The tier was listed before the records are read: that an object is missing which a record names is doubtful, and is
looked up once more by the caller. Without records the choice is that of readers: the newest whole copy; without one,
of segments that begin with the same entry the newest. A copy that is to take another's place supersedes none, nor is
it superseded: records may name either. Of a topic's first ledger here the beginning may have been trimmed. Source:
docs/formats/metadata.md, offload_core/metadata/catalogue/model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.verify.codes import Code
from offload_core.maintenance.verify.findings import Doubtful, Finding
from offload_core.maintenance.verify.pair_checks import LedgerExtent
from offload_core.maintenance.verify.verification_survey import StoredPair, VerificationSurvey
from offload_core.metadata.catalogue import RecordedCopy, TopicName, recorded_copies
from offload_core.metadata.catalogue.copy_check import Mismatch, MismatchKind, check_coverage, find_mismatches
from offload_core.metadata.catalogue.known_tiers import is_another_place, place_text, tier_record
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
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
        """Yield what is wrong with a topic's ledgers; the objects that they name are noted in the survey."""
        for record in info.in_order:
            yield from self._check_ledger(topic, record)
        for copy in other_copies(info):
            yield from self._check_other(topic, info, copy)
        needed = {each.ledger_id for each in info.ledgers if not each.is_marked_for_deletion}
        self.survey.spare(managed_ledger_of_topic(topic), needed)

    def _check_other(self, topic: TopicName, info: ManagedLedgerInfo, copy: OtherCopy) -> Iterator[Finding]:
        """A copy that is not read: nothing of one that was replaced; of an attempt, what it left."""
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
        """An attempt that is not to be read: whether something was left of it."""
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
        """Nothing has the key that a complete copy must have."""
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
            what=code.meaning,
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
"""Of kinds that have none, what is wrong is told of the objects themselves."""


def _code_of_first(stored: StoredPair, mismatch: Mismatch) -> Code:
    """Of a copy that begins with another entry than its record says: it lacks entries, or has more."""
    if stored.key.ledger_id is not None:
        return Code.RECORD_ENTRIES
    return Code.SEGMENT_GAP if mismatch.lacks else Code.SEGMENT_OVERLAP


def _check_coverage(say: _Saying) -> Iterator[Finding]:
    """Yield whether the segments have all that the record says is offloaded, or hot no more."""
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


Copy = tuple[StoredPair, LedgerExtent]
"""A ledger's entries in one object."""

HasBroken = Callable[[str | None, str | None], bool]


def check_copies(copies: Iterable[Copy], has_broken: HasBroken) -> Iterator[Finding]:
    """Yield what is wrong with the copies of ledgers; those of one ledger together, segments by their first entries.

    `has_broken` tells of cluster and managed ledger whether there are objects with unknown contents.
    """
    topic_before: tuple[str | None, str | None] | None = None
    for (cluster, managed_ledger, _), of_ledger in groupby(copies, key=_ledger_of):
        is_first, topic_before = (cluster, managed_ledger) != topic_before, (cluster, managed_ledger)
        if cluster is None and managed_ledger is None:
            continue  # ids of two clusters collide: nothing tells whether these are of one ledger
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
    if not (copy[0].stands_in or newest[0].stands_in):
        found = f"a newer copy in {newest[0].key.data_key}"
        yield _finding(Code.SUPERSEDED, copy, expected=None, found=found)


def _finding(
    code: Code, copy: Copy, *, expected: str | None, found: str, entry_id: int | None = None
) -> Finding:
    return Finding(
        code=code,
        what=code.meaning,
        key=copy[0].key.data_key,
        ledger_id=copy[1].ledger_id,
        entry_id=entry_id,
        expected=expected,
        found=found,
    )
