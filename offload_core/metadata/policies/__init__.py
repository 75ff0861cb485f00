"""Offload policies: what a broker, a namespace and a topic say, and what holds for a topic of it all."""

from offload_core.metadata.policies.effective import (
    EffectivePolicies,
    OutrunThreshold,
    Setting,
    outrun_thresholds,
    resolve_policies,
)
from offload_core.metadata.policies.names import parse_policies, pulsar_names, read_policies, read_retention
from offload_core.metadata.policies.offload_policies import (
    DEFAULTS,
    OffloadPolicies,
    ReadPriority,
    RetentionPolicies,
    parse_read_priority,
)

__all__ = [
    "DEFAULTS",
    "EffectivePolicies",
    "OffloadPolicies",
    "OutrunThreshold",
    "ReadPriority",
    "RetentionPolicies",
    "Setting",
    "outrun_thresholds",
    "parse_policies",
    "parse_read_priority",
    "pulsar_names",
    "read_policies",
    "read_retention",
    "resolve_policies",
]
