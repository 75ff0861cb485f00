"""Repairs of scenes of damage, and what a reader finds afterwards."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from damage.scenes import LEDGER, NOW_MS, Scene, opened_records
from entries import read_object
from tiers import MANAGED_LEDGER

from offload_core.audit import Change, Deletion
from offload_core.catalogue import parse_topic
from offload_core.catalogue.index_reading import read_index
from offload_core.catalogue.listing import Pair, stream_pairs
from offload_core.catalogue.record_source import StoreRecords
from offload_core.catalogue.topics import managed_ledger_of_topic
from offload_core.codec.filtered_objects import has_gaps
from offload_core.codec.salvaged_objects import lost_of
from offload_core.metadata import ManagedLedgerInfo, ManagedLedgerRecords, OffloadContext
from offload_core.repair import PlannedRepair, Repair, Repaired
from offload_core.repair.found_frames import ObjectBytes
from offload_core.repair.mapfile_scan import MapFileScan
from offload_core.tier import Tier
from offload_core.verify import Finding, Verification
from offload_hooks.testing import MemoryMetadataStore

Entries = dict[tuple[int, int], bytes]
"""(ledger, entry) → payload."""


@dataclass(slots=True)
class Lines:
    """An audit log in memory."""

    lines: list[Deletion | Change] = field(default_factory=list)

    def record(self, change: Deletion | Change) -> None:
        """See `AuditLog`."""
        self.lines.append(change)


def repair_of(
    scene: Scene,
    tier: Tier,
    *,
    quarantine: bool = False,
    ours: ManagedLedgerRecords | None = None,
    accept_loss: bool = False,
) -> Repair:
    """A repair of a scene that lies in this tier; its records are `ours`, where there are such."""
    records = None if scene.records is None else opened_records(scene.records)
    if ours is not None:
        store = ours.store

        def opened() -> AbstractContextManager[StoreRecords]:
            return nullcontext(StoreRecords(store))

        records = opened
    return Repair(
        tier,
        records=records,
        ours=ours,
        accept_loss=accept_loss,
        quarantine=quarantine,
        now_ms=lambda: NOW_MS,
    )


def recorded(scene: Scene) -> MemoryMetadataStore:
    """A metadata store that has the scene's records."""
    store = MemoryMetadataStore()
    records = ManagedLedgerRecords(store)
    for topic, info in (scene.records or {}).items():
        assert isinstance(info, ManagedLedgerInfo)
        records.write(managed_ledger_of_topic(parse_topic(topic)), info, None)
    return store


def context(records: ManagedLedgerRecords, ledger_id: int = LEDGER) -> OffloadContext:
    """What a ledger's record says of its copy."""
    found = records.read(MANAGED_LEDGER)
    assert found is not None
    ledger = found.info.ledger(ledger_id)
    assert ledger is not None
    assert ledger.context is not None
    return ledger.context


def repaired(
    scene: Scene,
    tier: Tier,
    *,
    quarantine: bool = False,
    ours: ManagedLedgerRecords | None = None,
    accept_loss: bool = False,
) -> tuple[list[PlannedRepair], list[Repaired], Lines]:
    """All is done that there is to do."""
    work, lines = repair_of(scene, tier, quarantine=quarantine, ours=ours, accept_loss=accept_loss), Lines()
    planned = list(work.plan())
    return planned, [work.do(each, lines) for each in planned if each.changes], lines


def findings_of(scene: Scene, tier: Tier) -> list[Finding]:
    """What a deep verification of it says."""
    records = None if scene.records is None else opened_records(scene.records)
    return list(Verification(tier, deep=True, records=records, now_ms=lambda: NOW_MS))


def contents_of(tier: Tier) -> dict[str, bytes]:
    """All objects of a tier."""
    return {
        each.key: bytes(tier.read_range(each.key, 0, each.size_bytes)) if each.size_bytes else b""
        for each in tier.list_objects()
    }


def pairs_of(tier: Tier) -> dict[str, Pair]:
    """The pairs of objects of a tier, by the keys of their data."""
    return {pair.key.data_key: pair for pair in stream_pairs(tier)}


def read_pair(tier: Tier, pair: Pair) -> Entries:
    """The entries of a pair, by the reader's cursor; only what the user metadata calls lost may be missing."""
    assert pair.data is not None
    assert pair.index is not None
    key = pair.key
    size = pair.data.size_bytes
    if key.is_mapfile:
        scan = MapFileScan(ObjectBytes(tier, key.data_key, size))
        assert scan.is_clean
        assert key.ledger_id is not None
        return {(key.ledger_id, f.entry_id): scan.payload(f.offset, f.length) for f in scan.frames}
    index = read_index(tier, key, index_bytes=pair.index.size_bytes, data_bytes=size)
    metadata = tier.stat(key.data_key).user_metadata
    gaps = has_gaps(metadata) or lost_of(metadata) is not None
    data = bytes(tier.read_range(key.data_key, 0, size))
    return {
        (ledger_id, entry_id): payload
        for ledger_id, entry_id, payload in read_object(data, index, key, gaps=gaps)
    }


def truth_of(scene: Scene, number: int = 0) -> Entries:
    """The entries that an object was written with."""
    return {(ledger_id, entry_id): payload for ledger_id, entry_id, payload in scene.written[number].entries}
