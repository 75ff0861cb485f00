"""Each kind of garbage is found and goes; of what is sound nothing does."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from damage import DAMAGES, SCENES
from damage.scenes import LEDGER, PAYLOADS, Stored, closed_ledger, mapfiles, one_ledger, pip17, streaming
from damage.sealed import checksums_key, sealed
from mapfiles import mapfile
from records import copied, managed_ledger
from scenes.garbage import (
    KINDS,
    LATER,
    CollectedTier,
    changing,
    clock,
    deleted_topic,
    failed_attempt,
    info_of,
    kinds,
    orphan_of_a_trimmed_ledger,
    orphaned,
    other_ledger,
    replaced,
    superseded,
    without_index,
)
from tiers import CLUSTER, MANAGED_LEDGER, MODIFIED_AT, TOPIC, uuid_of

from offload_core.maintenance.gc import GarbageKind
from offload_core.metadata.records import ManagedLedgerInfo

# --- what is sound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, make in SCENES.items() if make().records])
@pytest.mark.parametrize("is_shared", [True, False])
def test_of_what_is_sound_nothing_goes(name, is_shared):
    world = CollectedTier.of(SCENES[name]())
    before = world.keys
    assert world.collect(is_shared=is_shared) == []
    assert (world.keys, world.log.changes) == (before, [])
    assert world.summary.left == 0


@pytest.mark.sampled(6)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=lambda damage: damage.name)
def test_nothing_that_a_record_calls_complete_goes_however_damaged_it_is(damage):
    scene, _ = damage.make()
    world = CollectedTier.of(scene)
    before = world.keys
    needed = {key for key in before if any(str(uuid) in key for uuid in needed_uuids(scene))}
    if scene.records:
        world.report()
        complete = world.summary.why_incomplete is None
        world.collect()
        assert complete or world.keys == before
    assert needed <= world.keys


def needed_uuids(scene):
    infos = [info for info in (scene.records or {}).values() if isinstance(info, ManagedLedgerInfo)]
    contexts = [ledger.context for info in infos for ledger in info.ledgers if ledger.context]
    whole = {context.uuid for context in contexts if context.complete}
    return whole | {each.uuid for context in contexts for each in context.segments if each.complete}


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_each_kind_is_found_and_goes_when_it_is_old_enough_and_nothing_else(make):
    scene, kind = make()
    world = CollectedTier.of(scene)
    before, garbage = world.keys, {scene.key(1), scene.index_key(1)}
    at = MODIFIED_AT + timedelta(days=1, minutes=4)
    assert (world.collect(now_ms=clock(at)), world.summary.younger) == ([], 1)
    assert len(world.report(now_ms=clock(at), clock_skew=timedelta(0))) == 1
    assert len(world.report(now_ms=clock(at + timedelta(minutes=2)))) == 1
    (found,) = world.report()
    assert (found.garbage.kind, found.garbage.key, found.is_deleted) == (kind, scene.key(1), False)
    assert world.keys == before
    (gone,) = world.collect()
    assert (gone.garbage.kind, gone.is_deleted) == (kind, True), gone.why_kept
    assert world.keys == before - garbage
    assert any(str(uuid_of(0 if make is replaced else 5)) in str(each) for each in world.log.changes)
    assert world.collect() == []
    assert world.summary.left == 0


def test_the_younger_of_two_objects_counts():
    scene, _ = superseded()
    scene.objects[scene.index_key(1)].modified_at = LATER - timedelta(hours=3)
    assert CollectedTier.of(scene).collect() == []


# --- What may be another cluster's, or a ledger's last copy, is never garbage.


# --- whose it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [superseded, orphan_of_a_trimmed_ledger, deleted_topic, without_index])
@pytest.mark.parametrize("cluster", ["west", None])
def test_what_may_be_another_clusters_stays(make, cluster):
    scene, kind = make()
    for key in {scene.key(1), scene.index_key(1)} & set(scene.objects):
        metadata = scene.objects[key].metadata
        del metadata["pulsarclustername"]
        if cluster is not None:
            metadata["pulsarclustername"] = cluster
    world = CollectedTier.of(scene)
    before = world.keys
    assert world.collect() == []
    assert (world.summary.unknown.total(), world.keys) == (1, before)
    assert [each.garbage.kind for each in world.collect(is_shared=False)] == ([] if cluster else [kind])


def test_nothing_is_known_of_a_cluster_that_no_named_object_names():
    scene, _ = superseded()
    for key in (scene.key(0), scene.index_key(0)):
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    assert CollectedTier.of(scene).collect() == []


def test_what_names_no_topic_or_lies_elsewhere_stays():
    scene, _ = superseded()
    for key in (scene.key(1), scene.index_key(1)):
        del scene.objects[key].metadata["managedledgername"]
    for key in list(scene.objects):
        scene.objects[f"backup/{key}"] = scene.objects[key]
    for name in (f"{uuid_of(6)}-ledger-7", f"backup/{uuid_of(6)}-ledger-7"):
        scene.objects[name] = Stored(b"x", {"managedledgername": "../../etc/passwd"})
    world = CollectedTier.of(scene)
    world.assert_all_stays(is_shared=False)
    assert (world.summary.nameless, dict(world.summary.unknown)) == (4, {})


def test_a_ledger_that_is_newer_than_its_topics_record_stays():
    scene = pip17()
    scene.add(one_ledger(), 5)
    scene.records = {TOPIC: managed_ledger(*other_ledger(scene.written[0].key.uuid))}
    newer = one_ledger()
    scene.add(replace(newer, key=replace(newer.key, ledger_id=99)), 6)
    world = CollectedTier.of(scene)
    assert kinds(world.collect()) == {scene.key(1): "orphan"}
    assert scene.key(2) in world.keys


# --- what may be the last copy ---------------------------------------------------------------------


@pytest.mark.parametrize("gone", [True, False])
@pytest.mark.parametrize("lost", ["data", "index", "wrong length", "topic of another"])
def test_a_copy_stays_while_the_one_that_is_named_is_not_whole(gone, lost):
    scene = pip17(gone=gone)
    scene.add(one_ledger(), 5)
    other = replace(one_ledger(), key=replace(one_ledger().key, ledger_id=LEDGER + 1))
    scene.add(other, 6)
    info = info_of(scene)
    scene.records = {
        TOPIC: managed_ledger(*info.ledgers, closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid_of(6))))
    }
    if lost == "data":
        del scene.objects[scene.key(0)]
    elif lost == "index":
        del scene.objects[scene.index_key(0)]
    elif lost == "wrong length":
        scene.cut(scene.key(0), -1)
    else:
        scene.change_record(lambda record: replace(record, info=replace(record.info, entries=17)))
    world = CollectedTier.of(scene)
    world.assert_all_stays(is_shared=False)
    assert world.summary.kept.total() == 1


def test_half_of_a_segment_stays_while_a_ledger_of_its_topic_lacks_something():
    scene = streaming(gone=True)
    for name in (scene.key(0), scene.index_key(0)):
        twin = name.replace(str(uuid_of(0)), str(uuid_of(5)))
        scene.objects[twin] = replace(scene.objects[name])
    del scene.objects[scene.index_key(0).replace(str(uuid_of(0)), str(uuid_of(5)))]
    assert kinds(CollectedTier.of(scene).report()) == {str(uuid_of(5)): "no-index"}
    del scene.objects[scene.key(0)]
    assert CollectedTier.of(scene).report() == []


# --- Checksums that lie beside nothing go with the attempt that they are of: by the same guards.


NAMES = {"role": "checksums", "managedledgername": MANAGED_LEDGER, "pulsarclustername": CLUSTER}


def alone(scene, number=1):
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


def mapfile_alone():
    scene = mapfiles()
    key = scene.add(mapfile(PAYLOADS, ledger_id=LEDGER), 5)
    scene.add_checksums(key)
    left = alone(scene, len(scene.written) - 1)
    assert {name.rpartition("/")[2] for name in left} == {".data.crc", ".index.crc", "_checksums"}
    return scene, left


def test_checksums_of_what_no_record_names_are_found_and_go():
    scene = orphaned()
    left = alone(scene)
    assert left == {checksums_key(scene.written[1].key)}
    world = CollectedTier.of(scene)
    before = world.keys
    (found,) = world.report()
    assert (found.garbage.kind, found.garbage.key) == (GarbageKind.CHECKSUMS, scene.key(1))
    assert found.garbage.ledger_ids == (LEDGER,)
    assert found.garbage.size_bytes == sum(len(scene.objects[key].data) for key in left)
    assert (world.keys, world.summary.objects) == (before, 1)
    (gone,) = world.collect()
    assert gone.is_deleted, gone.why_kept
    assert world.keys == before - left
    assert any(str(uuid_of(5)) in str(each) for each in world.log.changes)
    assert world.collect() == []


@pytest.mark.parametrize("kept", [(), (".data.crc",), (".index.crc",), ("_checksums",)])
def test_those_of_a_mapfile_go_all_or_each_alone(kept):
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


def test_those_of_a_topic_that_has_no_record_go_with_it():
    scene = orphaned()
    left = alone(scene)
    for key in left:
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    world = CollectedTier.of(scene)
    (gone,) = world.collect()
    assert (gone.garbage.kind, gone.is_deleted) == (GarbageKind.DELETED_TOPIC, True)
    assert not left & world.keys


def test_what_names_no_topic_and_what_is_young_stays():
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


def test_those_of_a_copy_that_a_record_names_stay_though_it_is_gone():
    scene = pip17()
    alone(scene, 0)
    CollectedTier.of(scene).assert_all_stays(is_shared=False)


def test_those_of_an_attempt_that_was_given_up_go_as_that_does():
    scene, kind = failed_attempt()
    left = alone(scene)
    world = CollectedTier.of(scene)
    (gone,) = world.collect()
    assert (gone.garbage.kind, gone.is_deleted) == (kind, True)
    assert not left & world.keys


def test_they_stay_while_the_ledger_has_no_whole_copy():
    """A backup of what is lost may come back, and they tell whether it is right."""
    scene = orphaned()
    alone(scene)
    del scene.objects[scene.key(0)]
    CollectedTier.of(scene).assert_all_stays(is_shared=False)


@pytest.mark.parametrize("what", ["data", "index", "checksums"])
def test_they_stay_if_something_comes_before_the_last_look(what):
    scene = orphaned()
    data, index = scene.objects[scene.key(1)], scene.objects[scene.index_key(1)]
    (name,) = alone(scene)
    world = CollectedTier.of(scene)
    comes = {
        "data": (scene.key(1), data.data),
        "index": (scene.index_key(1), index.data),
        "checksums": (name, b"others"),
    }
    come = partial(world.tier.write_index, *comes[what])
    (outcome,) = world.collect(records=changing(world, come, 3))
    assert outcome.why_kept == "it has changed since it was listed"
    assert name in world.keys


def test_a_record_that_names_another_ledger_only_lets_them_go():
    scene = orphaned()
    left = alone(scene)
    scene.records = {TOPIC: managed_ledger(closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid_of(0))))}
    world = CollectedTier.of(scene)
    assert {each.garbage.kind for each in world.collect()} == {GarbageKind.CHECKSUMS}
    assert not left & world.keys
