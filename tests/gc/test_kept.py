"""What may be another cluster's, or a ledger's last copy, is never garbage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from damage import Scene
from damage.scenes import LEDGER, PAYLOADS, Stored, closed_ledger, one_ledger, pip17, streaming
from records import copied, managed_ledger
from scenes.garbage import (
    CollectedTier,
    deleted_topic,
    info_of,
    kinds,
    orphan_of_a_trimmed_ledger,
    other_ledger,
    superseded,
    without_index,
)
from tiers import TOPIC, uuid_of

from offload_core.maintenance.gc import GarbageKind

# --- whose it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [superseded, orphan_of_a_trimmed_ledger, deleted_topic, without_index])
@pytest.mark.parametrize("cluster", ["west", None])
def test_what_may_be_another_clusters_stays(
    make: Callable[[], tuple[Scene, GarbageKind]], cluster: str | None
) -> None:
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


def test_nothing_is_known_of_a_cluster_that_no_named_object_names() -> None:
    scene, _ = superseded()
    for key in (scene.key(0), scene.index_key(0)):
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    assert CollectedTier.of(scene).collect() == []


def test_what_names_no_topic_or_lies_elsewhere_stays() -> None:
    scene, _ = superseded()
    for key in (scene.key(1), scene.index_key(1)):
        del scene.objects[key].metadata["managedledgername"]
    for key in list(scene.objects):
        scene.objects[f"backup/{key}"] = scene.objects[key]
    for name in (f"{uuid_of(6)}-ledger-7", f"backup/{uuid_of(6)}-ledger-7"):
        scene.objects[name] = Stored(b"x", {"managedledgername": "../../etc/passwd"})
    world = CollectedTier.of(scene)
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert world.keys == before
    assert (world.summary.nameless, dict(world.summary.unknown)) == (4, {})


def test_a_ledger_that_is_newer_than_its_topics_record_stays() -> None:
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
def test_a_copy_stays_while_the_one_that_is_named_is_not_whole(gone: bool, lost: str) -> None:
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
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert world.keys == before
    assert world.summary.kept.total() == 1


def test_half_of_a_segment_stays_while_a_ledger_of_its_topic_lacks_something() -> None:
    scene = streaming(gone=True)
    for name in (scene.key(0), scene.index_key(0)):
        twin = name.replace(str(uuid_of(0)), str(uuid_of(5)))
        scene.objects[twin] = replace(scene.objects[name])
    del scene.objects[scene.index_key(0).replace(str(uuid_of(0)), str(uuid_of(5)))]
    assert kinds(CollectedTier.of(scene).report()) == {str(uuid_of(5)): "no-index"}
    del scene.objects[scene.key(0)]
    assert CollectedTier.of(scene).report() == []
