"""What a verification to the last byte says of objects that were written by the tests, with their records."""

from __future__ import annotations

from collections.abc import Mapping

from damage.scenes import opened_records

from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata import ManagedLedgerInfo
from offload_core.tier import Tier
from offload_core.verify import Finding, Verification


def findings(tier: Tier, records: Mapping[str, ManagedLedgerInfo]) -> list[Finding]:
    """What is wrong, by the records of managed ledgers, by their names."""
    by_topic = {topic_of_managed_ledger(name).full: info for name, info in records.items()}
    return list(Verification(tier, deep=True, records=opened_records(by_topic)))
