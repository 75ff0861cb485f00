"""Claims of a managed ledger's record, by compare-and-set: while its objects are deleted, or a lost record is rebuilt.

A claim fails if the record has changed since objects were judged by it. Of a managed ledger that has a record, the same
record is written once more. Of one that has none, a placeholder is created, which has no ledgers, only the property
`pulsar-offload.claim` (ms since 1970, UTC); it is deleted in the end. Other writers take its place: then its maker's
next compare-and-set fails. Source: docs/adr/0052-claims.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from offload_core.metadata.managed_ledger_info import ManagedLedgerInfo
from offload_core.metadata.managed_ledger_records import ManagedLedgerRecords, VersionedInfo
from offload_core.metadata.record_paths import record_path
from offload_core.metadata.resolved_writes import put_resolved, until_first
from offload_core.metadata.stored_record import parse_stored_record
from offload_hooks.errors import VersionConflictError, placed

CLAIM_PROPERTY = "pulsar-offload.claim"


def is_claim(info: ManagedLedgerInfo) -> bool:
    """Whether a record is a placeholder, so that its managed ledger has no record."""
    names = [name for name, _ in info.properties]
    return not info.ledgers and info.terminated_at is None and names == [CLAIM_PROPERTY]


def placeholder(now_ms: int) -> ManagedLedgerInfo:
    """What is in the place of a record while it is claimed (ms since 1970, UTC)."""
    return ManagedLedgerInfo(properties=((CLAIM_PROPERTY, str(now_ms)),))


@contextmanager
def claimed(
    records: ManagedLedgerRecords, name: str, judged: ManagedLedgerInfo | None, now_ms: int
) -> Iterator[bool]:
    """Claim a deletion for a block; whether the record was still the one that objects were judged by.

    Args:
        name: the managed ledger's.
        judged: its record as objects were judged by it; None: it had none.

    Raises:
        VersionConflictError: others wrote the record every time.
        StoreError, FormatError: of the metadata.
    """
    path = record_path(name)
    ours: list[VersionedInfo] = []

    def turn() -> bool:
        found = records.store.get(path)
        known = None
        if found is not None:
            with placed(key=path):
                known = VersionedInfo(info=parse_stored_record(found[0]).info, version=found[1])
        has_none = known is None or is_claim(known.info)
        if (None if known is None or has_none else known.info) != judged:
            return False
        if found is None or has_none:
            ours.append(records.write(name, placeholder(now_ms), known))
        else:
            put_resolved(records.store, path, *found)
        return True

    is_as_judged = until_first(turn)
    try:
        yield is_as_judged
    finally:
        for each in ours:
            with suppress(VersionConflictError):  # a record took its place
                records.delete(name, each)


def release_claim(records: ManagedLedgerRecords, name: str, before_ms: int) -> bool:
    """Delete a placeholder that was left before (ms since 1970, UTC); whether there was one.

    Raises:
        StoreError, FormatError: of the metadata.
    """
    known = records.read(name)
    if known is None or not is_claim(known.info):
        return False
    ((_, since),) = known.info.properties
    if not since.isdecimal() or int(since) > before_ms:
        return False
    with suppress(VersionConflictError):
        records.delete(name, known)
    return True
