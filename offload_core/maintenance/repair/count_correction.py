"""Correction of records with wrong counts: count the ledgers' copies, judge, and correct records that are ours.

Only copies of which every byte is right are counted. A copy has the right counts if it has every entry from 0 on, its
index states that these are all, and none was lost or filtered. A record is changed by compare-and-set, and only if it
is as it was judged, with the copies that were counted; one that changed meanwhile is judged anew. Source:
docs/repair.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from offload_core.maintenance.repair.damage_judging import AS_WRITTEN
from offload_core.maintenance.repair.offloading_again import why_hot_forbids
from offload_core.maintenance.repair.repair_plan import (
    Action,
    Choice,
    CorrectedCounts,
    OpenRecords,
    PlannedRepair,
    Repaired,
)
from offload_core.maintenance.verify import Finding
from offload_core.maintenance.verify.deep import check_data
from offload_core.maintenance.verify.pair_checks import Examined, LedgerFacts, examine
from offload_core.metadata.catalogue import RecordedCopy, TopicName, parse_topic, recorded_copies
from offload_core.metadata.catalogue.listing import find_pair
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import LedgerRecord
from offload_core.metadata.records.ledger_changes import LedgerCounts, copies_read, correct_counts, counts_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.executors import Executor
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import AttemptError, OffloadError, StoreError, UnknownTopicError
from offload_hooks.ledger_stores import LedgerStore


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTask:
    """A ledger whose cold copies are to be counted, in the order of its entries."""

    topic: TopicName
    ledger_id: int
    copies: tuple[RecordedCopy, ...]

    @classmethod
    def of(cls, topic: TopicName, ledger: LedgerRecord, folder: str = "") -> CountTask:
        """The task for a ledger; without copies if it is not read from complete ones."""
        named = copies_read(ledger)
        found = {copy.key.uuid: copy for copy in recorded_copies(topic, ledger, folder)}
        return cls(
            topic=topic,
            ledger_id=ledger.ledger_id,
            copies=tuple(found[uuid] for uuid in named if uuid in found),
        )

    @property
    def uuids(self) -> tuple[UUID, ...]:
        """The attempts."""
        return tuple(copy.key.uuid for copy in self.copies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Result of a task.

    Attributes:
        counts: None if the copies do not have them, for the reason in `why`.
        failure: why it could not be counted.
    """

    counts: LedgerCounts | None = None
    why: str = ""
    failure: OffloadError | None = None


class _UncountableError(Exception):
    """The copies do not have the counts."""


def count_ledger(tier: Tier, task: CountTask) -> Counted:
    """Count one ledger; an error of the store is in the result."""
    try:
        return Counted(counts=_count(tier, task))
    except _UncountableError as why:
        return Counted(why=str(why))
    except StoreError as error:
        return Counted(failure=error.at(ledger_id=task.ledger_id))


def _count(tier: Tier, task: CountTask) -> LedgerCounts:
    stop = size = 0
    last: LedgerFacts | None = None
    for copy in task.copies:
        pairs = (find_pair(tier, key) for key in (copy.key, copy.mapfile_key) if key is not None)
        pair = next((each for each in pairs if each is not None), None)
        examined = None if pair is None else examine(tier, pair)
        if examined is None:
            raise _UncountableError("its copy is not here")
        last, (end, payload_bytes) = _count_copy(tier, task.ledger_id, examined, stop)
        stop, size = end, size + payload_bytes
    if last is None:
        raise _UncountableError("it is not read from complete copies")
    if last.entries != stop:
        raise _UncountableError("its copy does not tell that it has all of its entries")
    if last.size is not None and last.size != size:
        raise _UncountableError("the index of its copy counts other bytes")
    return LedgerCounts(entries=stop, size_bytes=size)


def _count_copy(
    tier: Tier, ledger_id: int, examined: Examined, begin: int
) -> tuple[LedgerFacts, tuple[int, int]]:
    """Return the index's facts of one copy, one past its last entry, and the bytes of its entries."""
    if examined.marks.lost is not None:
        raise _UncountableError("its copy lacks entries that were lost")
    if examined.marks.is_filtered or examined.marks.has_gaps:
        raise _UncountableError("its copy went through a filter, and does not tell what the ledger had")
    facts = next((each for each in examined.extents if each.ledger_id == ledger_id), None)
    if not examined.is_sound or facts is None:
        raise _UncountableError("its copy is damaged: that is repaired first")
    result = check_data(tier, examined)
    found = next((each for each in result.counts if each.ledger_id == ledger_id), None)
    if result.is_gone or found is None or any(each.code not in AS_WRITTEN for each in result.findings):
        raise _UncountableError("its copy is damaged: that is repaired first")
    stop = found.stop_entry_id
    if facts.first_entry_id != begin or stop is None or found.entries != stop - begin:
        raise _UncountableError("its copies do not have every entry once")
    return facts, (stop, found.payload_bytes)


_TRIES = 10


class CountCorrection:
    """Corrects counts in records.

    Args:
        records: opens the records; None for none.
        ours: the same where they can be written.
        hot: the hot tier, which is asked if a hot copy exists; None where it is not known.
        executor: who counts.
        folder: that the objects lie in, with its `/`.
    """

    def __init__(
        self,
        tier: Tier,
        records: OpenRecords | None,
        ours: ManagedLedgerRecords | None,
        hot: LedgerStore | None,
        executor: Executor,
        *,
        folder: str = "",
    ) -> None:
        self._work = partial(count_ledger, tier)
        self._records = records
        self._ours = ours
        self._hot = hot
        self._executor = executor
        self._folder = folder

    def plan(self, findings: Sequence[Finding]) -> Iterator[PlannedRepair]:
        """Plan the repairs for these findings of counts. `StoreError` of the records."""
        by_ledger: dict[tuple[str, int], list[Finding]] = {}
        for finding in findings:
            assert finding.topic is not None
            assert finding.ledger_id is not None
            by_ledger.setdefault((finding.topic, finding.ledger_id), []).append(finding)
        wanted = list(self._read(by_ledger))
        tasks = [CountTask.of(topic, ledger, self._folder) for topic, ledger in wanted]
        for (topic, ledger), counted in zip(wanted, self._executor.run(self._work, tasks), strict=True):
            found = by_ledger[str(topic), ledger.ledger_id]
            yield self._planned(topic, ledger, tuple(found), counted)

    def correct(self, planned: PlannedRepair, audit: AuditLog) -> Repaired:
        """Correct one record, if it still is wrong.

        Raises:
            AttemptError: it was changed each time that it was judged.
            StoreError: of a store, or the audit log.
        """
        assert planned.counts is not None
        assert planned.recorded is not None
        topic, ledger_id = parse_topic(planned.recorded), planned.counts.ledger_id
        ours = self._ours
        if ours is None:
            return Repaired(planned=planned)
        name = managed_ledger_of_topic(topic)
        for is_last in (*[False] * _TRIES, True):
            read = ours.read(name)
            ledger = None if read is None else read.info.ledger(ledger_id)
            if ledger is None:
                return Repaired(planned=planned)
            task = CountTask.of(topic, ledger, self._folder)
            now = self._planned(topic, ledger, planned.findings, self._work(task))
            if now.failure is not None:
                raise now.failure
            counts = now.counts
            if counts is None or not now.changes:
                return Repaired(planned=planned, corrected=ledger.info.is_closed and counts is None)
            audit.record(
                Change(
                    action=ChangeAction.RECORD,
                    why="its counts are not those of its copy, which is right",
                    managed_ledger=name,
                    ledger_id=ledger_id,
                    uuid=task.uuids[0],
                    before=str(counts.before),
                    after=str(counts.after),
                )
            )
            change = partial(
                correct_counts,
                ledger_id=ledger_id,
                copies=task.uuids,
                before=counts.before,
                counts=counts.after,
            )
            try:
                ours.update(name, change)
            except (AttemptError, UnknownTopicError):
                if is_last:
                    raise
                continue
            return Repaired(planned=planned, corrected=True)
        raise AssertionError("the last turn returns or raises")

    def _read(self, wanted: Iterable[tuple[str, int]]) -> Iterator[tuple[TopicName, LedgerRecord]]:
        if self._records is None:
            return
        with self._records() as records:
            for text, ledger_id in wanted:
                topic = parse_topic(text)
                info = records.read([topic]).get(topic)
                ledger = None if info is None else info.ledger(ledger_id)
                if ledger is not None:
                    yield topic, ledger

    def _planned(
        self, topic: TopicName, ledger: LedgerRecord, findings: tuple[Finding, ...], counted: Counted
    ) -> PlannedRepair:
        planned = partial(PlannedRepair, key=findings[0].key, findings=findings, recorded=str(topic))
        failure, counts = counted.failure, None
        action, why = Action.LEAVE, f"nothing tells which is right: {counted.why}"
        if counted.counts is not None:
            before = counts_of(ledger)
            if before != counted.counts:
                counts = CorrectedCounts(ledger_id=ledger.ledger_id, before=before, after=counted.counts)
            why = "its record says by now what its copy has"
        if counts is not None:
            why = "its record is not ours"
        if counts is not None and self._ours is not None:
            try:
                forbids = why_hot_forbids(self._hot, managed_ledger_of_topic(topic), ledger, counts.after)
            except OffloadError as error:
                failure, forbids = error, "its hot copy could not be looked at"
            action = Action.LEAVE if forbids else Action.CORRECT_COUNTS
            why = forbids or "its copy is right to the last byte, and its record counts otherwise"
        if failure is not None:
            why = f"it could not be looked at: {failure}"
        return planned(choice=Choice(action=action, why=why), counts=counts, failure=failure)
