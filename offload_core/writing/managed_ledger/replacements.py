"""Replacements: copies that take the place of others, in records that are ours; each step is audited before it is made.

    attempt      what dead attempts left is cleaned, the new copy recorded; its lease tells others of it
    switch       it is verified: from now on it is read
    at_once      both for a copy that is there already: it is never recorded as one that may be cleaned up
    abandon      nothing works on it any more, so it never takes the place of another
    give_up      the same of one of this process that failed: abandoned, its objects deleted, forgotten
    forget       the objects of one that was abandoned, or replaced, are deleted

`ReplacementSteps` are those of any copies of a record: each is a compare-and-set of `metadata.copy_replacement`, and
can be made again. `Replacement` is one copy that takes the place of one other. Source: docs/formats/metadata.md,
docs/formats/audit-log.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from uuid import UUID

from offload_core.metadata.catalogue.known_tiers import is_same_place, place_text, tier_record
from offload_core.metadata.catalogue.listing import look_up
from offload_core.metadata.catalogue.recorded_copies import other_copy_key
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import (
    ManagedLedgerInfo,
    OtherCopy,
    OtherRole,
    abandon_replacement,
    begin_replacement,
    forget_replaced,
    forget_replacement,
    other_copies,
    read_copies,
    renew_replacement,
    switch_replacement,
)
from offload_core.metadata.records.attempts import AttemptLease, lease_of
from offload_core.metadata.records.replacement_record import check_reads, find_replacement
from offload_core.metadata.records.segment_shares import as_written
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction, Deletion
from offload_core.writing.offload.attempt_objects import delete_attempt
from offload_core.writing.offload.running_attempt import DEFAULT_LEASE_S, RunningAttempt, check_over
from offload_hooks.errors import AttemptError, UnknownTopicError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementSteps:
    """The steps in one record. Calls may come from many threads at once.

    Each raises `AttemptError` if the record does not allow it, `UnknownTopicError` if there is none, and `StoreError`
    of the metadata store or the audit log.

    Attributes:
        name: the managed ledger's.
        now_ms: the time, in ms since 1970, UTC.
        lease_s: how long others are to believe that an attempt goes on, after each renewal.
    """

    records: ManagedLedgerRecords
    name: str
    audit: AuditLog
    now_ms: Callable[[], int]
    lease_s: float = DEFAULT_LEASE_S

    def info(self) -> ManagedLedgerInfo:
        """The record, as of now."""
        return self.records.require(self.name).info

    @contextmanager
    def attempt(
        self, copy: OtherCopy, replaces: Sequence[UUID], why: str, *, seen: AttemptLease | None = None
    ) -> Iterator[Callable[[], None]]:
        """Record an attempt, or go on with one that was left; gives what raises if it was taken over.

        Args:
            copy: as it is to be recorded; without a lease.
            replaces: the copies that it takes the place of, which its ledgers read.
            seen: of one that was left, the lease that is over.
        """
        uuid = copy.uuid

        def renew(info: ManagedLedgerInfo, /, *, lease: AttemptLease) -> ManagedLedgerInfo:
            return renew_replacement(info, uuid, lease)

        running = RunningAttempt(
            self.records,
            self.name,
            copy.ledger_ids[0],
            uuid,
            lease_s=self.lease_s,
            now_ms=self.now_ms,
            renew=renew,
        )
        with running:
            lease = running.lease()

            def begin(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
                check_reads(info, copy.ledger_ids, replaces)
                known = find_replacement(info, uuid)
                if known is None or known.is_abandoned:
                    return _begun(info, copy, lease)
                found = lease_of(known.driver)
                if found == lease:
                    return info
                if found != seen:
                    raise AttemptError(
                        "somebody else has begun the same copy", ledger_id=known.ledger_ids[0], found=uuid
                    )
                return renew_replacement(info, uuid, lease)

            self._record(copy, f"{why}: the copy that it will be", replaces)
            self.records.update(self.name, begin)
            running.keep_lease()
            try:
                yield running.check
            except Exception:
                running.notice_loss()
                raise

    def switch(
        self,
        copy: OtherCopy,
        replaces: Sequence[UUID],
        why: str,
        filters: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """Have the new copy read; `filters` as of `switch_replacement`."""
        now = self.now_ms()

        def switch(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            if copy.uuid not in read_copies(info):
                check_reads(info, copy.ledger_ids, replaces)
            return switch_replacement(info, copy.uuid, now, filters)

        self._record(copy, f"{why}: the copy that is read", replaces)
        self.records.update(self.name, switch)

    def at_once(
        self, copy: OtherCopy, replaces: Sequence[UUID], why: str, is_there: Callable[[], bool]
    ) -> None:
        """Have a copy read that is there, and verified; `LiveAttemptError` if its lease is held.

        Args:
            is_there: whether its objects still are; asked once it is recorded, for until then it may be deleted.
        """
        now, uuid = self.now_ms(), copy.uuid
        before = after = self.info()

        def change(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            nonlocal before, after
            before = after = info
            if uuid in read_copies(info):
                return info
            check_reads(info, copy.ledger_ids, replaces)
            known = find_replacement(info, uuid)
            if known is None or known.is_abandoned:
                after = switch_replacement(_begun(info, copy, None), uuid, now)
            else:
                check_over(uuid, known.driver, now, known.ledger_ids[0])
                after = switch_replacement(info, uuid, now)
            after = as_written(after)  # as it is read back
            return after

        def undo(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            changed = (each for each in copy.ledger_ids if info.ledger(each) == after.ledger(each))
            return info.with_ledgers(ledger for each in changed if (ledger := before.ledger(each)))

        self._record(copy, f"{why}: the copy that is read", replaces)
        self.records.update(self.name, change)
        if not is_there():
            self._record(copy, "it was deleted meanwhile: the copies are read that were")
            self.records.update(self.name, undo)
            raise AttemptError(
                "the copy that was to be read was deleted meanwhile",
                ledger_id=copy.ledger_ids[0],
                found=uuid,
                hint="Call it again: what is left is judged anew.",
            )

    def abandon(self, copy: OtherCopy, why: str) -> None:
        """Have an attempt that was left never take a copy's place; `LiveAttemptError` if its lease is held."""
        self.check_over(copy)

        def abandon(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            known = find_replacement(info, copy.uuid)
            if known is not None:
                self.check_over(known)
            return abandon_replacement(info, copy.uuid)

        self._abandon(copy, why, abandon)

    def give_up(self, copy: OtherCopy, why: str) -> bool:
        """Abandon an attempt of this process; whether its objects may be deleted: not if the copy is read."""
        try:
            self._abandon(copy, why, partial(abandon_replacement, uuid=copy.uuid))
        except (AttemptError, UnknownTopicError):
            known = self.records.read(self.name)
            return known is None or copy.uuid not in read_copies(known.info)
        return True

    def forget(self, copy: OtherCopy, why: str) -> None:
        """Forget a copy whose objects are deleted, as one that is no more of a topic that is no more."""
        forget = forget_replaced if copy.role is OtherRole.REPLACED else forget_replacement
        self._record(copy, f"{why}: it is forgotten, its objects are gone")
        with suppress(UnknownTopicError):
            self.records.update(self.name, partial(forget, uuid=copy.uuid))

    def check_over(self, copy: OtherCopy) -> None:
        """Refuse to touch an attempt whose lease is held (`LiveAttemptError`)."""
        check_over(copy.uuid, copy.driver, self.now_ms(), copy.ledger_ids[0])

    def _abandon(
        self, copy: OtherCopy, why: str, abandon: Callable[[ManagedLedgerInfo], ManagedLedgerInfo]
    ) -> None:
        self._record(copy, f"{why}: the attempt never takes a copy's place")
        self.records.update(self.name, abandon)

    def _record(self, copy: OtherCopy, why: str, replaces: Sequence[UUID] | None = None) -> None:
        """Write a step down, before it is made."""
        self.audit.record(step_line(self.name, copy, why, replaces))


def step_line(name: str, copy: OtherCopy, why: str, replaces: Sequence[UUID] | None = None) -> Change:
    """The line of the audit log for a step; `replaces` where one copy takes the place of others."""
    return Change(
        action=ChangeAction.RECORD,
        why=why,
        managed_ledger=name,
        ledger_id=copy.ledger_ids[0],
        uuid=copy.uuid,
        before=None if replaces is None else ", ".join(map(str, replaces)),
        after=None if replaces is None else f"{copy.uuid} in {place_text(copy.driver)}",
    )


def delete_copy(tier: Tier, name: str, copy: OtherCopy, audit: AuditLog, why: str) -> None:
    """Delete the objects of a copy that was abandoned or replaced, before it is forgotten.

    Raises:
        StoreError: of the tier or the audit log; it can be called again.
    """
    audit.record(
        Deletion(managed_ledger=name, ledger_id=copy.ledger_ids[0], copy="cold", why=why, uuid=copy.uuid)
    )
    delete_attempt(tier, other_copy_key(topic_of_managed_ledger(name), copy))


def _begun(info: ManagedLedgerInfo, copy: OtherCopy, lease: AttemptLease | None) -> ManagedLedgerInfo:
    return begin_replacement(
        info,
        copy.ledger_ids,
        copy.uuid,
        copy.form,
        copy.driver,
        copy.since_ms,
        segment=copy.segment,
        lease=lease,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One copy that is to take the place of another.

    Attributes:
        name: the managed ledger's.
        copy: it, as it is to be recorded; without a lease.
        old: the copy that it takes the place of.
        tier: where it is written; an attempt that was left elsewhere is not touched.
        why: in words, for the audit log.
    """

    records: ManagedLedgerRecords
    name: str
    copy: OtherCopy
    old: UUID
    tier: Tier
    audit: AuditLog
    why: str
    now_ms: Callable[[], int]
    lease_s: float = DEFAULT_LEASE_S

    @contextmanager
    def attempt(self) -> Iterator[Callable[[], None]]:
        """Record the attempt, or go on with one that was left; gives what raises if it was taken over.

        Raises:
            LiveAttemptError: another process makes a new copy of these ledgers; nothing was changed.
            AttemptError: the record does not allow it.
            StoreError: of the metadata store, the tier, or the audit log.
        """
        seen = self._clean()
        with self._steps.attempt(self.copy, [self.old], self.why, seen=seen) as check:
            yield check

    def switched(self, filters: Mapping[int, str] = MappingProxyType({})) -> ManagedLedgerInfo:
        """The record as it will be; errors as of `attempt`."""
        return switch_replacement(self._steps.info(), self.copy.uuid, 0, filters)

    def switch(self, filters: Mapping[int, str] = MappingProxyType({})) -> None:
        """Have the new copy read; errors as of `attempt`."""
        self._steps.switch(self.copy, [self.old], self.why, filters)

    def at_once(self) -> None:
        """Have a copy read that is there, and verified; errors as of `attempt`, also if it was deleted meanwhile."""
        self._clean()
        key = other_copy_key(topic_of_managed_ledger(self.name), self.copy)

        def is_there() -> bool:
            return all(look_up(self.tier, each) is not None for each in (key.index_key, key.data_key))

        self._steps.at_once(self.copy, [self.old], self.why, is_there)

    def give_up(self, why: str) -> None:
        """Clean up after an attempt of this process that failed, unless it is read; errors as of `attempt`."""
        if self._steps.give_up(self.copy, why):
            self._delete(self.copy, why)

    def forget_old(self) -> None:
        """Forget the old copy, whose objects are gone; errors as of `attempt`."""
        for copy in other_copies(self._steps.info()):
            if copy.uuid == self.old and copy.role is OtherRole.REPLACED:
                self._steps.forget(copy, self.why)

    @property
    def _steps(self) -> ReplacementSteps:
        return ReplacementSteps(
            records=self.records, name=self.name, audit=self.audit, now_ms=self.now_ms, lease_s=self.lease_s
        )

    def _clean(self) -> AttemptLease | None:
        """Delete what attempts have left at these ledgers, if no lease is held; the lease of this one's, if any."""
        lease, steps = None, self._steps
        for copy in other_copies(steps.info()):
            mine = set(copy.ledger_ids) & set(self.copy.ledger_ids)
            if copy.role is not OtherRole.REPLACEMENT or not mine:
                continue
            steps.check_over(copy)
            if copy.uuid == self.copy.uuid:
                if copy.is_abandoned:
                    raise AttemptError(
                        "the same copy was abandoned, and somebody may be deleting it",
                        ledger_id=copy.ledger_ids[0],
                        found=copy.uuid,
                        hint="`offload gc` deletes what is left of it; then call this again.",
                    )
                lease = lease_of(copy.driver)
            elif is_same_place(tier_record(self.tier), copy.driver):
                why = "an attempt at another copy was broken off"
                steps.abandon(copy, why)
                self._delete(copy, why)
        return lease

    def _delete(self, copy: OtherCopy, why: str) -> None:
        """Delete the objects of a copy that was abandoned, and forget it."""
        delete_copy(self.tier, self.name, copy, self.audit, why)
        self._steps.forget(copy, why)
