"""Verify every byte of one attempt before a record names it.

`check_objects` reads data, index and checksums as `offload verify --deep` does, and raises the first error.
"""

from __future__ import annotations

from collections.abc import Sequence

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.verify.deep import BytesListener, EntriesListener, check_data, skip
from offload_core.maintenance.verify.findings import Code, Finding, Severity
from offload_core.maintenance.verify.pair_checks import Examined, examine
from offload_core.metadata.catalogue.listing import Pair, find_pair
from offload_core.storage.tier import Tier
from offload_hooks.errors import DataLossError, ObjectNotFoundError


def check_objects(
    tier: Tier, key: ObjectKey, *, on_bytes: BytesListener = skip, on_entries: EntriesListener = skip
) -> Examined:
    """Verify every byte of an attempt; return its pair of objects.

    Args:
        on_bytes, on_entries: get what is read of the data object, and may refuse it by an error.

    Raises:
        DataLossError: it has an error; the first finding.
        StoreError: of the tier.
    """
    examined = examine(tier, attempt_at(tier, key))
    if examined is None or examined.index is None or examined.pair.data is None:
        findings = [] if examined is None else examined.findings
        _refuse(key, findings)
        raise DataLossError("a new copy is not there as a whole", key=key.data_key)
    _refuse(key, examined.findings)
    result = check_data(tier, examined, on_bytes=on_bytes, on_entries=on_entries)
    if result.is_gone:
        raise DataLossError("a new copy has gone while it was verified", key=key.data_key)
    _refuse(key, result.findings)
    return examined


def _refuse(key: ObjectKey, findings: Sequence[Finding]) -> None:
    for finding in findings:
        if finding.code is Code.LOST_ENTRIES:
            continue  # the old copy lacks them as well, and both record that
        if finding.code.severity is Severity.ERROR:
            raise DataLossError(
                f"a new copy is not sound: {finding.code.value}: {finding.what}",
                key=finding.key or key.data_key,
                ledger_id=finding.ledger_id,
                expected=finding.expected,
                found=finding.found,
                hint="The record names it not yet: the old copy, or the hot one, is as it was.",
            )


def attempt_at(tier: Tier, key: ObjectKey) -> Pair:
    """List an attempt, of which perhaps nothing is there; nor the tier's root, which its first write makes."""
    try:
        return find_pair(tier, key) or Pair(key)
    except ObjectNotFoundError:
        return Pair(key)
