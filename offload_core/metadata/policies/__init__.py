"""Combine the offload policies of broker, namespace and topic into those in force."""

from offload_core.metadata.policies.effective import (
    EffectivePolicies,
    OutrunThreshold,
    Setting,
    outrun_thresholds,
    resolve_policies,
)
from offload_core.metadata.policies.names import parse_policies, pulsar_names, read_policies, read_retention
from offload_core.metadata.policies.offload_policies import DEFAULTS, OffloadPolicies, RetentionPolicies

__all__ = [
    "DEFAULTS",
    "EffectivePolicies",
    "OffloadPolicies",
    "OutrunThreshold",
    "RetentionPolicies",
    "Setting",
    "outrun_thresholds",
    "parse_policies",
    "pulsar_names",
    "read_policies",
    "read_retention",
    "resolve_policies",
]
