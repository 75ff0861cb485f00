"""Offload policies: what a broker, a namespace and a topic say, and what holds for a topic of it all."""

from offload_core.policies.effective import EffectivePolicies, Setting, resolve_policies
from offload_core.policies.model import DEFAULTS, OffloadPolicies, RetentionPolicies
from offload_core.policies.names import parse_policies, pulsar_names
from offload_core.policies.read_priority import ReadPriority, parse_read_priority
from offload_core.policies.retention import OutrunThreshold, outrun_thresholds
from offload_core.policies.written import read_policies, read_retention

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
