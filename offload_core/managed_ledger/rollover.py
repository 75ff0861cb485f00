"""When a managed ledger goes on in a new ledger. Source: Pulsar's `managedLedgerMax…` settings, and their defaults."""

from __future__ import annotations

from dataclasses import dataclass

from offload_hooks.errors import OptionError
from offload_hooks.ledger_stores import LedgerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloverPolicy:
    """Bounds of one ledger. Producers that append at the same moment may go past them by what they append then.

    Attributes:
        max_entries: `managedLedgerMaxEntriesPerLedger`.
        max_bytes: of payloads; `managedLedgerMaxSizePerLedgerMbytes`.
        max_age_s: since it was begun, also of a ledger that nobody appends to; `…MaxLedgerRolloverTimeMinutes`.
        min_age_s: a younger ledger is not full, whatever it has; `managedLedgerMinLedgerRolloverTimeMinutes`.
    """

    max_entries: int = 50_000
    max_bytes: int = 2048 << 20
    max_age_s: float = 4 * 3600
    min_age_s: float = 600

    def __post_init__(self) -> None:
        for name, least in (("max_entries", 1), ("max_bytes", 1), ("max_age_s", 0), ("min_age_s", 0)):
            value = getattr(self, name)
            if not value >= least:
                raise OptionError(
                    f"a rollover policy has an impossible {name}", expected=f"{least} or more", found=value
                )

    def is_full(self, status: LedgerStatus, age_s: float) -> bool:
        """Whether a ledger that was begun so long ago is to be sealed; never one without entries."""
        if not status.entry_count or age_s < self.min_age_s:
            return False
        has_enough = status.entry_count >= self.max_entries or status.size_bytes >= self.max_bytes
        return has_enough or age_s >= self.max_age_s
