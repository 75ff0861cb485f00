"""A copy that takes the place of others, in records that are ours: its attempt with a lease, and each step audited.

    attempt      what a dead attempt left is cleaned, the new one recorded; in the block it is this process's
    switch       it is verified: from now on it is read
    at_once      the same for a copy that is there already: it is never recorded as one that may be cleaned up
    give_up      it failed: abandoned, its objects deleted, forgotten
    forget_old   what it replaced is gone

Each step is written down in the audit log before it is made, and can be made again. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from uuid import UUID

from offload_core.audit import AuditLog, Change, ChangeAction, Deletion
from offload_core.catalogue.known_tiers import is_same_place, tier_record
from offload_core.catalogue.recorded import other_copy_key
from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata import (
    ManagedLedgerInfo,
    ManagedLedgerRecords,
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
from offload_core.metadata.attempt_lease import AttemptLease, lease_of
from offload_core.offload.attempt_objects import delete_attempt
from offload_core.offload.running_attempt import DEFAULT_LEASE_S, RunningAttempt, check_over
from offload_core.tier import Tier
from offload_hooks.errors import AttemptError, UnknownTopicError


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One copy that is to take the place of another.

    Attributes:
        name: the managed ledger's.
        copy: it, as it is to be recorded; without a lease.
        old: the copy that it takes the place of.
        tier: where it is written; an attempt that somebody left elsewhere is not touched.
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
            LiveAttemptError: somebody else is at a new copy of these ledgers; nothing was changed.
            AttemptError: the record does not allow it.
            StoreError: of the metadata store, the tier, or the audit log.
        """
        seen = self._clean()
        uuid = self.copy.uuid
        running = RunningAttempt(
            self.records,
            self.name,
            self.copy.ledger_ids[0],
            uuid,
            lease_s=self.lease_s,
            now_ms=self.now_ms,
            renew=self._renew,
        )
        with running:
            lease = running.lease()

            def begin(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
                self._check_reads(info)
                known = _find(info, uuid)
                if known is None or known.is_abandoned:
                    return self._begun(info, lease)
                found = lease_of(known.driver)
                if found == lease:
                    return info
                if found != seen:
                    raise AttemptError(
                        "somebody else has begun the same copy", ledger_id=known.ledger_ids[0], found=uuid
                    )
                return renew_replacement(info, uuid, lease)

            self._record("the copy that it will be")
            self.records.update(self.name, begin)
            running.keep_lease()
            yield running.check

    def switched(self, filters: Mapping[int, str] = MappingProxyType({})) -> ManagedLedgerInfo:
        """The record as it will be; errors as of `attempt`."""
        known = self.records.read(self.name)
        if known is None:
            raise UnknownTopicError("there is no record of this managed ledger", found=self.name)
        return switch_replacement(known.info, self.copy.uuid, 0, filters)

    def switch(self, filters: Mapping[int, str] = MappingProxyType({})) -> None:
        """Have the new copy read; errors as of `attempt`."""
        now = self.now_ms()

        def switch(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            if self.copy.uuid not in read_copies(info):
                self._check_reads(info)
            return switch_replacement(info, self.copy.uuid, now, filters)

        self._record("the copy that is read")
        self.records.update(self.name, switch)

    def at_once(self) -> None:
        """Have a copy read that is there, and verified; errors as of `attempt`."""
        now, uuid = self.now_ms(), self.copy.uuid
        self._clean()

        def change(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            if uuid in read_copies(info):
                return info
            self._check_reads(info)
            known = _find(info, uuid)
            if known is None or known.is_abandoned:
                return switch_replacement(self._begun(info, None), uuid, now)
            check_over(uuid, known.driver, now, known.ledger_ids[0])
            return switch_replacement(info, uuid, now)

        self._record("the copy that is read")
        self.records.update(self.name, change)

    def give_up(self, why: str) -> None:
        """Clean up after an attempt of this process that failed, unless it is read; errors as of `attempt`."""
        known = self.records.read(self.name)
        if known is not None and self.copy.uuid not in read_copies(known.info):
            self._delete(self.copy, why, partial(abandon_replacement, uuid=self.copy.uuid))

    def forget_old(self) -> None:
        """Forget the old copy, whose objects are gone; errors as of `attempt`."""
        self._record("what it replaced is gone")
        self.records.update(self.name, partial(forget_replaced, uuid=self.old))

    def _clean(self) -> AttemptLease | None:
        """Delete what attempts have left at these ledgers that nobody is at; the lease of this one's, if it is one."""
        known = self.records.read(self.name)
        if known is None:
            raise UnknownTopicError("there is no record of this managed ledger", found=self.name)
        lease = None
        for copy in other_copies(known.info):
            mine = set(copy.ledger_ids) & set(self.copy.ledger_ids)
            if copy.role is not OtherRole.REPLACEMENT or not mine:
                continue
            self._check_over(copy)
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
                self._delete(
                    copy, "an attempt at another copy was broken off", partial(self._take_over, copy)
                )
        return lease

    def _check_over(self, copy: OtherCopy) -> None:
        check_over(copy.uuid, copy.driver, self.now_ms(), copy.ledger_ids[0])

    def _take_over(self, copy: OtherCopy, info: ManagedLedgerInfo) -> ManagedLedgerInfo:
        known = _find(info, copy.uuid)
        if known is not None:
            self._check_over(known)
        return abandon_replacement(info, copy.uuid)

    def _delete(
        self, copy: OtherCopy, why: str, abandon: Callable[[ManagedLedgerInfo], ManagedLedgerInfo]
    ) -> None:
        """Abandon a copy, delete its objects, and forget it."""
        self._record("an attempt never takes its place", copy.uuid)
        self.records.update(self.name, abandon)
        self.audit.record(
            Deletion(
                managed_ledger=self.name, ledger_id=copy.ledger_ids[0], copy="cold", why=why, uuid=copy.uuid
            )
        )
        delete_attempt(self.tier, other_copy_key(topic_of_managed_ledger(self.name), copy))
        self._record("an attempt is forgotten, whose objects are deleted", copy.uuid)
        self.records.update(self.name, partial(forget_replacement, uuid=copy.uuid))

    def _begun(self, info: ManagedLedgerInfo, lease: AttemptLease | None) -> ManagedLedgerInfo:
        copy = self.copy
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

    def _renew(self, info: ManagedLedgerInfo, /, *, lease: AttemptLease) -> ManagedLedgerInfo:
        return renew_replacement(info, self.copy.uuid, lease)

    def _check_reads(self, info: ManagedLedgerInfo) -> None:
        if self.old not in read_copies(info):
            raise AttemptError(
                "the ledger has another copy by now", ledger_id=self.copy.ledger_ids[0], expected=self.old
            )

    def _record(self, what: str, uuid: UUID | None = None) -> None:
        """Write a step down, before it is made."""
        self.audit.record(
            Change(
                action=ChangeAction.RECORD,
                why=f"{self.why}: {what}",
                managed_ledger=self.name,
                ledger_id=self.copy.ledger_ids[0],
                uuid=uuid or self.copy.uuid,
                before=str(self.old),
                after=str(self.copy.uuid),
            )
        )


def _find(info: ManagedLedgerInfo, uuid: UUID) -> OtherCopy | None:
    """The attempt of this uuid, if one is recorded."""
    return next(
        (each for each in other_copies(info) if each.uuid == uuid and each.role is OtherRole.REPLACEMENT),
        None,
    )
