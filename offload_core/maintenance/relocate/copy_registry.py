"""Registry of moved copies: in records that are ours, or in a mapping beside those that are not.

Both do the same steps: an attempt is written down before its first byte, and the new copy when it is verified. Those in
records are `managed_ledger.replacements`; a mapping is locked by the process that adds to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol
from uuid import UUID

from offload_core.format.codec.object_marks import MAPPED_KEY
from offload_core.maintenance.relocate.planning import Move
from offload_core.metadata.records import (
    DriverMetadata,
    ManagedLedgerInfo,
    OtherCopy,
    OtherRole,
    begin_replacement,
    other_copies,
    switch_replacement,
)
from offload_core.metadata.records.relocations import MappingFile, Relocation, relocated
from offload_core.metadata.records.replacement_record import check_reads
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import no_record
from offload_core.writing.audit import AuditLog
from offload_core.writing.managed_ledger.replacements import ReplacementSteps, step_line
from offload_core.writing.offload.running_attempt import DEFAULT_LEASE_S

_MOVED = "a copy is moved"
_VERIFIED = "a copy was moved, and is verified"


class CopyRegistry(Protocol):
    """Writes down new copies. Calls may come from many threads at once.

    Each step is audited before it is made.

    Attributes:
        marks: user metadata of new copies, beside that of the old ones.
    """

    @property
    def marks(self) -> Mapping[str, str]: ...  # noqa: D102 - see the class

    def info(self, name: str) -> ManagedLedgerInfo:
        """A managed ledger's record, as of now; with what a mapping says. `UnknownTopicError` if there is none."""

    def attempt(
        self, move: Move, copy: OtherCopy, audit: AuditLog
    ) -> AbstractContextManager[Callable[[], None]]:
        """Write an attempt down; in the block it is this process's. Gives what raises if it was taken over."""

    def switch(self, move: Move, copy: OtherCopy, filters: Mapping[int, str], audit: AuditLog) -> None:
        """Write down that the new copy is the one to be read. `AttemptError` if it may not be."""

    def abandon(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """Write down that what was left of an attempt is never read, before its objects are deleted.

        `LiveAttemptError` if its lease is held.
        """

    def give_up(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> bool:
        """The same of an attempt of this process; whether its objects may be deleted: not if it is read."""

    def forget(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """Write down that the objects of one that was abandoned or replaced are deleted."""

    def others(self, name: str) -> tuple[OtherCopy, ...]:
        """Return what was left of attempts, and what was replaced."""


def as_switched(
    info: ManagedLedgerInfo, move: Move, uuid: UUID, driver: DriverMetadata, filters: Mapping[int, str]
) -> ManagedLedgerInfo:
    """The record as it will be."""
    if all(copy.uuid != uuid for copy in other_copies(info)):
        info = begin_replacement(
            info, move.ledger_ids, uuid, move.form, driver, since_ms=0, segment=move.segment
        )
    return switch_replacement(info, uuid, 0, filters)


class RecordRegistry:
    """Records that are ours to write; see `CopyRegistry`."""

    marks: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        records: ManagedLedgerRecords,
        now_ms: Callable[[], int],
        *,
        lease_s: float = DEFAULT_LEASE_S,
    ) -> None:
        self._records = records
        self._now_ms = now_ms
        self._lease_s = lease_s

    def info(self, name: str) -> ManagedLedgerInfo:
        """See `CopyRegistry`."""
        return self._records.require(name).info

    def attempt(
        self, move: Move, copy: OtherCopy, audit: AuditLog
    ) -> AbstractContextManager[Callable[[], None]]:
        """See `CopyRegistry`."""
        recorded = replace(copy, since_ms=self._now_ms())
        return self._steps(move.name, audit).attempt(recorded, move.replaces, _MOVED)

    def switch(self, move: Move, copy: OtherCopy, filters: Mapping[int, str], audit: AuditLog) -> None:
        """See `CopyRegistry`."""
        self._steps(move.name, audit).switch(copy, move.replaces, _VERIFIED, filters)

    def abandon(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """See `CopyRegistry`."""
        self._steps(name, audit).abandon(copy, why)

    def give_up(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> bool:
        """See `CopyRegistry`."""
        return self._steps(name, audit).give_up(copy, why)

    def forget(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """See `CopyRegistry`."""
        self._steps(name, audit).forget(copy, why)

    def others(self, name: str) -> tuple[OtherCopy, ...]:
        """See `CopyRegistry`."""
        return other_copies(self.info(name))

    def _steps(self, name: str, audit: AuditLog) -> ReplacementSteps:
        return ReplacementSteps(
            records=self._records, name=name, audit=audit, now_ms=self._now_ms, lease_s=self._lease_s
        )


class MappingRegistry:
    """A mapping beside records that are not ours; see `CopyRegistry`. What it says is read as if it were recorded.

    Args:
        read: the record of a managed ledger, as of now; None if there is none.
    """

    marks: Mapping[str, str] = MappingProxyType({MAPPED_KEY: "1"})

    def __init__(
        self,
        file: MappingFile,
        read: Callable[[str], ManagedLedgerInfo | None],
        now_ms: Callable[[], int],
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

    @contextmanager
    def attempt(self, move: Move, copy: OtherCopy, audit: AuditLog) -> Iterator[Callable[[], None]]:
        """See `CopyRegistry`."""
        info, uuid = self.info(move.name), copy.uuid
        check_reads(info, move.ledger_ids, move.replaces)
        filters = dict.fromkeys(move.ledger_ids, "{}")
        as_switched(info, move, uuid, copy.driver, filters)  # it would be allowed
        relocation = Relocation(
            managed_ledger=move.name,
            ledger_ids=move.ledger_ids,
            uuid=uuid,
            form=move.form,
            replaces=move.replaces,
            driver=copy.driver,
            segment=move.segment,
            since_ms=self._now_ms(),
        )
        audit.record(step_line(move.name, copy, f"{_MOVED}: the mapping has its attempt", move.replaces))
        with self._lock:
            self._begun[uuid] = relocation
            self._file.add("begin", relocation)
        yield lambda: None

    def switch(self, move: Move, copy: OtherCopy, filters: Mapping[int, str], audit: AuditLog) -> None:
        """See `CopyRegistry`."""
        check_reads(self.info(move.name), move.ledger_ids, move.replaces)
        audit.record(step_line(move.name, copy, f"{_VERIFIED}: the mapping names it", move.replaces))
        with self._lock:
            begun = self._begun[copy.uuid]
            self._file.add("done", replace(begun, done_ms=self._now_ms(), filters=dict(filters)))
            del self._begun[copy.uuid]  # not before: what may be done is none that was left

    def abandon(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """No other process works on it: the mapping is locked. What is not done is never read."""

    def give_up(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> bool:  # noqa: ARG002
        """Always: what is not done is never read."""
        return True

    def forget(self, name: str, copy: OtherCopy, why: str, audit: AuditLog) -> None:
        """See `CopyRegistry`."""
        with self._lock:
            self._begun.pop(copy.uuid, None)
            for relocation in self._file.mapped.under_way:
                if relocation.uuid == copy.uuid and relocation.managed_ledger == name:
                    audit.record(step_line(name, copy, f"{why}: the mapping forgets it"))
                    self._file.add("dropped", relocation)

    def others(self, name: str) -> tuple[OtherCopy, ...]:
        """See `CopyRegistry`."""
        with self._lock:
            return tuple(
                OtherCopy(
                    role=OtherRole.REPLACEMENT,
                    uuid=each.uuid,
                    form=each.form,
                    driver=each.driver,
                    since_ms=each.since_ms,
                    segment=each.segment,
                    ledger_ids=each.ledger_ids,
                )
                for each in self._file.mapped.under_way
                if each.managed_ledger == name and each.uuid not in self._begun
            )
