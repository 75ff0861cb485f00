"""Managed ledgers' records from a bucket alone, and what it does not tell."""

from offload_core.recover.recovery import Outcome, Recovered, recover_records
from offload_core.recover.topics import RebuiltTopic, rebuild_topics
from offload_core.recover.unknown import APPROXIMATE, NEVER_KNOWN, Unknown, UnknownFact

__all__ = [
    "APPROXIMATE",
    "NEVER_KNOWN",
    "Outcome",
    "RebuiltTopic",
    "Recovered",
    "Unknown",
    "UnknownFact",
    "rebuild_topics",
    "recover_records",
]
