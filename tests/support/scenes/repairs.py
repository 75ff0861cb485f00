"""Repairs of scenes of damage, and what a reader finds afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from damage.scenes import (
    LEDGER,
    NOW_MS,
    PAYLOADS,
    Scene,
    closed_ledger,
    first_segment,
    one_ledger,
    opened_records,
)
from entries import pip17_object, read_object
from managed_ledgers import Audit
from records import copied, managed_ledger
from tiers import MANAGED_LEDGER, lay_out, uuid_of

from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.format.messages.mapfile_scan import MapFileScan
from offload_core.maintenance.repair import PlannedRepair, Repair
from offload_core.maintenance.repair.damaged_contents import ObjectBytes
from offload_core.maintenance.verify import Finding, Verification
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.catalogue.listing import Pair, stream_pairs
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.records import ManagedLedgerInfo, OffloadContext
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.executors import Executor
from offload_core.storage.tier import Tier, open_store
from offload_hooks.testing import MemoryMetadataStore

Entries = dict[tuple[int, int], bytes]
"""(ledger, entry) → payload."""


def repair_of(scene, tier, *, ours=None, **options):
    """A repair of a scene that lies in this tier; its records are `ours`, where there are such."""
    if ours is not None:
        options["records"] = lambda: nullcontext(StoreRecords(ours.store))
    elif scene.records is not None:
        options["records"] = opened_records(scene.records)
    return Repair(tier, ours=ours, now_ms=lambda: NOW_MS, **options)


def recorded(scene: Scene) -> MemoryMetadataStore:
    """A metadata store that has the scene's records."""
    store = MemoryMetadataStore()
    records = ManagedLedgerRecords(store)
    for topic, info in (scene.records or {}).items():
        assert isinstance(info, ManagedLedgerInfo)
        records.write(managed_ledger_of_topic(parse_topic(topic)), info, None)
    return store


def context(records: ManagedLedgerRecords, ledger_id: int = LEDGER) -> OffloadContext:
    """The offload context of a ledger in its record."""
    found = records.read(MANAGED_LEDGER).info.ledger(ledger_id).context
    assert found is not None
    return found


def repaired(scene, tier, **options):
    """All is done that there is to do; `options` as of `repair_of`."""
    work, lines = repair_of(scene, tier, **options), Audit()
    planned = list(work.plan())
    return planned, [work.do(each, lines) for each in planned if each.changes], lines


def findings_of(scene: Scene, tier: Tier) -> list[Finding]:
    """The findings of a deep verification."""
    return list(scene.verification(deep=True, tier=tier))


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
    key = pair.key
    size = pair.data.size_bytes
    if key.is_mapfile:
        scan = MapFileScan(ObjectBytes(tier, key.data_key, size))
        assert scan.is_clean
        assert key.ledger_id is not None
        return {(key.ledger_id, f.entry_id): scan.payload(f.offset, f.length) for f in scan.frames}
    index = read_index(tier, key, index_bytes=pair.index.size_bytes, data_bytes=size)
    gaps = ObjectMarks.of(tier.stat(key.data_key).user_metadata).skips_ids
    data = bytes(tier.read_range(key.data_key, 0, size))
    return {
        (ledger_id, entry_id): payload
        for ledger_id, entry_id, payload in read_object(data, index, key, gaps=gaps)
    }


def truth_of(scene: Scene, number: int = 0) -> Entries:
    """The entries that an object was written with."""
    return {(ledger_id, entry_id): payload for ledger_id, entry_id, payload in scene.written[number].entries}


# --- A folder with damage of several kinds, and the repairs planned for it, by any executor.


def lay_out_damage(root: Path):
    """A damaged message, one with another copy that is right, lost indexes, and a record that lies."""
    written = one_ledger()
    spoiled = replace(written, data=written.data[:300] + bytes(20) + written.data[320:])
    lay_out(root, spoiled, attempt=1)
    for number, ledger_id in ((2, 100), (3, 101)):
        lay_out(root, pip17_object(PAYLOADS, ledger_id=ledger_id), attempt=number, parts=("data",))
    other = pip17_object(PAYLOADS, ledger_id=102)
    lay_out(root, replace(other, data=other.data[:300] + bytes(20) + other.data[320:]), attempt=4)
    lay_out(root, other, attempt=5)
    lay_out(root, first_segment(), attempt=6)
    lay_out(root, pip17_object(PAYLOADS, ledger_id=103), attempt=7)


def records() -> MemoryMetadataStore:
    """The records of all but one copy; the last counts otherwise."""

    *ledgers, lying = (
        closed_ledger(ledger_id, PAYLOADS, copied(uuid_of(number), bookkeeper_deleted=True))
        for ledger_id, number in ((LEDGER, 1), (100, 2), (101, 3), (102, 4), (103, 7))
    )
    info = managed_ledger(*ledgers, replace(lying, info=replace(lying.info, entries=99)))
    store = MemoryMetadataStore()
    ManagedLedgerRecords(store).write(MANAGED_LEDGER, info, None)
    return store


def planned(root: Path, executor: Executor) -> list[PlannedRepair]:
    """The repairs that are planned."""
    store = records()
    with open_store(root) as tier:
        work = Repair(
            tier,
            records=lambda: nullcontext(StoreRecords(store)),
            ours=ManagedLedgerRecords(store),
            executor=executor,
            now_ms=lambda: 4_000_000_000_000,
        )
        return sorted(work.plan(), key=lambda each: (each.key or "", each.choice.action.value))


# --- objects that tests wrote themselves ------------------------------------------------------------


def findings(tier: Tier, records: Mapping[str, ManagedLedgerInfo]) -> list[Finding]:
    """The findings by the records of managed ledgers, by their names."""
    by_topic = {topic_of_managed_ledger(name).full: info for name, info in records.items()}
    return list(Verification(tier, deep=True, records=opened_records(by_topic)))
