"""Offload thresholds against retention: what retention would delete first is never offloaded, so it is refused."""

from __future__ import annotations

from offload_core.policies.effective import EffectivePolicies
from offload_core.policies.model import RetentionPolicies
from offload_hooks.errors import OptionError

_MIB = 1 << 20


def check_retention(policies: EffectivePolicies, retention: RetentionPolicies, where: str) -> None:
    """Refuse thresholds that are not below what retention keeps; `where` names the topic or namespace.

    A retention of 0 keeps nothing that is consumed and says nothing of what is not; −1 keeps all. Neither is compared.

    Raises:
        OptionError: with both values.
    """
    seconds, kept_s = policies.threshold_s, retention.time_in_minutes * 60
    if seconds is not None and kept_s > 0 and seconds >= kept_s:
        raise _refused(
            where,
            f"managedLedgerOffloadThresholdInSeconds = {seconds} ({policies.settings['threshold_in_seconds'].origin})",
            f"less than retentionTimeInMinutes = {retention.time_in_minutes} ({kept_s} s)",
        )
    size, kept_bytes = policies.threshold_bytes, retention.size_in_mb * _MIB
    if size is not None and kept_bytes > 0 and size >= kept_bytes:
        raise _refused(
            where,
            f"managedLedgerOffloadThresholdInBytes = {size} ({policies.settings['threshold_in_bytes'].origin})",
            f"less than retentionSizeInMB = {retention.size_in_mb} ({kept_bytes} bytes)",
        )


def _refused(where: str, found: str, expected: str) -> OptionError:
    return OptionError(
        f"{where}: retention would delete ledgers before they are offloaded", expected=expected, found=found
    )
