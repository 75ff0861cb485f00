"""The lease of an offload attempt: which process is at it, and until when that is to be believed.

It stands in the attempt's driver metadata as a property, `lease`, which Pulsar passes over; a complete copy has none.
It spares work and keeps nothing safe: that is for compare-and-set and the attempt's uuid. So a lease that cannot be
read is none. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from offload_core.metadata.offload_context import DriverMetadata

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
