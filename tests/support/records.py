"""Managed ledgers' records for tests: Pulsar's own, and ours with chosen contents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from golden import BROKER, GOLDEN, STREAMING_CASES, ExpectedEntry, load_case
from managed_ledgers import Audit
from tiers import uuid_of

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.maintenance.record_recovery import Recovered, RecoveryOutcome, UnknownFact, recover_records
from offload_core.metadata.records import (
    AttemptStatus,
    CopyForm,
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
    OtherCopy,
    pack_managed_ledger_info,
    parse_managed_ledger_info,
)
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease, abandoned
from offload_core.metadata.records.segments import assign_segment, complete_segment, covered_stop
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_hooks.testing import MemoryMetadataStore

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
    return replace(of, complete=False, driver=abandoned(of.driver))


def copied(uuid: UUID, **changes: Any) -> OffloadContext:
    """The context of a complete copy that is one object."""
    fields: dict[str, Any] = {"complete": True, "timestamp_ms": CLOSED_AT_MS + 1000, "driver": DRIVER}
    return OffloadContext(uuid=uuid, **fields | changes)


def closed(ledger_id: int, entries: int, context: OffloadContext | None = None) -> LedgerRecord:
    """A ledger that was closed with `entries` entries."""
    info = LedgerInfo(ledger_id=ledger_id, entries=entries, size=100 * entries, timestamp_ms=CLOSED_AT_MS)
    return LedgerRecord(info=info, context=context)


def closed_ledger(
    ledger_id: int, payloads: Sequence[bytes], context: OffloadContext | None = None
) -> LedgerRecord:
    """A ledger that was closed with these entries."""
    ledger = closed(ledger_id, len(payloads), context)
    return replace(ledger, info=replace(ledger.info, size=sum(map(len, payloads))))


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
    """The entries that a reader of that topic returns, in order."""
    entries = [entry for name in STREAMING_CASES for entry in load_case("streaming", name).entries]
    return sorted(entries, key=lambda entry: (entry.ledger_id, entry.entry_id))


def new_copy(uuid: UUID, *ledger_ids: int, **changes: Any) -> OtherCopy:
    """A replacement of these ledgers' copies: one object, on S3."""
    fields: dict[str, Any] = {"form": CopyForm.LEDGER, "driver": DRIVER, "since_ms": 0}
    return OtherCopy(uuid=uuid, ledger_ids=ledger_ids, **fields | changes)


position = EntryPosition


# --- Steps of a streaming segment with what they need given, and records to begin with.


MINE, OTHER, LATER = uuid_of(1), uuid_of(2), uuid_of(3)
ASSIGNED_MS, OFFLOADED_MS = 1_700_000_005_000, 1_700_000_006_000
LEASE = AttemptLease(holder=AttemptHolder(machine=0xAB, process=7, started=11), until_ms=ASSIGNED_MS + 60_000)
FRESH = managed_ledger(still_open(9), closed(3, 10), closed(5, 4), closed(7, 20))

Step = Callable[[ManagedLedgerInfo], ManagedLedgerInfo]


def assign(info: ManagedLedgerInfo, ledger_id: int, entry_id: int = 0, **given: object) -> ManagedLedgerInfo:
    """A segment of mine is begun."""
    options = {"uuid": MINE, "driver": DRIVER, "assigned_ms": ASSIGNED_MS} | given
    return assign_segment(info, begin=position(ledger_id, entry_id), **options)


def complete(info: ManagedLedgerInfo, *ends: tuple[int, int], **given: object) -> ManagedLedgerInfo:
    """It ends with the last of these entries."""
    options = {"uuid": MINE, "offloaded_ms": OFFLOADED_MS} | given
    return complete_segment(info, end=position(*ends[-1]), end_entry_ids=dict(ends), **options)


def context(info: ManagedLedgerInfo, ledger_id: int) -> OffloadContext | None:
    """The offload context of a ledger in the record."""
    ledger = info.ledger(ledger_id)
    assert ledger is not None
    return ledger.context


def shares(info: ManagedLedgerInfo, ledger_id: int) -> tuple[OffloadSegment, ...]:
    """A ledger's shares of segments."""
    found = context(info, ledger_id)
    return () if found is None else found.segments


def placed(driver: DriverMetadata = DRIVER, **properties: str) -> DriverMetadata:
    """A driver with these properties."""
    for name, value in properties.items():
        driver = driver.with_property(name, value)
    return driver


def taken_twice(info: ManagedLedgerInfo, step: Step) -> ManagedLedgerInfo:
    """The record after a step, which does nothing to its own result, and which is stored and read without loss."""
    changed = step(info)
    assert step(changed) == changed
    assert parse_managed_ledger_info(pack_managed_ledger_info(changed)) == changed
    assert [ledger.info for ledger in changed.ledgers] == [ledger.info for ledger in info.ledgers]
    return changed


# --- Recovering in tests: what a tier makes, with an audit log in memory.


def recover(tier: Tier, records: ManagedLedgerRecords, **given_: object) -> list[Recovered]:
    return list(recover_records(tier, records, Audit(), **given_))


def recovered(tier: Tier) -> tuple[ManagedLedgerInfo, tuple[UnknownFact, ...]]:
    """The record of the tier's one topic, as recovered from the tier, and its unknown facts."""
    (one,) = recover(tier, ManagedLedgerRecords(MemoryMetadataStore()))
    assert one.outcome is RecoveryOutcome.NEW
    assert one.rebuilt.info is not None
    return one.rebuilt.info, one.rebuilt.unknown


def ledger(info: ManagedLedgerInfo, ledger_id: int) -> LedgerRecord:
    found = info.ledger(ledger_id)
    assert found is not None
    return found


# --- What of a record can be known from objects alone: both sides of a comparison, put into the same words.


UNKNOWN_TIME = 1


def partly_offloaded(info: ManagedLedgerInfo) -> frozenset[int]:
    """The ledgers of which not all is in complete copies."""
    return frozenset(
        each.ledger_id for each in info.ledgers if each.context is not None and not each.is_fully_offloaded
    )


def knowable(info: ManagedLedgerInfo, *, partly: frozenset[int] | None = None) -> ManagedLedgerInfo:
    """A record without the facts that no object stores: these fields, and no others.

    Left out: ledgers without a complete copy; shares that are not complete; the managed ledger's properties and its
    termination. Made equal: all times, the presence of the hot copy, and of a ledger the part that was not offloaded:
    `partly` are such ledgers by another record.
    """
    partly = partly_offloaded(info) if partly is None else partly
    ledgers = [_knowable(each, each.ledger_id in partly) for each in info.in_order if each.has_complete_copy]
    return replace(info, ledgers=tuple(ledgers), properties=(), terminated_at=None)


def _knowable(ledger: LedgerRecord, is_part: bool) -> LedgerRecord:
    context = ledger.context
    assert context is not None
    info = replace(ledger.info, timestamp_ms=UNKNOWN_TIME)
    shares = tuple(_share(each) for each in context.segments if each.status is AttemptStatus.OFFLOADED)
    if is_part:
        info = replace(info, entries=covered_stop(ledger), size=None)
    context = replace(
        context,
        bookkeeper_deleted=True,
        complete=not shares,
        timestamp_ms=UNKNOWN_TIME,
        segments=shares,
        driver=_driver(context.driver),
    )
    return replace(ledger, info=info, context=context)


def _share(share: OffloadSegment) -> OffloadSegment:
    return replace(
        share,
        bookkeeper_deleted=True,
        assigned_ms=None,
        offloaded_ms=UNKNOWN_TIME,
        driver=_driver(share.driver),
    )


def _driver(driver: DriverMetadata | None) -> DriverMetadata | None:
    """Properties in the order of their names: Pulsar passes over their order."""
    return None if driver is None else replace(driver, properties=tuple(sorted(driver.properties)))
