"""The registry of current copies: by which steps a new copy takes the place of others, in records or in a mapping.

    attempt   the new copy is recorded, before its first byte; its lease keeps other processes away
    switch    it is verified: from now on it is read
    abandon   what a dead attempt left never becomes current; then its objects are deleted
    give_up   the same of an attempt of this process that failed
    forget    the objects of a copy that was abandoned, or replaced, are deleted

`RecordRegistry` makes them in records that are ours, each as a compare-and-set of `metadata.records.replacements`.
`MappingRegistry` makes them in a file beside records that are not ours, which is locked by the process that adds to it.
Each step is audited before it is made, and can be repeated. `Replacement` is one copy that takes the place of one other
in our records. Source: docs/formats/metadata.md, docs/formats/relocations.md, docs/formats/audit-log.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Protocol
from uuid import UUID

from offload_core.format.codec.object_marks import MAPPED_KEY
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
from offload_core.metadata.records.relocations import MappingFile, Relocation, relocated
from offload_core.metadata.records.replacements import check_reads, find_replacement
from offload_core.metadata.records.segments import as_written
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import no_record
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction, Deletion
from offload_core.writing.offload.attempt_objects import delete_attempt
from offload_core.writing.offload.running_attempt import DEFAULT_LEASE_S, RunningAttempt, check_over
from offload_hooks.errors import AttemptError, UnknownTopicError

NO_FILTERS: Mapping[int, str] = MappingProxyType({})


class CopyRegistry(Protocol):
    """The registry of current copies. Calls may come from many threads at once.

    `name` is the managed ledger's, `why` is for the audit log. Each step raises `AttemptError` if the record does not
    allow it, `UnknownTopicError` if there is none, and `StoreError` of the metadata store or the audit log.

    Attributes:
        marks: user metadata of new copies, beside that of the old ones.
    """

    @property
    def marks(self) -> Mapping[str, str]: ...  # noqa: D102 - see the class

    def info(self, name: str) -> ManagedLedgerInfo:
        """A managed ledger's record, as of now, with the changes of a mapping."""

    def others(self, name: str) -> tuple[OtherCopy, ...]:
        """The copies that are named and not read: left by attempts, or replaced."""

    def attempt(
        self, name: str, copy: OtherCopy, replaces: Sequence[UUID], why: str, audit: AuditLog
    ) -> AbstractContextManager[Callable[[], None]]:
        """Record an attempt, which is this process's in the block; gives what raises if it was taken over.

        Args:
            copy: as it is to be recorded; without a lease.
            replaces: the copies that it takes the place of, which its ledgers read.
        """

    def switch(
        self,
        name: str,
        copy: OtherCopy,
        replaces: Sequence[UUID],
        why: str,
        audit: AuditLog,
        filters: Mapping[int, str] = NO_FILTERS,
    ) -> None:
        """Switch to the new copy; `filters` as of `switch_replacement`."""

    def abandon(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """Ensure that an attempt's remains never become current; `LiveAttemptError` if its lease is held."""

    def give_up(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> bool:
        """Abandon an attempt of this process; return True if its objects may be deleted: the copy is not read."""

    def forget(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """Forget a copy whose objects are deleted, as well of a topic that does not exist any more."""


def as_switched(
    info: ManagedLedgerInfo, copy: OtherCopy, filters: Mapping[int, str] = NO_FILTERS
) -> ManagedLedgerInfo:
    """The record as it will be when a new copy is read."""
    if find_replacement(info, copy.uuid) is None:
        info = begin_replacement(info, copy)
    return switch_replacement(info, copy.uuid, 0, filters)


class RecordRegistry:
    """Records that are ours to write; see `CopyRegistry`.

    Args:
        now_ms: the time, in ms since 1970, UTC.
        lease_s: the time for which each renewal keeps other processes away.
    """

    marks: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self, records: ManagedLedgerRecords, now_ms: Callable[[], int], *, lease_s: float = DEFAULT_LEASE_S
    ) -> None:
        self._records = records
        self._now_ms = now_ms
        self._lease_s = lease_s

    def info(self, name: str) -> ManagedLedgerInfo:
        """See `CopyRegistry`."""
        return self._records.require(name).info

    def others(self, name: str) -> tuple[OtherCopy, ...]:
        """See `CopyRegistry`."""
        return other_copies(self.info(name))

    @contextmanager
    def attempt(
        self,
        name: str,
        copy: OtherCopy,
        replaces: Sequence[UUID],
        why: str,
        audit: AuditLog,
        *,
        expired: AttemptLease | None = None,
    ) -> Iterator[Callable[[], None]]:
        """See `CopyRegistry`; `expired` is the lease of a dead attempt at the same copy, to go on with that."""
        uuid = copy.uuid
        copy = replace(copy, since_ms=self._now_ms())

        def renew(info: ManagedLedgerInfo, /, *, lease: AttemptLease) -> ManagedLedgerInfo:
            return renew_replacement(info, uuid, lease)

        running = RunningAttempt(
            self._records,
            name,
            copy.ledger_ids[0],
            uuid,
            lease_s=self._lease_s,
            now_ms=self._now_ms,
            renew=renew,
        )
        with running:
            lease = running.lease()

            def begin(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
                check_reads(info, copy.ledger_ids, replaces)
                known = find_replacement(info, uuid)
                if known is None or known.is_abandoned:
                    return begin_replacement(info, copy, lease=lease)
                found = lease_of(known.driver)
                if found == lease:
                    return info
                if found != expired:
                    raise AttemptError(
                        "another process has begun the same copy", ledger_id=known.ledger_ids[0], found=uuid
                    )
                return renew_replacement(info, uuid, lease)

            audit.record(_step_line(name, copy, f"{why}: the copy that it will be", replaces))
            self._records.update(name, begin)
            running.keep_lease()
            try:
                yield running.check
            except Exception:
                running.notice_loss()
                raise

    def switch(
        self,
        name: str,
        copy: OtherCopy,
        replaces: Sequence[UUID],
        why: str,
        audit: AuditLog,
        filters: Mapping[int, str] = NO_FILTERS,
    ) -> None:
        """See `CopyRegistry`."""
        now = self._now_ms()

        def switch(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            if copy.uuid not in read_copies(info):
                check_reads(info, copy.ledger_ids, replaces)
            return switch_replacement(info, copy.uuid, now, filters)

        audit.record(_step_line(name, copy, f"{why}: the copy that is read", replaces))
        self._records.update(name, switch)

    def switch_at_once(
        self,
        name: str,
        copy: OtherCopy,
        replaces: Sequence[UUID],
        why: str,
        audit: AuditLog,
        is_there: Callable[[], bool],
    ) -> None:
        """Switch to a copy that exists and is verified; `LiveAttemptError` if its lease is held.

        It is never recorded as one that may be cleaned up.

        Args:
            is_there: whether its objects still are; asked once it is recorded, for until then it may be deleted.
        """
        now, uuid = self._now_ms(), copy.uuid
        before = after = self.info(name)

        def change(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            nonlocal before, after
            if uuid in read_copies(info):  # also by a write of ours whose answer was lost
                return info
            before = info
            check_reads(info, copy.ledger_ids, replaces)
            known = find_replacement(info, uuid)
            if known is None or known.is_abandoned:
                info = begin_replacement(info, copy)
            else:
                check_over(uuid, known.driver, now, known.ledger_ids[0])
            after = as_written(switch_replacement(info, uuid, now))  # as it is read back
            return after

        def undo(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            changed = (each for each in copy.ledger_ids if info.ledger(each) == after.ledger(each))
            return info.with_ledgers(ledger for each in changed if (ledger := before.ledger(each)))

        audit.record(_step_line(name, copy, f"{why}: the copy that is read", replaces))
        self._records.update(name, change)
        if not is_there():
            audit.record(_step_line(name, copy, "it was deleted meanwhile: the copies are read that were"))
            self._records.update(name, undo)
            raise AttemptError(
                "the copy that was to be read was deleted meanwhile",
                ledger_id=copy.ledger_ids[0],
                found=uuid,
                hint="Call it again: what is left is judged anew.",
            )

    def abandon(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """See `CopyRegistry`."""
        self.check_over(copy)

        def abandon(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            known = find_replacement(info, copy.uuid)
            if known is not None:
                self.check_over(known)
            return abandon_replacement(info, copy.uuid)

        self._abandon(name, copy, why, audit, abandon)

    def give_up(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> bool:
        """See `CopyRegistry`."""
        try:
            self._abandon(name, copy, why, audit, partial(abandon_replacement, uuid=copy.uuid))
        except (AttemptError, UnknownTopicError):
            known = self._records.read(name)
            return known is None or copy.uuid not in read_copies(known.info)
        return True

    def forget(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """See `CopyRegistry`."""
        forget = forget_replaced if copy.role is OtherRole.REPLACED else forget_replacement
        audit.record(_step_line(name, copy, f"{why}: it is forgotten, its objects are gone"))
        with suppress(UnknownTopicError):
            self._records.update(name, partial(forget, uuid=copy.uuid))

    def check_over(self, copy: OtherCopy) -> None:
        """Refuse to touch an attempt whose lease is held (`LiveAttemptError`)."""
        check_over(copy.uuid, copy.driver, self._now_ms(), copy.ledger_ids[0])

    def _abandon(
        self,
        name: str,
        copy: OtherCopy,
        why: str,
        audit: AuditLog,
        abandon: Callable[[ManagedLedgerInfo], ManagedLedgerInfo],
    ) -> None:
        audit.record(_step_line(name, copy, f"{why}: the attempt never takes a copy's place"))
        self._records.update(name, abandon)


class MappingRegistry:
    """A mapping beside records that are not ours; see `CopyRegistry`. They are read as if it were recorded there.

    Args:
        read: the record of a managed ledger, as of now; None if there is none.
    """

    marks: Mapping[str, str] = MappingProxyType({MAPPED_KEY: "1"})

    def __init__(
        self, file: MappingFile, read: Callable[[str], ManagedLedgerInfo | None], now_ms: Callable[[], int]
    ) -> None:
        self._file = file
        self._read = read
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._begun: dict[UUID, Relocation] = {}

    def info(self, name: str) -> ManagedLedgerInfo:
        """See `CopyRegistry`."""
        found = self._read(name)
        if found is None:
            raise no_record(name)
        return relocated(found, self._file.mapped.of(name))

    def others(self, name: str) -> tuple[OtherCopy, ...]:
        """See `CopyRegistry`."""
        with self._lock:
            return tuple(
                each.copy
                for each in self._file.mapped.under_way
                if each.managed_ledger == name and each.copy.uuid not in self._begun
            )

    @contextmanager
    def attempt(
        self, name: str, copy: OtherCopy, replaces: Sequence[UUID], why: str, audit: AuditLog
    ) -> Iterator[Callable[[], None]]:
        """See `CopyRegistry`."""
        info = self.info(name)
        check_reads(info, copy.ledger_ids, replaces)
        as_switched(info, copy, dict.fromkeys(copy.ledger_ids, "{}"))  # it would be allowed
        begun = Relocation(
            managed_ledger=name, copy=replace(copy, since_ms=self._now_ms()), replaces=tuple(replaces)
        )
        audit.record(_step_line(name, copy, f"{why}: the mapping has its attempt", replaces))
        with self._lock:
            self._begun[copy.uuid] = begun
            self._file.add("begin", begun)
        yield lambda: None

    def switch(
        self,
        name: str,
        copy: OtherCopy,
        replaces: Sequence[UUID],
        why: str,
        audit: AuditLog,
        filters: Mapping[int, str] = NO_FILTERS,
    ) -> None:
        """See `CopyRegistry`."""
        check_reads(self.info(name), copy.ledger_ids, replaces)
        audit.record(_step_line(name, copy, f"{why}: the mapping names it", replaces))
        with self._lock:
            begun = self._begun[copy.uuid]
            self._file.add("done", replace(begun, done_ms=self._now_ms(), filters=dict(filters)))
            del self._begun[copy.uuid]  # not before: what may be done was not left by a dead attempt

    def abandon(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """Do nothing: the mapping is locked, so no other process works on it, and unfinished changes are never read."""

    def give_up(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> bool:  # noqa: ARG002
        """Return True: unfinished changes are never read."""
        return True

    def forget(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """See `CopyRegistry`."""
        with self._lock:
            self._begun.pop(copy.uuid, None)
            for relocation in self._file.mapped.under_way:
                if relocation.copy.uuid == copy.uuid and relocation.managed_ledger == name:
                    audit.record(_step_line(name, copy, f"{why}: the mapping forgets it"))
                    self._file.add("dropped", relocation)


def _step_line(name: str, copy: OtherCopy, why: str, replaces: Sequence[UUID] | None = None) -> Change:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A copy that is to take the place of another, in records that are ours.

    Attributes:
        name: the managed ledger's.
        copy: as it is to be recorded; without a lease.
        old: the copy that it takes the place of.
        tier: where it is written; what attempts left in other tiers is not touched.
        why: in words, for the audit log.
    """

    registry: RecordRegistry
    name: str
    copy: OtherCopy
    old: UUID
    tier: Tier
    audit: AuditLog
    why: str

    @contextmanager
    def attempt(self) -> Iterator[Callable[[], None]]:
        """Clean up after dead attempts, and record this one; gives what raises if it was taken over.

        Raises:
            LiveAttemptError: another process makes a new copy of these ledgers; nothing was changed.
            AttemptError: the record does not allow it.
            StoreError: of the metadata store, the tier, or the audit log.
        """
        expired = self._clean()
        with self.registry.attempt(
            self.name, self.copy, [self.old], self.why, self.audit, expired=expired
        ) as check:
            yield check

    def switched(self, filters: Mapping[int, str] = NO_FILTERS) -> ManagedLedgerInfo:
        """The record as it will be; errors as of `attempt`."""
        return switch_replacement(self.registry.info(self.name), self.copy.uuid, 0, filters)

    def switch(self, filters: Mapping[int, str] = NO_FILTERS) -> None:
        """Switch to the new copy; errors as of `attempt`."""
        self.registry.switch(self.name, self.copy, [self.old], self.why, self.audit, filters)

    def switch_at_once(self) -> None:
        """Switch to a copy that exists and is verified; errors as of `attempt`, also if it was deleted meanwhile."""
        self._clean()
        key = other_copy_key(topic_of_managed_ledger(self.name), self.copy)

        def is_there() -> bool:
            return all(look_up(self.tier, each) is not None for each in (key.index_key, key.data_key))

        self.registry.switch_at_once(self.name, self.copy, [self.old], self.why, self.audit, is_there)

    def give_up(self, why: str) -> None:
        """Clean up after an attempt of this process that failed, unless it is read; errors as of `attempt`."""
        if self.registry.give_up(self.name, self.copy, why, self.audit):
            self._delete(self.copy, why)

    def forget_old(self) -> None:
        """Forget the old copy, whose objects are gone; errors as of `attempt`."""
        for copy in self.registry.others(self.name):
            if copy.uuid == self.old and copy.role is OtherRole.REPLACED:
                self.registry.forget(self.name, copy, self.why, self.audit)

    def _clean(self) -> AttemptLease | None:
        """Delete what dead attempts have left at these ledgers; the expired lease of this one's, if any."""
        expired = None
        for copy in self.registry.others(self.name):
            mine = set(copy.ledger_ids) & set(self.copy.ledger_ids)
            if copy.role is not OtherRole.REPLACEMENT or not mine:
                continue
            self.registry.check_over(copy)
            if copy.uuid == self.copy.uuid:
                if copy.is_abandoned:
                    raise AttemptError(
                        "the same copy was abandoned, and another process may be deleting it",
                        ledger_id=copy.ledger_ids[0],
                        found=copy.uuid,
                        hint="`offload gc` deletes what is left of it; then call this again.",
                    )
                expired = lease_of(copy.driver)
            elif is_same_place(tier_record(self.tier), copy.driver):
                why = "an attempt at another copy was broken off"
                self.registry.abandon(self.name, copy, why, self.audit)
                self._delete(copy, why)
        return expired

    def _delete(self, copy: OtherCopy, why: str) -> None:
        """Delete the objects of a copy that was abandoned, and forget it."""
        delete_copy(self.tier, self.name, copy, self.audit, why)
        self.registry.forget(self.name, copy, why, self.audit)
