"""Deletion of garbage, if it still is garbage by its topic's record and by its objects as they are now.

    1. read the topic's record once more, and judge the objects by it
    2. inspect each object: as large and as old as it was listed, and no other half has come
    3. abandon the attempt in the record, by compare-and-set, if it is not abandoned yet
    4. write the audit log; then delete the indexes
    5. of objects that no record names: claim the record, by compare-and-set, which fails if it has changed. Then judge
       anew, and put back the indexes of objects that are needed by now
    6. delete the data

Some topics are deleted at once, and some objects of a topic by one call. A crash leaves halves, which are found the
next time.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain

from offload_core.format.codec.object_format import ObjectKey, parse_key
from offload_core.maintenance.gc.garbage import Garbage, GarbageKind, ListedPair, RemovalOutcome, Scope
from offload_core.maintenance.gc.garbage_judging import GarbageJudge, Kept, Naming, forget, give_up, naming_of
from offload_core.metadata.catalogue import Records, read_each
from offload_core.metadata.catalogue.listing import look_up
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.catalogue.topics import UNKNOWN_TOPIC, managed_ledger_of_topic
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import claimed, is_claim
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction, Deletion
from offload_core.writing.offload.attempt_objects import delete_attempt, delete_unless
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import (
    AccessDeniedError,
    AttemptError,
    FormatError,
    OffloadError,
    OptionError,
    StoreError,
    UnknownTopicError,
    VersionConflictError,
    placed,
)
from offload_hooks.values import ListedObject

DEFAULT_AT_ONCE = 64
"""Batches at once: a deletion waits for a store far away several times."""

_TOGETHER = 16
"""Objects of one topic that are deleted by one call."""

_TIME_TOLERANCE_S = 1.0
"""Stores round the time of an object to seconds in one answer, and not in another."""

_CLAIMS = 10
"""Attempts at a claim: another process may write the record after it was read; then objects are judged again."""

_NAMED = (GarbageKind.FAILED, GarbageKind.UNFINISHED, GarbageKind.CONDEMNED, GarbageKind.REPLACED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Deletes garbage of a tier.

    Attributes:
        records: that are open.
        writable: the same, to be changed; None if they cannot be.
        elsewhere: other tiers that records may name copies in.
    """

    tier: Tier
    records: Records
    writable: ManagedLedgerRecords | None
    scope: Scope
    audit: AuditLog
    elsewhere: Sequence[Tier] = ()

    def remove(
        self, garbage: Iterable[Garbage], *, at_once: int = DEFAULT_AT_ONCE, limit: int | None = None
    ) -> Iterator[RemovalOutcome | OffloadError]:
        """Delete garbage; yield the outcomes in its order, an error where one could not be deleted.

        Args:
            limit: the most that is deleted; objects that stay do not count.

        Raises:
            StoreError: of the audit log, or one that is retryable; it can be called again.
        """
        batches = _Batches(garbage)
        left = math.inf if limit is None else limit  # without what is waiting, which may all go

        def allowed() -> Iterator[list[Garbage]]:
            nonlocal left
            while batch := batches.take(int(min(left, _TOGETHER))):
                left -= len(batch)
                yield batch

        while first := next(allowed(), None):  # again where the limit was reached, and some of them stay
            with closing(
                bounded_map(self._remove, chain([first], allowed()), at_once=at_once, name="offload-gc")
            ) as removed:
                for outcomes in removed:
                    left += sum(isinstance(each, OffloadError) or not each.is_deleted for each in outcomes)
                    yield from outcomes

    def _remove(self, batch: Sequence[Garbage]) -> list[RemovalOutcome | OffloadError]:
        info = self._read(batch[0])
        judge = self._judge()
        outcomes: list[RemovalOutcome | OffloadError] = []
        due: list[Garbage] = []
        for each in batch:
            try:
                why = info if isinstance(info, str) else self._why_kept(each, info, judge)
                if why is None and each.pair is not None and each.kind not in _NAMED:
                    due.append(each)
                    continue
                if why is None:
                    self._remove_attempt(each, info)
            except (AttemptError, OptionError, FormatError) as error:
                why = str(error)
            except StoreError as error:
                if error.retryable:
                    raise
                outcomes.append(error.at(key=each.key))
                continue
            outcomes.append(RemovalOutcome(garbage=each, is_deleted=why is None, why_kept=why))
        if due:
            assert not isinstance(info, str)
            outcomes += self._remove_unnamed(due, info)
        return outcomes

    def _remove_unnamed(
        self, due: Sequence[Garbage], info: ManagedLedgerInfo | None
    ) -> Iterator[RemovalOutcome | OffloadError]:
        """Delete objects of one topic that its record did not name, unless it does when their indexes are gone."""
        by_key = {each.pair.key: each for each in due if each.pair is not None}
        needed: dict[ObjectKey, str] = {}
        for each in due:
            self._record(each)
        with placed(key=due[0].key):
            delete_unless(self.tier, list(by_key), partial(self._needed, by_key, info, needed))
        for key, each in by_key.items():
            why = needed.get(key)
            if why is not None:
                self._record_kept(each, why)
            yield RemovalOutcome(garbage=each, is_deleted=why is None, why_kept=why)

    @contextmanager
    def _needed(
        self, due: Mapping[ObjectKey, Garbage], info: ManagedLedgerInfo | None, needed: dict[ObjectKey, str]
    ) -> Iterator[Collection[ObjectKey]]:
        """Claim the records that objects were judged by, or newer ones; give the objects that these need.

        Args:
            needed: gets these objects, with the reasons.
        """
        for _ in range(_CLAIMS):
            with ExitStack() as claims:
                if self._is_claimed(claims, [each for key, each in due.items() if key not in needed], info):
                    yield needed
                    return
            now = self._read_anew(due.values())
            if isinstance(now, str):
                needed |= dict.fromkeys(due, now)
            else:
                info = now
                judge = self._judge()
                for key, each in due.items():
                    why = None if key in needed else self._why_needed(each, info, judge)
                    if why is not None:
                        needed[key] = why
        needed |= dict.fromkeys(due.keys() - needed.keys(), "its topic's record changes all the time")
        yield needed

    def _is_claimed(self, claims: ExitStack, due: Sequence[Garbage], info: ManagedLedgerInfo | None) -> bool:
        """Claim their deletion, if the records are those that they were judged by; records of others are only read."""
        if not due:
            return True
        if self.writable is None:
            return self._read_anew(due) == info
        now_ms = self.scope.now_ms()
        try:
            return all(
                claims.enter_context(claimed(self.writable, name, info, now_ms))
                for name in sorted(self._names(due, info))
            )
        except VersionConflictError:
            return False
        except (OptionError, FormatError, AccessDeniedError):  # a live Pulsar's, which is not to be written
            return self._read_anew(due) == info

    def _read_anew(self, due: Iterable[Garbage]) -> ManagedLedgerInfo | str | None:
        """Read the record of their topic, also under a name that had none when records were listed; as `_read`."""
        due = list(due)
        info = self._read(due[0])
        if info is not None or self.writable is None:
            return info
        for name in self._names(due, None):
            known = self.writable.read(name)
            if known is not None and not is_claim(known.info):
                return known.info
        return info

    def _names(self, due: Iterable[Garbage], info: ManagedLedgerInfo | None) -> set[str]:
        """Return the names that their topic's record has or may get: the objects', or as Pulsar encodes it."""
        names = set()
        for each in due:
            assert each.topic is not None
            found = self.records.name(each.topic) if isinstance(self.records, StoreRecords) else None
            if info is None and each.managed_ledger is not None:
                names.add(each.managed_ledger)
            names.add(found or managed_ledger_of_topic(each.topic))
        return names

    def _read(self, garbage: Garbage) -> ManagedLedgerInfo | str | None:
        """Read the record of its topic; return why it is not known, in words."""
        if garbage.topic is None:
            return None
        info = dict(read_each(self.records, [garbage.topic])).get(garbage.topic)
        return f"its topic's record cannot be read: {info}" if isinstance(info, FormatError) else info

    def _why_kept(self, garbage: Garbage, info: ManagedLedgerInfo | None, judge: GarbageJudge) -> str | None:
        if garbage.pair is None:
            key = parse_key(garbage.key)
            named = None if key is None else naming_of(info, key.uuid)
            is_at_it = (
                named is not None and named.naming is Naming.UNFINISHED and garbage.kind is GarbageKind.UPLOAD
            )
            return "an attempt has begun" if is_at_it else None
        why = self._why_needed(garbage, info, judge)
        return why or (None if self._is_as_listed(garbage) else "it has changed since it was listed")

    def _why_needed(
        self, garbage: Garbage, info: ManagedLedgerInfo | None, judge: GarbageJudge
    ) -> str | None:
        topic, pair = garbage.topic, garbage.pair
        assert topic is not None
        assert pair is not None
        found = ListedPair(
            number=0,
            pair=pair,
            is_sound=True,
            ledger_ids=garbage.ledger_ids,
            is_placeholder=garbage.is_placeholder,
        )
        by = judge.judge_named if garbage.kind in _NAMED else judge.judge_unnamed
        judged = by(found, topic, info)
        return judged.why if isinstance(judged, Kept) else None

    def _judge(self) -> GarbageJudge:
        return GarbageJudge(self.tier, self.scope.folder, self.elsewhere, self.scope.before)

    def _is_as_listed(self, garbage: Garbage) -> bool:
        assert garbage.pair is not None
        pair = garbage.pair
        known = [(pair.key.data_key, pair.data), (pair.key.index_key, pair.index)]
        if pair.is_lone:
            known += [(each.key, each) for each in pair.checksums]
        return all(self._is_same(key, listed) for key, listed in known)

    def _is_same(self, key: str, listed: ListedObject | None) -> bool:
        stat = look_up(self.tier, key)
        if stat is None or listed is None:
            return stat is None and listed is None
        apart_s = abs((stat.modified_at - listed.modified_at).total_seconds())
        return stat.size_bytes == listed.size_bytes and apart_s <= _TIME_TOLERANCE_S

    def _remove_attempt(self, garbage: Garbage, info: ManagedLedgerInfo | str | None) -> None:
        key = parse_key(garbage.key)
        if garbage.kind is GarbageKind.UPLOAD:
            self._record(garbage)
            assert garbage.upload is not None
            self.tier.abort_data(garbage.upload)
            return
        assert garbage.topic is not None
        assert key is not None
        name = managed_ledger_of_topic(garbage.topic)
        named = naming_of(info if isinstance(info, ManagedLedgerInfo) else None, key.uuid)
        if named is None or not named.is_given_up:
            if self.writable is None:
                raise OptionError("the attempt is to be abandoned in its record, which cannot be changed")
            change = partial(give_up, uuid=key.uuid, now_ms=self.scope.now_ms())
            self.audit.record(
                Change(
                    action=ChangeAction.RECORD,
                    why="the attempt's lease is not held, and its objects are deleted",
                    managed_ledger=name,
                    ledger_id=garbage.ledger_ids[0],
                    uuid=key.uuid,
                    before="not complete",
                    after="failed",
                )
            )
            self.writable.update(name, change)
        self._record(garbage)
        delete_attempt(self.tier, key)
        if self.writable is not None:
            with suppress(
                UnknownTopicError, AttemptError
            ):  # it was forgotten, or deleted, by others meanwhile
                self.writable.update(name, partial(forget, uuid=key.uuid))

    def _record(self, garbage: Garbage) -> None:
        name = None if garbage.topic is None else managed_ledger_of_topic(garbage.topic)
        why = f"{garbage.kind.value}: {garbage.why}"
        if garbage.upload is not None:
            self.audit.record(
                Change(
                    action=ChangeAction.ABORT_UPLOAD,
                    why=why,
                    managed_ledger=name,
                    ledger_id=garbage.ledger_ids[0] if garbage.ledger_ids else None,
                    key=garbage.key,
                    before=garbage.upload.upload_id,
                )
            )
            return
        for ledger_id in garbage.ledger_ids or (None,):
            self.audit.record(
                Deletion(
                    managed_ledger=name or UNKNOWN_TOPIC,
                    ledger_id=ledger_id,
                    copy="cold",
                    why=why,
                    uuid=garbage.uuid,
                )
            )

    def _record_kept(self, garbage: Garbage, why: str) -> None:
        self.audit.record(
            Change(
                action=ChangeAction.WRITE,
                why=f"it is not deleted, its index was put back: {why}",
                managed_ledger=garbage.managed_ledger,
                ledger_id=garbage.ledger_ids[0] if garbage.ledger_ids else None,
                uuid=garbage.uuid,
                key=garbage.key,
            )
        )


class _Batches:
    """Garbage, some at a time, of one topic each."""

    def __init__(self, garbage: Iterable[Garbage]) -> None:
        self._coming = iter(garbage)
        self._next: Garbage | None = None

    def take(self, most: int) -> list[Garbage]:
        """Return the next; none at the end, or if none may be taken."""
        some: list[Garbage] = []
        while len(some) < most:
            following = self._next if self._next is not None else next(self._coming, None)
            self._next = following
            if following is None or (some and following.topic != some[0].topic):
                break
            some.append(following)
            self._next = None
        return some
