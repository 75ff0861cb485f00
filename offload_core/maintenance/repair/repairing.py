"""Repair of a tier: verify it, plan a repair for each damaged pair of objects, and make it.

Each change is in the audit log first; no original is touched before the copy that takes its place was read back and
verified; and all can be made again after a crash, since new objects have the same keys each time. Executors verify and
judge; all decisions are made here. Objects that were asked for by name must exist. Source: docs/repair.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from offload_core.format.codec.object_format import ObjectKey, parse_checksum_key, parse_key
from offload_core.format.codec.object_marks import LostEntries
from offload_core.maintenance.repair.count_correction import CountCorrection
from offload_core.maintenance.repair.damage_judging import (
    Evidence,
    JudgeTask,
    copies_of,
    judge_pair,
    plan_pair,
)
from offload_core.maintenance.repair.offloading_again import HotCopies, find_hot
from offload_core.maintenance.repair.pair_changes import PairChanges, can_name, is_put_aside, replacement_for
from offload_core.maintenance.repair.repair_plan import (
    OF_MESSAGES,
    Action,
    Choice,
    OpenRecords,
    PlannedRepair,
    RecordedAttempt,
    Repaired,
    known_of,
    readable,
)
from offload_core.maintenance.verify import Code, Finding, Verification
from offload_core.maintenance.verify.pair_checks import examine
from offload_core.metadata.catalogue import Records, TopicName, parse_topic
from offload_core.metadata.catalogue.known_tiers import KnownTiers, is_another_place, tier_record
from offload_core.metadata.catalogue.listing import find_pair, stream_pairs
from offload_core.metadata.catalogue.topics import is_chosen, topic_of_managed_ledger
from offload_core.metadata.records.ledger_changes import mark_damaged
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.storage.clock import system_now_ms
from offload_core.storage.executors import Executor, ThreadExecutor
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import AttemptError, OptionError

_COUNTS = (Code.RECORD_ENTRIES, Code.RECORD_SIZE)
_OF_DAMAGE = (Action.SALVAGE, Action.OTHER_COPY, Action.NOT_SAVABLE)
_LOST_CODES = frozenset({Code.NO_OBJECT, Code.NO_DATA, Code.LOST, Code.LOST_ENTRIES, Code.BROKEN_COPY})


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairTargets:
    """Targets of a repair.

    Attributes:
        prefix: only objects whose keys begin so.
        keys: only these objects, data or index; none: all.
        ledger_ids: only objects of these ledgers; none: all.
        topics: only these, and partitions of them, by objects or records; none: all.
    """

    prefix: str = ""
    keys: Sequence[ObjectKey] = ()
    ledger_ids: frozenset[int] = frozenset()
    topics: Sequence[TopicName] = ()

    @property
    def prefixes(self) -> list[str]:
        """Return the prefixes of all target keys."""
        stems = {key.data_key.removesuffix("data") if key.is_mapfile else key.data_key for key in self.keys}
        return sorted(stems) or [self.prefix]

    def has_key(self, key: ObjectKey) -> bool:
        """Return whether an object may be a target, by its key."""
        if self.keys and key.data_key not in {each.data_key for each in self.keys}:
            return False
        return not self.ledger_ids or key.ledger_id is None or key.ledger_id in self.ledger_ids

    def has_ledger(self, topic: str | None, ledger_id: int | None) -> bool:
        """Return whether a ledger in a topic's record is a target."""
        return self.has_topic(topic) and (
            not self.ledger_ids or ledger_id is None or ledger_id in self.ledger_ids
        )

    def has_topic(self, topic: str | None) -> bool:
        """Return whether a topic is a target."""
        return not self.topics or (topic is not None and is_chosen(parse_topic(topic), self.topics))

    def has_object(self, tier: Tier, key: ObjectKey) -> bool:
        """Return whether an object names one of these topics. `StoreError`."""
        name = None
        pair = find_pair(tier, key)
        if pair is not None:
            examined = examine(tier, pair)
            name = None if examined is None else examined.managed_ledger
        return name is not None and is_chosen(topic_of_managed_ledger(name), self.topics)

    def check(self, tier: Tier, records: OpenRecords | None) -> None:
        """Check that all that was asked for by name exists.

        Raises:
            OptionError: something does not; it is named.
            StoreError: of the tier or the records.
        """
        for key in self.keys:
            is_there = find_pair(tier, key) is not None or is_put_aside(tier, key.data_key)
            if not is_there and not _is_recorded(key, records):
                raise OptionError("there is no such object", key=key.data_key)
        topics, ledger_ids = list(self.topics), set(self.ledger_ids)
        if records is not None and (topics or ledger_ids):
            with records() as opened:
                _take_recorded(opened, topics, ledger_ids)
        if topics or ledger_ids:
            _take_stored(tier, self.prefix, topics, ledger_ids)
        if topics:
            raise OptionError("there is nothing of this topic", found=topics[0])
        if ledger_ids:
            raise OptionError("there is nothing of this ledger", ledger_id=min(ledger_ids))


def _is_recorded(key: ObjectKey, records: OpenRecords | None) -> bool:
    if records is None:
        return False
    with records() as opened:
        return key.uuid in known_of(opened, {key.uuid})


def _take_recorded(records: Records, topics: list[TopicName], ledger_ids: set[int]) -> None:
    names = records.topics()
    topics[:] = [each for each in topics if not any(is_chosen(topic, [each]) for topic in names)]
    if not ledger_ids:
        return
    for _, info in readable(records, names):
        ledger_ids.difference_update(ledger.ledger_id for ledger in info.ledgers)
        if not ledger_ids:
            return


def _take_stored(tier: Tier, prefix: str, topics: list[TopicName], ledger_ids: set[int]) -> None:
    """Remove the topics and ledgers that objects have; one that cannot be read may be of any ledger."""
    for pair in stream_pairs(tier, prefix):
        if pair.key.ledger_id is not None:
            ledger_ids.discard(pair.key.ledger_id)
        if not topics and not ledger_ids:
            return
        examined = examine(tier, pair) if topics or pair.key.ledger_id is None else None
        if examined is None:
            continue
        if examined.managed_ledger is not None:
            topic = topic_of_managed_ledger(examined.managed_ledger)
            topics[:] = [each for each in topics if not is_chosen(topic, [each])]
        if pair.key.ledger_id is None and not examined.extents:
            ledger_ids.clear()
        ledger_ids.difference_update(extent.ledger_id for extent in examined.extents)


class Repair:
    """A repair of a tier, or of some of its objects.

    Args:
        tier: what is repaired.
        prefix: as of `RepairTargets`.
        keys: the same.
        ledger_ids: the same.
        topics: the same.
        records: opens managed ledgers' records; None for none.
        ours: the same records, if they can be written: they are switched to saved copies, and counts are corrected.
        why_not_live: if `ours` are mirrors of a running cluster's records: why the brokers of a managed ledger cannot
            read a copy in this tier, or None. They get whole copies only; brokers count, and know no marks.
        hot: the hot copies, to compare counts with; None if they are not known.
        offload_again: offload ledgers that have hot copies again; needs `ours` and `hot`.
        accept_loss: switch records to copies that lack entries also where hot copies have these.
        quarantine: move objects away that are replaced or cannot be saved, unless a record names them.
        executor: verifies and judges; None for a thread a core.
        now_ms: the time, since 1970, UTC.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        prefix: str = "",
        keys: Sequence[ObjectKey] = (),
        ledger_ids: Sequence[int] = (),
        topics: Sequence[TopicName] = (),
        records: OpenRecords | None = None,
        ours: ManagedLedgerRecords | None = None,
        why_not_live: Callable[[str], str | None] | None = None,
        hot: HotCopies | None = None,
        offload_again: bool = False,
        accept_loss: bool = False,
        quarantine: bool = False,
        executor: Executor | None = None,
        now_ms: Callable[[], int] = system_now_ms,
    ) -> None:
        self._tier = tier
        self._wanted = RepairTargets(
            prefix=prefix, keys=keys, ledger_ids=frozenset(ledger_ids), topics=topics
        )
        self._records = records
        self._ours = ours
        self._why_not_live = why_not_live
        self._again = hot if offload_again else None
        self._hot_store = None if hot is None else hot.store
        self._accept_loss = accept_loss
        self._quarantine = quarantine
        self._executor = ThreadExecutor() if executor is None else executor
        self._now_ms = now_ms
        self._copies: Mapping[int, list[ObjectKey]] = {}
        self._counts = CountCorrection(
            tier,
            records,
            ours if why_not_live is None else None,
            self._hot_store,
            self._executor,
            folder=f"{prefix.removesuffix('/')}/" if prefix else "",
        )

    def plan(self) -> Iterator[PlannedRepair]:
        """Yield the planned repairs; nothing is changed.

        Raises:
            OptionError: something that was asked for by name does not exist.
            StoreError: the tier or the records cannot be read, or an object could not be verified. An error of judging
                a single object is in its plan.
        """
        wanted = self._wanted
        wanted.check(self._tier, self._records)
        by_key, counts, others = self._found()
        known = self._known(by_key)
        if wanted.topics:
            by_key = {
                key: by_key[key]
                for key in by_key
                if (
                    wanted.has_topic(known[key.uuid].topic)
                    if key.uuid in known
                    else wanted.has_object(self._tier, key)
                )
            }
            others = [each for each in others if wanted.has_topic(each.topic)]
        self._copies = copies_of(self._tier, {key.ledger_id for key in by_key if key.ledger_id is not None})
        tasks = [self._task(key, findings, known) for key, findings in by_key.items()]
        work = partial(plan_pair, self._tier, self._now_ms())
        for task, planned in zip(tasks, self._executor.run(work, tasks), strict=True):
            yield self._planned(task, planned)
        yield from self._counts.plan(counts)
        for finding in others:
            choice = Choice(action=Action.LEAVE, why=finding.code.helps)
            yield PlannedRepair(key=finding.key, findings=(finding,), choice=choice, recorded=finding.topic)

    def do(self, planned: PlannedRepair, audit: AuditLog) -> Repaired:
        """Make one planned repair, if it still is to be made: the pair or record is judged once more.

        Raises:
            LiveAttemptError: another process works on a new copy of the same ledger.
            AttemptError: the record does not allow it any more.
            DataLossError: a new object is not as it must be; the original was not touched.
            StoreError: a store fails, or the audit log. It can be called again, as after each of these.
        """
        if planned.choice.action is Action.CORRECT_COUNTS:
            return self._counts.correct(planned, audit)
        key = None if planned.key is None else parse_key(planned.key)
        if key is None or planned.choice.action is Action.LEAVE:
            return Repaired(planned=planned)
        findings = list(planned.findings)
        task = self._task(key, findings, self._known({key: findings}))
        changes = PairChanges(self._tier, audit, self._now_ms)
        if planned.choice.action is Action.OFFLOAD_AGAIN:
            return self._offload_again(planned, task, changes, audit)
        if task.known is not None and task.known.is_replaced and planned.is_moved:
            moved = changes.put_pair_aside(key, task.findings, planned.choice.why)
            return Repaired(planned=planned, moved=moved)
        if planned.is_marked and task.known is not None and self._is_read_with_hot(task.known):
            self._mark_damaged(task.known, key, audit)
        if planned.choice.action is Action.KEEP_HOT:
            return Repaired(planned=planned)
        evidence = judge_pair(self._tier, task, self._now_ms())
        if evidence is None or evidence.choice.action is not planned.choice.action:
            return Repaired(planned=planned)
        if self._loses_hot_entries(task.known, evidence.choice, evidence.lost):
            return Repaired(planned=planned)
        written: tuple[str, ...] = ()
        if evidence.choice.action is Action.REBUILD_INDEX:
            written = changes.write_index(evidence)
        elif evidence.choice.action is Action.REWRITE_CHECKSUMS:
            written = changes.write_checksums(evidence)
        elif evidence.replacement is not None and self._can_switch(
            key, evidence.known, evidence.replacement, is_lossy=_is_lossy(evidence.choice, evidence.lost)
        ):
            return self._replace(planned, evidence, changes, audit)
        elif evidence.choice.action is Action.SALVAGE:
            written = changes.write_salvaged(evidence)
        moves = self._moves(evidence.choice, evidence.known)
        moved = changes.put_aside(evidence) if moves else ()
        return Repaired(planned=planned, written=written, moved=moved)

    def _found(self) -> tuple[dict[ObjectKey, list[Finding]], list[Finding], list[Finding]]:
        """Return the findings by pair, those about counts in records, and the others."""
        wanted = self._wanted
        by_key: dict[ObjectKey, list[Finding]] = defaultdict(list)
        counts, others = [], []
        for prefix in wanted.prefixes:
            verification = Verification(
                self._tier,
                prefix=prefix,
                records=None if wanted.keys else self._records,
                deep=True,
                executor=self._executor,
                now_ms=self._now_ms,
            )
            for finding in verification:
                key = None if finding.key is None else _pair_key(finding.key)
                if finding.code in _COUNTS:
                    if wanted.has_ledger(finding.topic, finding.ledger_id):
                        counts.append(finding)
                elif key is None or finding.code.value.startswith("upload."):
                    others.append(finding)
                elif wanted.has_key(key):
                    by_key[key].append(finding)
            if verification.summary.failures:
                raise verification.summary.failures[0]
        for key in wanted.keys:
            if find_pair(self._tier, key) is None:
                by_key[key].append(Finding(code=Code.NO_OBJECT, key=key.data_key))
        return dict(by_key), counts, others

    def _known(self, by_key: dict[ObjectKey, list[Finding]]) -> dict[UUID, RecordedAttempt]:
        if self._records is None or not by_key:
            return {}
        with self._records() as records:
            return dict(known_of(records, {key.uuid for key in by_key}))

    def _task(
        self, key: ObjectKey, findings: list[Finding], known: Mapping[UUID, RecordedAttempt]
    ) -> JudgeTask:
        copies = () if key.ledger_id is None else self._copies.get(key.ledger_id, ())
        return JudgeTask(key=key, findings=tuple(findings), known=known.get(key.uuid), copies=tuple(copies))

    def _planned(self, task: JudgeTask, planned: PlannedRepair) -> PlannedRepair:
        """Add the decisions by records and the hot tier to the plan of a pair."""
        known, bare = (
            task.known,
            PlannedRepair(key=planned.key, findings=task.findings, choice=planned.choice),
        )
        if known is not None and known.is_replaced and planned.choice.action in _OF_DAMAGE:
            why = "another copy took its place, as its record says"
            planned = replace(bare, choice=Choice(action=Action.OTHER_COPY, why=why))
        if planned.failure is None and self._differs_from_hot(task, planned):
            why = "it has another entry than the hot copy, which has the one that was written"
            planned = replace(planned, choice=Choice(action=Action.KEEP_HOT, why=why))
        if planned.failure is None and self._is_offloaded_again(task, planned.choice):
            why = "its copy is damaged or gone, and its hot copy has all of it"
            planned = replace(bare, choice=Choice(action=Action.OFFLOAD_AGAIN, why=why))
        if planned.failure is None and self._loses_hot_entries(known, planned.choice, planned.lost):
            why = "its record must not name a copy that lacks entries while its hot copy has them"
            planned = replace(planned, choice=Choice(action=Action.KEEP_HOT, why=why), target=None)
        new = planned.target or planned.other
        switches = planned.choice.action is Action.OFFLOAD_AGAIN or self._can_switch(
            task.key,
            known,
            None if new is None else parse_key(new),
            is_lossy=_is_lossy(planned.choice, planned.lost),
        )
        moves = self._moves(planned.choice, known)
        return replace(
            planned,
            is_done=planned.is_done and not moves and not switches,
            recorded=known.topic if known is not None and known.is_complete else None,
            hot=tuple(sorted(known.hot)) if known is not None else (),
            is_moved=moves,
            is_switched=switches,
            is_marked=not switches and self._is_to_be_marked(known, planned),
        )

    def _is_offloaded_again(self, task: JudgeTask, choice: Choice) -> bool:
        known, ledger_id = task.known, task.key.ledger_id
        is_lost = not _LOST_CODES.isdisjoint(each.code for each in task.findings)
        if choice.action not in (Action.SALVAGE, Action.NOT_SAVABLE, Action.KEEP_HOT) and not (
            choice.action is Action.LEAVE and is_lost
        ):
            return False
        if self._again is None or self._ours is None or known is None or ledger_id is None:
            return False
        if not known.is_complete or ledger_id not in known.hot or not self._is_here(known):
            return False
        if self._why_not_live is not None and self._why_not_live(known.managed_ledger) is not None:
            return False
        read = self._ours.read(known.managed_ledger)
        ledger = None if read is None else read.info.ledger(ledger_id)
        return ledger is not None and self._again.why_not(known.managed_ledger, ledger) is None

    def _loses_hot_entries(
        self, known: RecordedAttempt | None, choice: Choice, lost: LostEntries | None
    ) -> bool:
        """Return whether a record of ours names a copy that lost entries which a hot copy has."""
        if self._accept_loss or not self._is_read_with_hot(known):
            return False
        assert known is not None
        if choice.action is Action.NOT_SAVABLE:
            return True
        if choice.action is not Action.SALVAGE or lost is None or not lost.count:
            return False
        return any(lost.touches(ledger_id, 0, None) for ledger_id in self._hot_ledgers(known))

    def _differs_from_hot(self, task: JudgeTask, planned: PlannedRepair) -> bool:
        """Return whether messages with findings, which may be as they were written, differ from the hot copy.

        Raises:
            StoreError, FormatError: of either side.
        """
        store, lost, known = self._hot_store, planned.lost, task.known
        if not all(each.code in OF_MESSAGES for each in task.findings):
            return False
        if planned.choice.action is not Action.LEAVE or lost is None or not lost.count:
            return False
        if store is None or self._ours is None or known is None or not self._is_read_with_hot(known):
            return False
        read = self._ours.read(known.managed_ledger)
        readers = ColdReaders(KnownTiers(self._tier), memory=ReadMemory())
        for ledger_id in self._hot_ledgers(known):
            ledger = None if read is None else read.info.ledger(ledger_id)
            for entry_id in (i for each, *ids in lost.ranges if each == ledger_id for i in range(*ids)):
                if ledger is None:
                    continue
                with (
                    closing(store.open(ledger_id)) as hot,
                    closing(readers.open(ledger, known.managed_ledger)) as cold,
                ):
                    found = cold.read_sparse(entry_id, entry_id, 1).data.data
                    if bytes(found) != b"".join(map(bytes, hot.read(entry_id, entry_id, 1))):
                        return True
        return False

    def _is_to_be_marked(self, known: RecordedAttempt | None, planned: PlannedRepair) -> bool:
        """Return whether a record of ours names a damaged copy, and does not mark it yet."""
        if self._why_not_live is not None or known is None or known.is_marked or known.driver is None:
            return False
        if not self._is_read_with_hot(known):
            return False
        return planned.failure is None and planned.choice.action in (*_OF_DAMAGE, Action.KEEP_HOT)

    def _is_read_with_hot(self, known: RecordedAttempt | None) -> bool:
        """Return whether a record of ours reads a copy in this tier whose ledgers have hot copies."""
        if self._ours is None or known is None:
            return False
        return known.is_complete and self._is_here(known) and bool(self._hot_ledgers(known))

    def _hot_ledgers(self, known: RecordedAttempt) -> list[int]:
        """Return the ledgers that have hot copies by their records, and by the hot tier if that is known."""
        store, name = self._hot_store, known.managed_ledger
        return [each for each in known.hot if store is None or find_hot(store, name, each) is not None]

    def _replace(
        self, planned: PlannedRepair, evidence: Evidence, changes: PairChanges, audit: AuditLog
    ) -> Repaired:
        known, new = evidence.known, evidence.replacement
        assert self._ours is not None
        assert known is not None
        assert new is not None
        steps = replacement_for(self._ours, known, evidence.key, new, self._tier, audit, self._now_ms)
        written: tuple[str, ...] = ()
        if evidence.choice.action is Action.SALVAGE:
            with steps.attempt() as check:
                written = changes.write_salvaged(evidence)
                check()
                steps.switch()
        else:
            steps.switch_at_once()
        moved = changes.put_aside(evidence) if self._quarantine else ()
        if moved:
            steps.forget_old()
        return Repaired(planned=planned, written=written, moved=moved)

    def _mark_damaged(self, known: RecordedAttempt, key: ObjectKey, audit: AuditLog) -> None:
        """Mark a copy as damaged in its record, so that hot copies stay until another takes its place."""
        assert self._ours is not None
        audit.record(
            Change(
                action=ChangeAction.RECORD,
                why="a copy is damaged, and the hot copies of its ledgers must stay",
                managed_ledger=known.managed_ledger,
                ledger_id=min(known.hot),
                uuid=key.uuid,
                before="complete",
                after="complete, and damaged",
            )
        )
        self._ours.update(known.managed_ledger, partial(mark_damaged, uuid=key.uuid))

    def _offload_again(
        self, planned: PlannedRepair, task: JudgeTask, changes: PairChanges, audit: AuditLog
    ) -> Repaired:
        known, key = task.known, task.key
        if self._again is None or self._ours is None or known is None or key.ledger_id is None:
            raise AttemptError("no record names the copy any more", key=key.data_key)
        new, steps = self._again.offload(
            self._ours, self._tier, known.managed_ledger, key.ledger_id, key.uuid, audit, self._now_ms
        )
        moved: tuple[str, ...] = ()
        if self._quarantine:
            moved = changes.put_pair_aside(key, task.findings, planned.choice.why, new)
            steps.forget_old()
        return Repaired(planned=planned, written=(new.data_key, new.index_key), moved=moved)

    def _can_switch(
        self, key: ObjectKey, known: RecordedAttempt | None, new: ObjectKey | None, *, is_lossy: bool
    ) -> bool:
        """Return whether a record of ours reads it, and can name the copy that takes its place.

        Args:
            is_lossy: whether that lacks entries.
        """
        if self._ours is None or known is None or not known.is_complete or new is None:
            return False
        if self._why_not_live is not None and (is_lossy or self._why_not_live(known.managed_ledger)):
            return False
        return self._is_here(known) and can_name(self._ours, known, key, new)

    def _is_here(self, known: RecordedAttempt) -> bool:
        """Return whether a record that names a copy names this tier; an object of its key may be another's."""
        return known.driver is None or not is_another_place(tier_record(self._tier), known.driver)

    def _moves(self, choice: Choice, known: RecordedAttempt | None) -> bool:
        """Return whether the original is moved: it was replaced or cannot be saved, and no record names it."""
        is_named = known is not None and not known.is_replaced
        return self._quarantine and choice.action in _OF_DAMAGE and not is_named


def _is_lossy(choice: Choice, lost: LostEntries | None) -> bool:
    """Return whether what is saved lacks entries; `lost` is what the damaged copy lacks."""
    return choice.action is Action.SALVAGE and lost is not None and bool(lost.count)


def _pair_key(key: str) -> ObjectKey | None:
    parsed = parse_checksum_key(key) or parse_key(key)
    if parsed is None or not parsed.is_index:
        return parsed
    return parse_key(parsed.data_key)
