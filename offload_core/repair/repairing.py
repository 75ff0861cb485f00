"""Repairing a tier: verify it, decide of each pair of objects that is damaged, and do it.

Nothing is changed before it is in the audit log; no original is touched before the copy that takes its place was read
back and verified; and all can be done again after a crash, since what is made has the same key each time. Source:
docs/repair.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from uuid import UUID

from offload_core.audit import AuditLog, Change, ChangeAction
from offload_core.catalogue import Records, TopicName, parse_topic
from offload_core.catalogue.listing import find_pair
from offload_core.catalogue.topics import is_wanted, topic_of_managed_ledger
from offload_core.codec.mapfile.checksums import make_checksums
from offload_core.codec.object_format import ObjectKey, parse_key
from offload_core.codec.salvaged_objects import LostEntries
from offload_core.metadata import ManagedLedgerRecords
from offload_core.offload.clock import system_now_ms
from offload_core.repair.companions import checksums_with_index
from offload_core.repair.judging import Judged, is_whole, judge
from offload_core.repair.known import Known, known_of
from offload_core.repair.other_copies import copies_of, find_other
from offload_core.repair.plan import Action, Choice
from offload_core.repair.quarantine import Reason, keep_copy, move
from offload_core.repair.switching import RecordSwitch, can_name
from offload_core.tier import Tier
from offload_core.verify import Finding, Verification
from offload_core.verify.objects import examine
from offload_hooks.errors import DataLossError, ObjectNotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRepair:
    """What is done about one pair of objects, or what a record says of it.

    Attributes:
        key: the data object's; None where only a record is wrong.
        findings: what verification found.
        entries, lost: entries that can be saved, and those that cannot, where that was counted.
        target: where the entries go, by the data object's key.
        other: another copy that has all of it, by the same.
        is_done: that is there already, and verified.
        recorded: the topic whose record names the pair as a copy that may be read.
        hot: its ledgers whose hot copies are there, by their records.
        is_moved: the original goes to the quarantine.
        is_switched: its record goes on to what takes its place.
    """

    key: str | None
    findings: tuple[Finding, ...]
    choice: Choice
    entries: int | None = None
    lost: LostEntries | None = None
    target: str | None = None
    other: str | None = None
    is_done: bool = False
    recorded: str | None = None
    hot: tuple[int, ...] = ()

    is_moved: bool = False
    is_switched: bool = False

    @property
    def changes(self) -> bool:
        """Whether there is something to be done."""
        return (self.choice.action in _DOES and not self.is_done) or self.is_moved or self.is_switched


_DOES = (Action.REBUILD_INDEX, Action.REWRITE_CHECKSUMS, Action.SALVAGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What was done about a pair: objects that were written, and originals that were moved, by where they are now."""

    planned: PlannedRepair
    written: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()


class Repair:
    """A repair of a tier, or of some of its objects.

    Args:
        prefix: only objects whose keys begin so.
        keys: only these objects, data or index; none: all.
        ledger_ids: only objects of these ledgers; none: all.
        topics: only these, and partitions of them, by what objects or records say; none: all.
        records: opens managed ledgers' records; None for none.
        ours: the same records where they can be written: those of copies that are saved go on to the new ones.
        quarantine: move away what is replaced or cannot be saved, unless a record names it.
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
        records: Callable[[], AbstractContextManager[Records]] | None = None,
        ours: ManagedLedgerRecords | None = None,
        quarantine: bool = False,
        now_ms: Callable[[], int] = system_now_ms,
    ) -> None:
        self._tier = tier
        self._prefix = prefix
        self._keys = keys
        self._ledger_ids = frozenset(ledger_ids)
        self._topics = topics
        self._records = records
        self._ours = ours
        self._quarantine = quarantine
        self._now_ms = now_ms
        self._copies: Mapping[int, list[ObjectKey]] = {}

    def plan(self) -> Iterator[PlannedRepair]:
        """What there is to be done; nothing is changed.

        Raises:
            StoreError: the tier or the records cannot be read, or an object could not be verified.
        """
        by_key, others = self._found()
        known = self._known(by_key)
        if self._topics:
            by_key = {key: by_key[key] for key in by_key if self._is_of_topics(key, known.get(key.uuid))}
            others = [each for each in others if self._is_named(each.topic)]
        self._copies = copies_of(self._tier, {key.ledger_id for key in by_key if key.ledger_id is not None})
        for key, findings in by_key.items():
            judged = self._judge(key, findings, known)
            yield self._planned(key, findings, judged)
        for finding in others:
            choice = Choice(action=Action.LEAVE, why=finding.code.helps)
            yield PlannedRepair(key=finding.key, findings=(finding,), choice=choice, recorded=finding.topic)

    def do(self, planned: PlannedRepair, audit: AuditLog) -> Repaired:
        """Do what was planned of one pair, if it still is to be done: it is judged once more.

        Raises:
            DataLossError: what was written is not what it must be; the original was not touched.
            StoreError: the tier fails, or the audit log. It can be called again.
        """
        key = None if planned.key is None else parse_key(planned.key)
        if key is None or planned.choice.action is Action.LEAVE:
            return Repaired(planned=planned)
        findings = list(planned.findings)
        judged = self._judge(key, findings, self._known({key: findings}))
        if judged is None or judged.choice.action is not planned.choice.action:
            return Repaired(planned=planned)
        written: tuple[str, ...] = ()
        if judged.choice.action is Action.REBUILD_INDEX:
            written = self._write_index(judged, audit)
        elif judged.choice.action is Action.REWRITE_CHECKSUMS:
            written = self._write_checksums(judged, audit)
        elif judged.replacement is not None:
            switch = self._switch(judged, audit)
            if switch is not None:
                switch.begin()
            if judged.choice.action is Action.SALVAGE:
                written = self._write_salvaged(judged, audit)
            if switch is not None:
                switch.switch()
                moved = self._move(judged, audit) if self._quarantine else ()
                if moved:
                    switch.forget()
                return Repaired(planned=planned, written=written, moved=moved)
        moved = self._move(judged, audit) if self._moves(judged) else ()
        return Repaired(planned=planned, written=written, moved=moved)

    # --- judging -------------------------------------------------------------------------------

    def _found(self) -> tuple[dict[ObjectKey, list[Finding]], list[Finding]]:
        """Findings by the pair that they are about, and those about none that is here."""
        by_key: dict[ObjectKey, list[Finding]] = defaultdict(list)
        others = []
        stems = {_stem(key) for key in self._keys}
        prefixes = sorted(stems) if stems else [self._prefix]
        for prefix in prefixes:
            records = None if stems else self._records
            verification = Verification(
                self._tier, prefix=prefix, records=records, deep=True, now_ms=self._now_ms
            )
            for finding in verification:
                key = None if finding.key is None else _pair_key(finding.key)
                if key is None or finding.code.value.startswith("upload."):
                    others.append(finding)
                elif self._is_wanted(key):
                    by_key[key].append(finding)
            if verification.summary.failures:
                raise verification.summary.failures[0]
        return dict(by_key), others

    def _is_wanted(self, key: ObjectKey) -> bool:
        if self._keys and key.data_key not in {each.data_key for each in self._keys}:
            return False
        return not self._ledger_ids or key.ledger_id is None or key.ledger_id in self._ledger_ids

    def _is_of_topics(self, key: ObjectKey, known: Known | None) -> bool:
        if known is not None:
            return self._is_named(known.topic)
        pair = find_pair(self._tier, key)
        examined = None if pair is None else examine(self._tier, pair)
        name = None if examined is None else examined.managed_ledger
        return name is not None and is_wanted(topic_of_managed_ledger(name), self._topics)

    def _is_named(self, topic: str | None) -> bool:
        return not self._topics or (topic is not None and is_wanted(parse_topic(topic), self._topics))

    def _known(self, by_key: dict[ObjectKey, list[Finding]]) -> dict[UUID, Known]:
        if self._records is None or not by_key:
            return {}
        with self._records() as records:
            return dict(known_of(records, {key.uuid for key in by_key}))

    def _judge(self, key: ObjectKey, findings: list[Finding], known: dict[UUID, Known]) -> Judged | None:
        pair = find_pair(self._tier, key)
        if pair is None:
            return None
        judged = judge(self._tier, pair, findings, known.get(key.uuid), now_ms=self._now_ms())
        if judged.choice.action in (Action.SALVAGE, Action.NOT_SAVABLE) and judged.salvage is not None:
            name = None if judged.known is None else judged.known.managed_ledger
            copies = () if key.ledger_id is None else self._copies.get(key.ledger_id, ())
            judged.other = find_other(self._tier, judged.salvage, name, copies)
            if judged.other is not None:
                why = f"it is damaged; {judged.other.data_key} has all of it, and is right"
                judged.choice = Choice(action=Action.OTHER_COPY, why=why)
        return judged

    def _planned(self, key: ObjectKey, findings: list[Finding], judged: Judged | None) -> PlannedRepair:
        if judged is None:
            choice = Choice(action=Action.LEAVE, why=findings[0].code.helps)
            return PlannedRepair(key=key.data_key, findings=tuple(findings), choice=choice)
        known = judged.known
        salvage = judged.salvage if judged.choice.action is Action.SALVAGE else None
        switches = self._can_switch(judged)
        return PlannedRepair(
            key=key.data_key,
            findings=tuple(findings),
            choice=judged.choice,
            entries=judged.entries,
            lost=judged.lost,
            target=None if salvage is None else salvage.target.data_key,
            other=None if judged.other is None else judged.other.data_key,
            is_done=salvage is not None
            and is_whole(self._tier, salvage)
            and not self._moves(judged)
            and not switches,
            recorded=known.topic if known is not None and known.is_complete else None,
            hot=tuple(sorted(known.hot)) if known is not None else (),
            is_moved=self._moves(judged),
            is_switched=switches,
        )

    # --- doing ---------------------------------------------------------------------------------

    def _write_index(self, judged: Judged, audit: AuditLog) -> tuple[str, ...]:
        assert judged.index is not None
        key, reason = judged.key, _reason(judged)
        keep_copy(self._tier, key.index_key, reason, audit, self._now_ms())
        checksums = key.checksum_keys if judged.pair.index_checksums or judged.pair.data_checksums else None
        made = make_checksums(judged.index)
        if checksums is not None and not self._has(checksums[1], made):
            keep_copy(self._tier, checksums[1], reason, audit, self._now_ms())
        audit.record(_write(judged, key.index_key, "an index made anew from its data object"))
        # The checksums first: an index that they do not fit is found, and made anew by the next call.
        companion = checksums_with_index(self._tier, judged.pair, judged.index)
        if companion is not None and not self._has(key.block_checksums_key, companion):
            said = self._tier.stat(key.block_checksums_key).user_metadata
            keep_copy(self._tier, key.block_checksums_key, reason, audit, self._now_ms())
            audit.record(
                _write(judged, key.block_checksums_key, "checksums with that of the index made anew")
            )
            self._tier.write_index(key.block_checksums_key, companion, user_metadata=said)
        if checksums is not None:
            self._tier.write_index(checksums[1], made)
        self._tier.write_index(key.index_key, judged.index, user_metadata=judged.index_metadata or {})
        return (key.index_key,)

    def _has(self, key: str, data: bytes) -> bool:
        """Whether these bytes are under a key already."""
        try:
            size = self._tier.stat(key).size_bytes
        except ObjectNotFoundError:
            return False
        return size == len(data) and bytes(self._tier.read_range(key, 0, size)) == data

    def _write_checksums(self, judged: Judged, audit: AuditLog) -> tuple[str, ...]:
        checksums, data = judged.key.checksum_keys, judged.pair.data
        assert checksums is not None
        assert data is not None
        keep_copy(self._tier, checksums[0], _reason(judged), audit, self._now_ms())
        audit.record(_write(judged, checksums[0], "checksums made anew from the data file"))
        whole = self._tier.read_range(judged.key.data_key, 0, data.size_bytes)
        self._tier.write_index(checksums[0], make_checksums(whole))
        return (checksums[0],)

    def _write_salvaged(self, judged: Judged, audit: AuditLog) -> tuple[str, ...]:
        salvage = judged.salvage
        assert salvage is not None
        target = salvage.target
        if is_whole(self._tier, salvage):
            return ()
        audit.record(_write(judged, target.data_key, f"{judged.entries} entries of {judged.key.data_key}"))
        salvage.write(self._tier)
        if not is_whole(self._tier, salvage):
            raise DataLossError(
                "what was saved of an object is not what it holds; the object was not touched",
                key=target.data_key,
            )
        return (target.data_key, target.index_key)

    def _switch(self, judged: Judged, audit: AuditLog) -> RecordSwitch | None:
        """What has the record name the new copy, where it is ours, and names the old one."""
        known, new = judged.known, judged.replacement
        if self._ours is None or known is None or new is None or not self._can_switch(judged):
            return None
        return RecordSwitch(self._ours, known, judged.key, new, audit, self._now_ms)

    def _can_switch(self, judged: Judged) -> bool:
        """Whether a record of ours reads it, and can name what takes its place."""
        known, new = judged.known, judged.replacement
        if self._ours is None or known is None or not known.is_complete or new is None:
            return False
        return can_name(self._ours, known, judged.key, new)

    def _moves(self, judged: Judged) -> bool:
        """Whether the original goes: it was replaced, or nothing can be saved of it, and no record names it."""
        goes = judged.choice.action in (Action.SALVAGE, Action.OTHER_COPY, Action.NOT_SAVABLE)
        return self._quarantine and goes and judged.known is None

    def _move(self, judged: Judged, audit: AuditLog) -> tuple[str, ...]:
        key = judged.key
        keys = [key.data_key, key.index_key, *key.companion_keys]  # an index alone is put aside as well
        return tuple(move(self._tier, keys, _reason(judged), audit, self._now_ms()))


def _reason(judged: Judged) -> Reason:
    return Reason(
        codes=tuple(sorted(code.value for code in judged.codes)),
        why=judged.choice.why,
        replaced_by=None if judged.replacement is None else judged.replacement.data_key,
        managed_ledger=judged.key.managed_ledger or (judged.known.managed_ledger if judged.known else None),
        ledger_id=judged.key.ledger_id,
    )


def _write(judged: Judged, key: str, after: str) -> Change:
    reason = _reason(judged)
    return Change(
        action=ChangeAction.WRITE,
        why=f"{judged.choice.why}: {', '.join(reason.codes)}",
        managed_ledger=reason.managed_ledger,
        ledger_id=reason.ledger_id,
        uuid=judged.key.uuid,
        key=key,
        after=after,
    )


def _pair_key(key: str) -> ObjectKey | None:
    """The key of the pair that an object belongs to, also of a `.crc` file."""
    folder, _, name = key.rpartition("/")
    if name in (".data.crc", ".index.crc"):
        key = f"{folder}/data"
    parsed = parse_key(key)
    if parsed is None or not parsed.is_index:
        return parsed
    return parse_key(parsed.data_key)


def _stem(key: ObjectKey) -> str:
    return key.data_key.removesuffix("data") if key.is_mapfile else key.data_key
