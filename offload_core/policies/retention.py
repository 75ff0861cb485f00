"""Offload thresholds against retention: what retention would delete first is never offloaded."""

from __future__ import annotations

from dataclasses import dataclass, field

from offload_core.policies.effective import EffectivePolicies, Origin
from offload_core.policies.model import RetentionPolicies
from offload_hooks.errors import OptionError

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OutrunThreshold:
    """A threshold that is not below what retention keeps; the same as another of the same values, whoever says it.

    Attributes:
        name, value: the threshold's. kept: the limit of retention, as text.
        origin: who says the threshold.
    """

    name: str
    value: int
    kept: str
    origin: Origin = field(compare=False)

    def refusal(self, where: str) -> OptionError:
        """The error that refuses it; `where` names the topic or namespace."""
        return OptionError(
            f"{where}: retention would delete ledgers before they are offloaded",
            expected=f"less than {self.kept}",
            found=f"{self.name} = {self.value} ({self.origin})",
        )


def outrun_thresholds(policies: EffectivePolicies, retention: RetentionPolicies) -> list[OutrunThreshold]:
    """The thresholds that are not below what retention keeps.

    A retention of 0 keeps nothing that is consumed and says nothing of what is not; −1 keeps all. Neither is compared.
    """
    kept_s, kept_bytes = retention.time_in_minutes * 60, retention.size_in_mb * _MIB
    compared = (
        (
            "managedLedgerOffloadThresholdInSeconds",
            "threshold_in_seconds",
            kept_s,
            f"retentionTimeInMinutes = {retention.time_in_minutes} ({kept_s} s)",
        ),
        (
            "managedLedgerOffloadThresholdInBytes",
            "threshold_in_bytes",
            kept_bytes,
            f"retentionSizeInMB = {retention.size_in_mb} ({kept_bytes} bytes)",
        ),
    )
    return [
        OutrunThreshold(
            name=name, value=policies[setting], kept=text, origin=policies.settings[setting].origin
        )
        for name, setting, kept, text in compared
        if 0 < kept <= policies[setting]
    ]
