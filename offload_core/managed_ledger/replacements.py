"""A copy in a tier that takes the place of one other, in records that are ours: what it is, and its steps.

    attempt      what dead attempts at these ledgers left is cleaned, the new one recorded
    switch       it is verified: from now on it is read
    at_once      the same for a copy that is there already
    give_up      it failed: abandoned, its objects deleted, forgotten
    forget_old   what it replaced is gone

How each is made has `replacement_steps`; here is which copy it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from offload_core.audit import AuditLog
from offload_core.catalogue.known_tiers import is_same_place, tier_record
from offload_core.catalogue.listing import look_up
from offload_core.catalogue.recorded_copies import other_copy_key
from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.managed_ledger.replacement_steps import ReplacementSteps, delete_copy
from offload_core.metadata import (
    ManagedLedgerInfo,
    ManagedLedgerRecords,
    OtherCopy,
    OtherRole,
    other_copies,
    switch_replacement,
)
from offload_core.metadata.attempt_lease import AttemptLease, lease_of
from offload_core.offload.running_attempt import DEFAULT_LEASE_S
from offload_core.tier import Tier
from offload_hooks.errors import AttemptError


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
        """Delete what attempts have left at these ledgers that nobody is at; the lease of this one's, if it is one."""
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
