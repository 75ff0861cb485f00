"""Where it is written down that a copy has moved: in records that are ours, or in a mapping beside those that are not.

Both do the same steps: an attempt is written down before its first byte, and the new copy when it is verified. A record
is changed by compare-and-set, and an attempt has a lease there; a mapping is locked by whoever adds to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Protocol
from uuid import UUID

from offload_core.codec.stand_ins import MAPPED_KEY
from offload_core.metadata import (
    DriverMetadata,
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
from offload_core.metadata.attempt_lease import AttemptLease
from offload_core.metadata.relocations import MappingFile, Relocation, relocated
from offload_core.offload.running_attempt import DEFAULT_LEASE_S, RunningAttempt, check_over
from offload_core.relocate.model import Move
from offload_hooks.errors import AttemptError, UnknownTopicError


class Book(Protocol):
    """Writes down new copies. Calls may come from many threads at once.

    Attributes:
        marks: user metadata of new copies, beside that of the old ones.
    """

    @property
    def marks(self) -> Mapping[str, str]: ...  # noqa: D102 - see the class

    def info(self, name: str) -> ManagedLedgerInfo:
        """A managed ledger's record, as of now; with what a mapping says. `UnknownTopicError` if there is none."""

    def attempt(
        self, move: Move, uuid: UUID, driver: DriverMetadata
    ) -> AbstractContextManager[Callable[[], None]]:
        """Write an attempt down; in the block it is this process's. Gives what raises if it was taken over."""

    def switch(self, move: Move, uuid: UUID, filters: Mapping[int, str]) -> None:
        """Write down that the new copy is the one to be read. `AttemptError` if it may not be."""

    def abandon(self, name: str, copy: OtherCopy, *, is_mine: bool) -> None:
        """Write down that a copy never is the one to be read, before its objects are deleted.

        `LiveAttemptError` if somebody is at it, and it is not `is_mine`.
        """

    def forget(self, name: str, copy: OtherCopy) -> None:
        """Write down that the objects of one that was abandoned or replaced are deleted."""

    def others(self, name: str) -> tuple[OtherCopy, ...]:
        """What was left of attempts, and what was replaced."""


def as_switched(
    info: ManagedLedgerInfo, move: Move, uuid: UUID, driver: DriverMetadata, filters: Mapping[int, str]
) -> ManagedLedgerInfo:
    """The record as it will be."""
    if all(copy.uuid != uuid for copy in other_copies(info)):
        info = begin_replacement(
            info, move.ledger_ids, uuid, move.form, driver, since_ms=0, segment=move.segment
        )
    return switch_replacement(info, uuid, 0, filters)


class RecordBook:
    """Records that are ours to write; see `Book`."""

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
        """See `Book`."""
        known = self._records.read(name)
        if known is None:
            raise UnknownTopicError("there is no record of this managed ledger", found=name)
        return known.info

    @contextmanager
    def attempt(self, move: Move, uuid: UUID, driver: DriverMetadata) -> Iterator[Callable[[], None]]:
        """See `Book`."""

        def renew(info: ManagedLedgerInfo, lease: AttemptLease) -> ManagedLedgerInfo:
            return renew_replacement(info, uuid, lease)

        running = RunningAttempt(
            self._records,
            move.name,
            move.ledger_ids[0],
            uuid,
            lease_s=self._lease_s,
            now_ms=self._now_ms,
            renew=renew,
        )
        with running:
            since = self._now_ms()

            def begin(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
                check_replaces(info, move)
                return begin_replacement(
                    info,
                    move.ledger_ids,
                    uuid,
                    move.form,
                    driver,
                    since,
                    segment=move.segment,
                    lease=running.lease(),
                )

            self._records.update(move.name, begin)
            running.keep_lease()
            yield running.check

    def switch(self, move: Move, uuid: UUID, filters: Mapping[int, str]) -> None:
        """See `Book`."""
        now = self._now_ms()

        def switch(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            if uuid not in read_copies(info):
                check_replaces(info, move)
            return switch_replacement(info, uuid, now, filters)

        self._records.update(move.name, switch)

    def abandon(self, name: str, copy: OtherCopy, *, is_mine: bool) -> None:
        """See `Book`."""

        def abandon(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            for known in () if is_mine else other_copies(info):
                if known.uuid == copy.uuid and known.role is OtherRole.REPLACEMENT:
                    check_over(known.uuid, known.driver, self._now_ms(), known.ledger_ids[0])
            return abandon_replacement(info, copy.uuid)

        self._records.update(name, abandon)

    def forget(self, name: str, copy: OtherCopy) -> None:
        """See `Book`."""
        forget = forget_replaced if copy.role is OtherRole.REPLACED else forget_replacement
        with suppress(UnknownTopicError):
            self._records.update(name, partial(forget, uuid=copy.uuid))

    def others(self, name: str) -> tuple[OtherCopy, ...]:
        """See `Book`."""
        return other_copies(self.info(name))


class MappingBook:
    """A mapping beside records that are not ours; see `Book`. What it says is read as if it were recorded.

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
        """See `Book`."""
        found = self._read(name)
        if found is None:
            raise UnknownTopicError("there is no record of this managed ledger", found=name)
        return relocated(found, self._file.mapped.of(name))

    @contextmanager
    def attempt(self, move: Move, uuid: UUID, driver: DriverMetadata) -> Iterator[Callable[[], None]]:
        """See `Book`."""
        info = self.info(move.name)
        check_replaces(info, move)
        as_switched(info, move, uuid, driver, dict.fromkeys(move.ledger_ids, "{}"))  # it would be allowed
        relocation = Relocation(
            managed_ledger=move.name,
            ledger_ids=move.ledger_ids,
            uuid=uuid,
            form=move.form,
            replaces=move.replaces,
            driver=driver,
            segment=move.segment,
            since_ms=self._now_ms(),
        )
        with self._lock:
            self._begun[uuid] = relocation
            self._file.add("begin", relocation)
        yield lambda: None

    def switch(self, move: Move, uuid: UUID, filters: Mapping[int, str]) -> None:
        """See `Book`."""
        check_replaces(self.info(move.name), move)
        with self._lock:
            begun = self._begun[uuid]
            self._file.add("done", replace(begun, done_ms=self._now_ms(), filters=dict(filters)))
            del self._begun[uuid]  # not before: what may be done is none that was left

    def abandon(self, name: str, copy: OtherCopy, *, is_mine: bool) -> None:
        """Nobody else is at it: the mapping is locked. What is not done is never read."""

    def forget(self, name: str, copy: OtherCopy) -> None:
        """See `Book`."""
        with self._lock:
            self._begun.pop(copy.uuid, None)
            for relocation in self._file.mapped.under_way:
                if relocation.uuid == copy.uuid and relocation.managed_ledger == name:
                    self._file.add("dropped", relocation)

    def others(self, name: str) -> tuple[OtherCopy, ...]:
        """See `Book`."""
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


def check_replaces(info: ManagedLedgerInfo, move: Move) -> None:
    """Refuse to go on if the copies are others by now (`AttemptError`)."""
    found: list[UUID] = []
    for ledger_id in move.ledger_ids:
        ledger = info.ledger(ledger_id)
        context = None if ledger is None else ledger.context
        if context is None or context.uuid is None:
            continue
        found += [share.uuid for share in context.segments] or [context.uuid]
    if not set(found).issuperset(move.replaces):
        raise AttemptError(
            "the ledgers have other copies by now",
            ledger_id=move.ledger_ids[0],
            expected=", ".join(map(str, move.replaces)),
            found=", ".join(map(str, found)) or "none",
        )
