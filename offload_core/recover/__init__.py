"""Managed ledgers' records from a bucket alone, and what it does not tell."""

from offload_core.recover.ledgers import APPROXIMATE, NEVER_KNOWN, Unknown, UnknownFact
from offload_core.recover.recovery import Outcome, RebuiltTopic, Recovered, rebuild_topics, recover_records

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
