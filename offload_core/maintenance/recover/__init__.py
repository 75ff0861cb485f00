"""Managed ledgers' records from a bucket alone, and what it does not tell."""

from offload_core.maintenance.recover.ledgers import APPROXIMATE, NEVER_KNOWN, Unknown, UnknownFact
from offload_core.maintenance.recover.record_recovery import (
    RebuiltTopic,
    Recovered,
    RecoveryOutcome,
    rebuild_topics,
    recover_records,
)

__all__ = [
    "APPROXIMATE",
    "NEVER_KNOWN",
    "RebuiltTopic",
    "Recovered",
    "RecoveryOutcome",
    "Unknown",
    "UnknownFact",
    "rebuild_topics",
    "recover_records",
]
