"""`Offloads`: what moves the ledgers of managed ledgers to one tier, or to those that policies name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from offload_core.metadata.records import DriverMetadata, LedgerRecord, OtherCopy
from offload_core.metadata.records.filter_record import FilterRecord
from offload_core.writing.offload.ledger_offloader import ProgressListener
from offload_core.writing.offload_filters import FilterRun

Announce = Callable[[UUID, str], None]
"""Told of each attempt whose objects are about to be deleted, and why; if it raises, they are not."""


AnnounceHot = Callable[[tuple[FilterRecord, ...]], None]
"""Told that a hot copy is about to be deleted, and what filters took out of the cold one; if it raises, it is not."""


def to_nobody(_: UUID, __: str) -> None:
    """An `Announce` for callers that keep no audit log."""


class Offloads(Protocol):
    """Offloads ledgers with their records. Calls may come from many threads at once; see `RecordedOffloads`."""

    def offload(
        self,
        name: str,
        ledger_id: int,
        *,
        filter_run: FilterRun | None = None,
        listener: ProgressListener | None = None,
        announce: Announce = to_nobody,
    ) -> bool:
        """Offload a ledger; whether it was not before. What the listener raises ends it."""

    def delete_hot_copy(
        self, name: str, ledger_id: int, lag_ms: int, *, announce: AnnounceHot | None = None
    ) -> bool:
        """Delete a ledger's hot copy if its cold one is complete for so long, and there; whether it is gone now."""

    def delete_cold_copy(self, name: str, ledger: LedgerRecord) -> None:
        """Delete the object of a ledger of a managed ledger, whose record says that it is not to be read any more."""

    def delete_other_copy(self, name: str, copy: OtherCopy) -> None:
        """Delete the objects of a copy that was replaced, or was to replace another, of ledgers to be deleted."""

    def delete_segment(self, name: str, uuid: UUID, driver: DriverMetadata | None) -> None:
        """Delete the objects of a segment that no ledger of a managed ledger has, but such as are to be deleted."""
