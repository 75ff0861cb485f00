"""Records whose counts are not those of their ledgers' copies: counted, judged, and corrected where they are ours.

A record is changed by compare-and-set, and only if it says what was judged, of the copies that were counted; one that
changed meanwhile is judged anew. Source: docs/repair.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from offload_core.audit import AuditLog, Change, ChangeAction
from offload_core.catalogue import TopicName, parse_topic
from offload_core.catalogue.topics import managed_ledger_of_topic
from offload_core.executors import Executor
from offload_core.metadata import LedgerRecord, ManagedLedgerRecords
from offload_core.metadata.ledger_counts import correct_counts
from offload_core.repair.counts import Counted, CountLedgers, CountTask, wrong_counts
from offload_core.repair.hot_copies import why_hot_forbids
from offload_core.repair.plan import Action, Choice
from offload_core.repair.planned import PlannedRepair, Repaired
from offload_core.repair.wanted import OpenRecords
from offload_core.tier import Tier
from offload_core.verify import Finding
from offload_hooks.errors import AttemptError, OffloadError, UnknownTopicError
from offload_hooks.ledger_stores import LedgerStore

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
        """What there is to be done about these findings of counts. `StoreError` of the records."""
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
