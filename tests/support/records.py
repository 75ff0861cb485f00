"""Managed ledgers' records for tests: Pulsar's own, and ours with chosen contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

from golden import BROKER, GOLDEN, STREAMING_CASES, ExpectedEntry, load_case

from offload_core.codec.ledger_info import LedgerInfo
from offload_core.metadata import (
    AttemptStatus,
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
)

MANAGED_LEDGERS = BROKER / "managed-ledgers"
STANDALONE_RECORDS = sorted(MANAGED_LEDGERS.rglob("*.val"))
"""Records of the golden topics, with a standalone's header."""
ZOOKEEPER_RECORDS = sorted((GOLDEN / "metadata").glob("*.ml.bin"))
"""Records of other topics, bare or compressed."""

CLOSED_AT_MS = 1_700_000_000_000
DRIVER = DriverMetadata(
    name="aws-s3",
    properties=(
        ("bucket", "golden"),
        ("managedLedgerOffloadDriver", "AWS_S3"),
        ("region", "us-east-1"),
        ("serviceEndpoint", "http://127.0.0.1:5577"),
    ),
)


def golden_record(topic: str) -> Path:
    """The record of the golden topic `acme/cold/<topic>`."""
    return MANAGED_LEDGERS / "acme" / "cold" / "persistent" / f"{topic}.val"


def segment(uuid: UUID, end: int | None, **changes: Any) -> OffloadSegment:
    """A complete segment up to entry `end` of its ledger, offloaded by S3."""
    fields: dict[str, Any] = {
        "complete": True,
        "assigned_ms": CLOSED_AT_MS,
        "offloaded_ms": CLOSED_AT_MS + 1000,
        "driver": DRIVER,
    }
    return OffloadSegment(uuid=uuid, end_entry_id=end, **fields | changes)


def failed(of: OffloadSegment) -> OffloadSegment:
    """The same segment, had it failed."""
    return of.with_status(AttemptStatus.FAILED)


def copied(uuid: UUID, **changes: Any) -> OffloadContext:
    """The context of a complete copy that is one object."""
    fields: dict[str, Any] = {"complete": True, "timestamp_ms": CLOSED_AT_MS + 1000, "driver": DRIVER}
    return OffloadContext(uuid=uuid, **fields | changes)


def closed(ledger_id: int, entries: int, context: OffloadContext | None = None) -> LedgerRecord:
    """A ledger that was closed with so many entries."""
    info = LedgerInfo(ledger_id=ledger_id, entries=entries, size=100 * entries, timestamp_ms=CLOSED_AT_MS)
    return LedgerRecord(info=info, context=context)


def still_open(ledger_id: int, context: OffloadContext | None = None) -> LedgerRecord:
    """A ledger that the broker writes to."""
    return LedgerRecord(info=LedgerInfo(ledger_id=ledger_id, timestamp_ms=0), context=context)


def managed_ledger(*ledgers: LedgerRecord) -> ManagedLedgerInfo:
    """A managed ledger of these ledgers."""
    return ManagedLedgerInfo(ledgers=ledgers)


def streaming_record() -> ManagedLedgerInfo:
    """A topic of Pulsar's own streaming objects (all golden cases), and a ledger that is in BookKeeper only."""
    segments: dict[int, list[OffloadSegment]] = {}
    entries: dict[int, int] = {}
    for name in STREAMING_CASES:
        case = load_case("streaming", name)
        for ledger_id in sorted({entry.ledger_id for entry in case.entries}):
            last = max(entry.entry_id for entry in case.entries if entry.ledger_id == ledger_id)
            segments.setdefault(ledger_id, []).append(segment(case.key.uuid, last))
            entries[ledger_id] = last + 1
    return managed_ledger(
        *(
            closed(ledger_id, entries[ledger_id], OffloadContext.of_segments(of_ledger, complete=True))
            for ledger_id, of_ledger in segments.items()
        ),
        still_open(40),
    )


def streaming_entries() -> list[ExpectedEntry]:
    """What a reader of that topic returns, in order."""
    entries = [entry for name in STREAMING_CASES for entry in load_case("streaming", name).entries]
    return sorted(entries, key=lambda entry: (entry.ledger_id, entry.entry_id))


def position(ledger_id: int, entry_id: int) -> EntryPosition:
    """An entry's place."""
    return EntryPosition(ledger_id, entry_id)
