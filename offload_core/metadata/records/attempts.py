"""Attempts in records: each is one try at a ledger's offload, at a segment, or at a replacement of a copy.

    begun ──▶ complete                     its copy is read
      └─────▶ abandoned ──▶ forgotten      it never becomes complete; its objects are deleted; nothing names it any more

`TRANSITIONS` is the table of that, for all three kinds. They differ in where a record has them: in a ledger's context
(`offload_attempt`), in shares of ledgers (`segments`), in a property of the context (`copy_replacement`).

The lease tells which process works on an attempt, and until when that is to be believed. It stands in the attempt's
driver metadata as a property, `lease`, which Pulsar passes over; a complete copy has none. It spares work and keeps
nothing safe: that is for compare-and-set and the attempt's uuid. So a lease that cannot be read is none. Source:
docs/formats/metadata.md.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from offload_core.metadata.records.offload_context import (
    FAILED,
    STATUS_PROPERTY,
    AttemptStatus,
    DriverMetadata,
)
from offload_hooks.errors import AttemptError

LEASE_PROPERTY = "lease"
_LEASE = re.compile(r"([0-9a-f]{16}):([1-9][0-9]{0,9}):([0-9]{1,19}):([0-9]{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHolder:
    """A process, as it can be told from all others.

    Attributes:
        machine: 64 bits: the machine since it was started, and the process's part of it.
        process: its id there.
        started: when it began, in a unit of the machine's; 0 where that is not known.
    """

    machine: int
    process: int
    started: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLease:
    """Who is at an attempt; `until_ms` (since 1970, UTC) it is not to be taken, if the holder lives."""

    holder: AttemptHolder
    until_ms: int

    def __str__(self) -> str:
        holder = self.holder
        return f"{holder.machine:016x}:{holder.process}:{holder.started}:{self.until_ms}"


def lease_of(driver: DriverMetadata | None) -> AttemptLease | None:
    """The lease of the attempt that this is recorded of; None if it has none."""
    text = None if driver is None else driver.get(LEASE_PROPERTY)
    match = None if text is None else _LEASE.fullmatch(text)
    if match is None:
        return None
    holder = AttemptHolder(machine=int(match[1], 16), process=int(match[2]), started=int(match[3]))
    return AttemptLease(holder=holder, until_ms=int(match[4]))


def with_lease(driver: DriverMetadata, lease: AttemptLease | None) -> DriverMetadata:
    """The same with this lease; None for without."""
    return driver.with_property(LEASE_PROPERTY, None if lease is None else str(lease))


class AttemptStep(enum.Enum):
    """A step of an attempt after it was begun."""

    GO_ON = "go on"
    """Its lease is renewed, or a segment goes on into another ledger."""
    COMPLETE = "complete"
    ABANDON = "abandon"
    FORGET = "forget"


TRANSITIONS: Mapping[AttemptStep, frozenset[AttemptStatus]] = MappingProxyType(
    {
        AttemptStep.GO_ON: frozenset({AttemptStatus.ASSIGNED}),
        AttemptStep.COMPLETE: frozenset({AttemptStatus.ASSIGNED}),
        AttemptStep.ABANDON: frozenset({AttemptStatus.ASSIGNED, AttemptStatus.FAILED}),
        AttemptStep.FORGET: frozenset({AttemptStatus.ASSIGNED, AttemptStatus.FAILED}),
    }
)
"""From which states each step may be made."""


def check_step(
    step: AttemptStep, status: AttemptStatus, what: str, uuid: UUID, ledger_id: int | None = None
) -> None:
    """Refuse a step that an attempt's state does not allow (`AttemptError`); `what` names the attempt."""
    if status not in TRANSITIONS[step]:
        how = "is complete already" if status is AttemptStatus.OFFLOADED else "was abandoned"
        raise AttemptError(f"{what} {how}", ledger_id=ledger_id, found=uuid)


def status_of(driver: DriverMetadata | None, *, complete: bool = False) -> AttemptStatus:
    """The state of the attempt that this is recorded of."""
    if complete:
        return AttemptStatus.OFFLOADED
    failed = driver is not None and driver.get(STATUS_PROPERTY) == FAILED
    return AttemptStatus.FAILED if failed else AttemptStatus.ASSIGNED


def abandoned(driver: DriverMetadata) -> DriverMetadata:
    """The same of an attempt that was abandoned."""
    return with_lease(driver, None).with_property(STATUS_PROPERTY, FAILED)
