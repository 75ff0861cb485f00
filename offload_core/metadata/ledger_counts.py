"""What a record says of how many entries a closed ledger has, and of their bytes: corrected, from record to record.

The step does nothing to its own result, so that it can be given to `ManagedLedgerRecords.update`. It refuses, with an
`AttemptError`, a ledger that is not as it was when it was counted. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from offload_core.metadata.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.segment_places import ledger_of
from offload_core.metadata.segment_shares import shares_of
from offload_hooks.errors import AttemptError


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerCounts:
    """How many entries a ledger has, and the bytes of them all; None where a record does not say it."""

    entries: int | None
    size_bytes: int | None

    def __str__(self) -> str:
        return f"entries {self.entries}, size {self.size_bytes}"


def counts_of(ledger: LedgerRecord) -> LedgerCounts:
    """What a record says."""
    return LedgerCounts(entries=ledger.info.entries, size_bytes=ledger.info.size)


def copies_read(ledger: LedgerRecord) -> tuple[UUID, ...]:
    """The attempts that a ledger is read from, in their order; none if one of them is not complete."""
    context = ledger.context
    if context is None or context.uuid is None or ledger.is_condemned:
        return ()
    shares = shares_of(ledger)
    if not shares:
        return (context.uuid,) if context.complete else ()
    return tuple(share.uuid for share in shares) if all(share.complete for share in shares) else ()


def correct_counts(
    info: ManagedLedgerInfo,
    ledger_id: int,
    copies: Sequence[UUID],
    before: LedgerCounts,
    counts: LedgerCounts,
) -> ManagedLedgerInfo:
    """Record how many entries a closed ledger has, and their bytes.

    Args:
        copies: that were counted: the ledger is read from these, and no others.
        before: what the record said then.

    Raises:
        AttemptError: the ledger is gone, or open, or has other copies by now, or its record says something else.
    """
    ledger = ledger_of(info, ledger_id)
    if not ledger.info.is_closed or copies_read(ledger) != tuple(copies):
        raise AttemptError(
            "the ledger has other copies by now",
            ledger_id=ledger_id,
            expected=", ".join(map(str, copies)),
            found=", ".join(map(str, copies_read(ledger))) or "none that is complete",
        )
    if counts_of(ledger) == counts:
        return info
    if counts_of(ledger) != before:
        raise AttemptError(
            "the ledger's record was changed meanwhile",
            ledger_id=ledger_id,
            expected=before,
            found=counts_of(ledger),
        )
    changed = replace(ledger.info, entries=counts.entries, size=counts.size_bytes)
    return info.with_ledger(replace(ledger, info=changed))
