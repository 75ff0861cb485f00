"""Copies that stand in for those that records name are told apart from those that nothing needs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from damage import DAMAGES, Scene
from damage.scenes import (
    LEDGER,
    NOW_MS,
    PAYLOADS,
    closed_ledger,
    in_memory_tier,
    one_ledger,
    opened_records,
    pip17,
)
from entries import pip17_object
from records import copied, managed_ledger
from scenes.moves import moved_by_mapping
from scenes.repairs import repaired
from tiers import TOPIC, uuid_of

from offload_core.format.codec.object_marks import MAPPED_KEY, REPAIRED_FROM_KEY
from offload_core.maintenance.verify import Code, Summary, Verification
from offload_core.metadata.catalogue import open_records
from offload_core.metadata.records import OffloadContext
from offload_core.storage.tier import Tier
from offload_hooks.testing import MemoryDriver


def verified(scene: Scene, *, with_records: bool = True) -> tuple[list[Code], Summary]:
    tier = Tier(MemoryDriver(in_memory_tier(scene.objects)))
    records = opened_records(scene.records) if with_records and scene.records else None
    verification = Verification(tier, records=records, now_ms=lambda: NOW_MS)
    return [each.code for each in verification], verification.summary


def standing_in(key: str) -> Scene:
    """A ledger's copy that its record names, and a newer one that says that it was made of it."""
    scene = pip17()
    scene.add(one_ledger(), 5, later=10)
    for name in (scene.key(1), scene.index_key(1)):
        scene.objects[name].metadata[key] = scene.key(0)
    return scene


@pytest.mark.parametrize("key", [MAPPED_KEY, REPAIRED_FROM_KEY])
def test_what_stands_in_is_counted_and_no_finding(key: str) -> None:
    found, summary = verified(standing_in(key))
    assert (found, summary.stand_ins, summary.unknown) == ([], 1, 0)


@pytest.mark.parametrize("later", [-10, 10])
def test_without_records_neither_copy_supersedes_the_other(later: int) -> None:
    assert verified(standing_in(MAPPED_KEY), with_records=False)[0] == []
    scene = pip17()
    scene.add(one_ledger(), 5, later=later)
    assert verified(scene, with_records=False)[0] == [Code.SUPERSEDED]


def test_copies_of_unlike_length_are_said_whether_one_stands_in_or_not() -> None:
    scene = standing_in(MAPPED_KEY)
    scene.add(pip17_object(PAYLOADS[:-3], ledger_id=LEDGER), 6, later=20)
    assert Code.COPIES_DIFFER in verified(scene, with_records=False)[0]


DELETED = copied(uuid_of(0), complete=False, bookkeeper_deleted=True)


@pytest.mark.parametrize(("ledger_id", "context"), [(LEDGER + 1, copied(uuid_of(0))), (LEDGER, DELETED)])
def test_what_stands_in_for_a_ledger_that_is_trimmed_or_being_deleted_is_an_orphan(
    ledger_id: int, context: OffloadContext
) -> None:
    scene = standing_in(MAPPED_KEY)
    scene.records = {TOPIC: managed_ledger(closed_ledger(ledger_id, PAYLOADS, context))}
    found, summary = verified(scene)
    assert Code.ORPHAN in found
    assert summary.stand_ins == 0


@pytest.mark.parametrize(("half", "code"), [("index", Code.NO_INDEX), ("data", Code.NO_DATA)])
def test_half_of_one_is_said_as_such_unless_it_is_being_made(half: str, code: Code) -> None:
    scene = standing_in(MAPPED_KEY)
    del scene.objects[scene.index_key(1) if half == "index" else scene.key(1)]
    assert verified(scene)[0] == [code]
    for name in (scene.key(1), scene.index_key(1)):
        if name in scene.objects:
            scene.objects[name].modified_at = datetime.fromtimestamp(NOW_MS / 1000 - 60, UTC)
    found, summary = verified(scene)
    assert (found, summary.stand_ins) == ([], 1)


def test_another_clusters_are_none_of_ours() -> None:
    scene = standing_in(MAPPED_KEY)
    for name in (scene.key(1), scene.index_key(1)):
        scene.objects[name].metadata["pulsarclustername"] = "west"
    found, summary = verified(scene)
    assert (found, summary.stand_ins, summary.unknown) == ([], 0, 1)


def test_what_a_repair_saved_by_a_live_pulsars_records_is_no_finding() -> None:
    scene = pip17()
    DAMAGES["a-block-is-zeros"].do(scene)
    tier = Tier(MemoryDriver(in_memory_tier(scene.objects)))
    repaired(scene, tier, quarantine=True)
    assert scene.records is not None
    verification = Verification(tier, records=opened_records(scene.records), now_ms=lambda: NOW_MS)
    assert not {Code.ORPHAN, Code.SUPERSEDED} & {each.code for each in verification}
    assert verification.summary.stand_ins == 1


def test_what_a_mapping_names_is_no_finding(tmp_path: Path) -> None:
    world = moved_by_mapping(tmp_path)
    url = f"sqlite:{tmp_path}/records.db"
    assert list(Verification(world.source)) == []
    verification = Verification(world.source, records=lambda: open_records(url, world.source, {}, {}))
    assert list(verification) == []
    assert verification.summary.stand_ins == 2
