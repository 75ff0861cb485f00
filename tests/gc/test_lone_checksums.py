"""Checksums that lie beside nothing go with the attempt that they are of: by the same guards."""

from __future__ import annotations

from datetime import timedelta

import pytest
from damage import Scene
from damage.scenes import LEDGER, PAYLOADS, closed_ledger, mapfiles, pip17
from damage.sealed import checksums_key, sealed
from mapfiles import mapfile
from records import copied, managed_ledger
from scenes.garbage import LATER, CollectedTier, changing, failed_attempt, orphaned
from tiers import CLUSTER, MANAGED_LEDGER, MODIFIED_AT, TOPIC, uuid_of

from offload_core.maintenance.gc import GarbageKind

NAMES = {"role": "checksums", "managedledgername": MANAGED_LEDGER, "pulsarclustername": CLUSTER}


def alone(scene: Scene, number: int = 1) -> set[str]:
    """The keys of an attempt's checksums, now that data and index are gone."""
    key = scene.written[number].key
    sealed(scene)
    del scene.objects[key.data_key], scene.objects[key.index_key]
    left = {name for name in scene.objects if str(key.uuid) in name}
    for name in left:
        scene.objects[name].modified_at = MODIFIED_AT
        if not key.is_mapfile:
            scene.objects[name].metadata.update(NAMES)
    return left


def mapfile_alone() -> tuple[Scene, set[str]]:
    scene = mapfiles()
    key = scene.add(mapfile(PAYLOADS, ledger_id=LEDGER), 5)
    scene.add_checksums(key)
    left = alone(scene, len(scene.written) - 1)
    assert {name.rpartition("/")[2] for name in left} == {".data.crc", ".index.crc", "_checksums"}
    return scene, left


def test_checksums_of_what_no_record_names_are_found_and_go() -> None:
    scene = orphaned()
    left = alone(scene)
    assert left == {checksums_key(scene.written[1].key)}
    world = CollectedTier.of(scene)
    before = world.keys
    (found,) = world.report()
    assert (found.garbage.kind, found.garbage.key, found.garbage.ledger_ids) == (
        GarbageKind.CHECKSUMS,
        scene.key(1),
        (LEDGER,),
    )
    assert found.garbage.size_bytes == sum(len(scene.objects[key].data) for key in left)
    assert (world.keys, world.summary.objects) == (before, 1)
    (gone,) = world.collect()
    assert gone.is_deleted, gone.why_kept
    assert world.keys == before - left
    assert any(str(uuid_of(5)) in str(each) for each in world.log.changes)
    assert world.collect() == []


@pytest.mark.parametrize("kept", [(), (".data.crc",), (".index.crc",), ("_checksums",)])
def test_those_of_a_mapfile_go_all_or_each_alone(kept: tuple[str, ...]) -> None:
    scene, left = mapfile_alone()
    for key in left:
        if kept and not key.endswith(kept):
            del scene.objects[key]
    world = CollectedTier.of(scene)
    before = world.keys
    assert world.collect() == []  # a MapFile names no cluster, and others may write here
    assert world.summary.unknown.total() == 1
    assert len(world.collect(is_shared=False)) == 1
    assert world.keys == before - left


def test_those_of_a_topic_that_has_no_record_go_with_it() -> None:
    scene = orphaned()
    left = alone(scene)
    for key in left:
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    world = CollectedTier.of(scene)
    (gone,) = world.collect()
    assert (gone.garbage.kind, gone.is_deleted) == (GarbageKind.DELETED_TOPIC, True)
    assert not left & world.keys


def test_what_names_no_topic_and_what_is_young_stays() -> None:
    scene = orphaned()
    left = alone(scene)
    for key in left:
        scene.objects[key].metadata.clear()
    world = CollectedTier.of(scene)
    assert (world.collect(is_shared=False), world.summary.nameless) == ([], 1)
    for key in left:
        scene.objects[key].metadata.update(NAMES)
        scene.objects[key].modified_at = LATER - timedelta(hours=3)
    world = CollectedTier.of(scene)
    assert (world.collect(), world.summary.younger) == ([], 1)


def test_those_of_a_copy_that_a_record_names_stay_though_it_is_gone() -> None:
    scene = pip17()
    alone(scene, 0)
    world = CollectedTier.of(scene)
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert world.keys == before


def test_those_of_an_attempt_that_was_given_up_go_as_that_does() -> None:
    scene, kind = failed_attempt()
    left = alone(scene)
    world = CollectedTier.of(scene)
    (gone,) = world.collect()
    assert (gone.garbage.kind, gone.is_deleted) == (kind, True)
    assert not left & world.keys


def test_they_stay_while_the_ledger_has_no_whole_copy() -> None:
    """A backup of what is lost may come back, and they tell whether it is right."""
    scene = orphaned()
    alone(scene)
    del scene.objects[scene.key(0)]
    world = CollectedTier.of(scene)
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert world.keys == before


@pytest.mark.parametrize("what", ["data", "index", "checksums"])
def test_they_stay_if_something_comes_before_the_last_look(what: str) -> None:
    scene = orphaned()
    data, index = scene.objects[scene.key(1)], scene.objects[scene.index_key(1)]
    (name,) = alone(scene)
    world = CollectedTier.of(scene)
    comes = {
        "data": {scene.key(1): data.data},
        "index": {scene.index_key(1): index.data},
        "checksums": {name: b"others"},
    }

    def come() -> None:
        for key, written in comes[what].items():
            world.tier.write_index(key, written)

    (outcome,) = world.collect(records=changing(world, come, 3))
    assert outcome.why_kept == "it has changed since it was listed"
    assert name in world.keys


def test_a_record_that_names_another_ledger_only_lets_them_go() -> None:
    scene = orphaned()
    left = alone(scene)
    scene.records = {TOPIC: managed_ledger(closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid_of(0))))}
    world = CollectedTier.of(scene)
    assert {each.garbage.kind for each in world.collect()} == {GarbageKind.CHECKSUMS}
    assert not left & world.keys
