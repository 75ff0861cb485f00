"""Which ledgers the thresholds of a policy offload: sealed ones, as Pulsar chooses them.

A ledger is due if it and all sealed ledgers after it hold more than the threshold in bytes, or if it has been sealed
for the threshold in seconds; either is enough. What lies in a tier already counts like what does not. So the ledgers
that are due are the oldest. Source: Pulsar's `ManagedLedgerImpl`; docs/policies.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from offload_core.metadata import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.policies import EffectivePolicies


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLedgers:
    """What the thresholds say of a managed ledger's ledgers that are in no tier yet.

    Attributes:
        ledger_ids: those that are due, the oldest first.
        skipped: all others, by id, and why each is not.
    """

    ledger_ids: tuple[int, ...] = ()
    skipped: Mapping[int, str] = field(default_factory=dict)

    @property
    def target(self) -> EntryPosition | None:
        """The position up to which an offload takes all that is due; None if nothing is."""
        return EntryPosition(self.ledger_ids[-1] + 1, 0) if self.ledger_ids else None


def due_ledgers(info: ManagedLedgerInfo, policies: EffectivePolicies, now_ms: int) -> DueLedgers:
    """What is due by these policies; nothing is where they name no driver."""
    due: list[int] = []
    skipped: dict[int, str] = {}
    newer_bytes = 0
    for ledger in reversed(info.in_order):
        if ledger.info.is_closed and not ledger.is_condemned:
            newer_bytes += ledger.info.size or 0
        if ledger.has_complete_copy:
            continue
        why_not = _why_not(ledger, policies, newer_bytes, now_ms)
        if why_not is None:
            due.append(ledger.ledger_id)
        else:
            skipped[ledger.ledger_id] = why_not
    return DueLedgers(ledger_ids=tuple(reversed(due)), skipped=dict(sorted(skipped.items())))


def _why_not(ledger: LedgerRecord, policies: EffectivePolicies, held_bytes: int, now_ms: int) -> str | None:
    """Why a ledger is not due; None if it is."""
    if ledger.is_condemned:
        return "it is being deleted"
    if not ledger.info.is_closed:
        return "it is open"
    if not ledger.info.entries:
        return "it has no entries"
    if ledger.context is not None and ledger.context.segments:
        return "it is offloaded by segments"
    if policies.driver is None:
        return "no tier is configured"
    limit_bytes, limit_s = policies.threshold_bytes, policies.threshold_s
    if limit_bytes is None and limit_s is None:
        return "no threshold is set"
    reasons = []
    if limit_bytes is not None:
        if held_bytes > limit_bytes:
            return None
        reasons.append(f"{held_bytes} bytes from it on; the threshold is {limit_bytes} bytes")
    if limit_s is not None:
        sealed_s = (now_ms - (ledger.info.timestamp_ms or 0)) / 1000
        if sealed_s >= limit_s:
            return None
        reasons.append(f"sealed {sealed_s:.0f} s ago; the threshold is {limit_s} s")
    return ", and ".join(reasons)
