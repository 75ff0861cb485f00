"""Policies as a broker wrote them, in our words: what Pulsar takes is never refused because nobody may say it here.

    thresholds and lag below −1    −1, never
    sizes and threads too small    nothing said: no broker offloads by them
    more threads than we take      as many as we take
    an empty text                  stays: it counts before what levels above say, and names nothing

Source: `OffloadPoliciesImpl` and the offloaders of Pulsar 4.0.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offload_core.policies.model import MAX_THREADS, MIN_BLOCK_BYTES, OffloadPolicies, RetentionPolicies
from offload_core.policies.names import checked_policies, pulsar_names

_NEVER = ("ThresholdInBytes", "ThresholdInSeconds", "DeletionLagInMillis")
_LEAST = {
    "MaxBlockSizeInBytes": MIN_BLOCK_BYTES,
    "ReadBufferSizeInBytes": 1,
    "Threads": 1,
    "PrefetchRounds": 1,
    "SegmentSizeInBytes": 1,
    "SegmentRolloverTimeInSeconds": 1,
}
_MOST = {"Threads": MAX_THREADS, "PrefetchRounds": MAX_THREADS}


def read_policies(written: Mapping[str, Any], where: str) -> OffloadPolicies:
    """Policies from Pulsar's JSON, by Pulsar's names.

    Raises:
        OptionError: a value that no Pulsar writes; `where` is said with it.
    """
    known = pulsar_names()
    return checked_policies({known[name]: _meant(name, value) for name, value in written.items()}, {}, where)


def read_retention(written: Mapping[str, Any]) -> RetentionPolicies:
    """Retention from Pulsar's JSON: below −1 is −1, what is not said is 0.

    Raises:
        ValidationError: a limit that is no number.
    """
    known = {str(field.alias) for field in RetentionPolicies.model_fields.values()}
    return RetentionPolicies(
        **{n: _at_least(-1, v) for n, v in written.items() if n in known and v is not None}
    )


def _meant(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: str(text) for key, text in value.items() if text is not None}
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if name.endswith(_NEVER):
        return _at_least(-1, value)
    least = next((least for end, least in _LEAST.items() if name.endswith(end)), None)
    most = next((most for end, most in _MOST.items() if name.endswith(end)), value)
    return None if least is not None and value < least else min(value, most)


def _at_least(least: int, value: Any) -> Any:
    return max(least, value) if isinstance(value, int) else value
