"""Records whose counts are not those of their ledgers' copies: counted, judged, and corrected where they are ours.

Copies are counted where every byte of them is right. A copy tells the counts if it has every entry from 0 on, its index
says that these are all, and nothing of it was lost or filtered. `CountLedgers` is picklable, as are its tasks and
results. A record is changed by compare-and-set, and only if it says what was judged, of the copies that were counted;
one that changed meanwhile is judged anew. Source: docs/repair.md."""

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
    PlannedRepair,
    Repaired,
)
from offload_core.maintenance.repair.repair_targets import OpenRecords
from offload_core.maintenance.verify import Finding
from offload_core.maintenance.verify.deep import DeepCheck, DeepTask
from offload_core.maintenance.verify.pair_checks import Examined, LedgerExtent, examine
from offload_core.metadata.catalogue import RecordedCopy, TopicName, parse_topic, recorded_copies
from offload_core.metadata.catalogue.listing import find_pair
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import LedgerRecord
from offload_core.metadata.records.ledger_changes import (
    LedgerCounts,
    copies_read,
    correct_counts,
    counts_of,
)
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
        counts: None where the copies do not tell, and `why` not, in words.
        failure: why it could not be counted.
    """

    counts: LedgerCounts | None = None
    why: str = ""
    failure: OffloadError | None = None


class _UntoldError(Exception):
    """The copies do not tell it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountLedgers:
    """Counts ledgers in a tier; it raises nothing that a store may raise."""

    tier: Tier

    def __call__(self, task: CountTask) -> Counted:
        """Count one ledger."""
        try:
            return Counted(counts=self._count(task))
        except _UntoldError as why:
            return Counted(why=str(why))
        except StoreError as error:
            return Counted(failure=error.at(ledger_id=task.ledger_id))

    def _count(self, task: CountTask) -> LedgerCounts:
        stop = size = 0
        last: LedgerExtent | None = None
        for examined in self._examined(task):
            last, (end, payload_bytes) = self._one(task.ledger_id, examined, stop)
            stop, size = end, size + payload_bytes
        if last is None:
            raise _UntoldError("it is not read from complete copies")
        if last.entries != stop:
            raise _UntoldError("its copy does not tell that it has all of its entries")
        if last.size is not None and last.size != size:
            raise _UntoldError("the index of its copy counts other bytes")
        return LedgerCounts(entries=stop, size_bytes=size)

    def _examined(self, task: CountTask) -> Iterator[Examined]:
        for copy in task.copies:
            pairs = (find_pair(self.tier, key) for key in (copy.key, copy.mapfile_key) if key is not None)
            pair = next((each for each in pairs if each is not None), None)
            examined = None if pair is None else examine(self.tier, pair)
            if examined is None:
                raise _UntoldError("its copy is not here")
            yield examined

    def _one(self, ledger_id: int, examined: Examined, begin: int) -> tuple[LedgerExtent, tuple[int, int]]:
        """One copy: what its index says, one past the last entry, and the bytes of its entries."""
        if examined.lost is not None:
            raise _UntoldError("its copy lacks entries that were lost")
        if examined.is_filtered or examined.has_gaps:
            raise _UntoldError("its copy went through a filter, and does not tell what the ledger had")
        extent = next((each for each in examined.extents if each.ledger_id == ledger_id), None)
        if not examined.is_sound or extent is None:
            raise _UntoldError("its copy is damaged: that is repaired first")
        result = DeepCheck(tier=self.tier)(DeepTask.of(0, examined))
        if result.failure is not None:
            raise result.failure
        found = next((each for each in result.counts if each.ledger_id == ledger_id), None)
        if result.is_gone or found is None or any(each.code not in AS_WRITTEN for each in result.findings):
            raise _UntoldError("its copy is damaged: that is repaired first")
        stop = found.stop_entry_id
        if extent.first_entry_id != begin or stop is None or found.entries != stop - begin:
            raise _UntoldError("its copies do not have every entry once")
        return extent, (stop, found.payload_bytes)


def wrong_counts(ledger: LedgerRecord, counted: LedgerCounts) -> CorrectedCounts | None:
    """Return what a record must say in place of what it says; None if it says that."""
    before = counts_of(ledger)
    if before == counted:
        return None
    return CorrectedCounts(ledger_id=ledger.ledger_id, before=before, after=counted)


_TRIES = 10


class CountCorrection:
    """Corrects counts in records.

    Args:
        records: opens the records; None for none.
        ours: the same where they can be written.
        hot: the hot tier, which is asked where a hot copy is there; None where it is not known.
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
        self._work = CountLedgers(tier=tier)
        self._records = records
        self._ours = ours
        self._hot = hot
        self._executor = executor
        self._folder = folder

    def plan(self, findings: Sequence[Finding]) -> Iterator[PlannedRepair]:
        """Yield what there is to be done about these findings of counts. `StoreError` of the records."""
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
            counts = wrong_counts(ledger, counted.counts)
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
