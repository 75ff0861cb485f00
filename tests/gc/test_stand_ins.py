"""Copies that stand in for those that records name stay; one that lost entries is no reason for another to go."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from damage import DAMAGES, Scene
from damage.scenes import LEDGER, PAYLOADS, closed_ledger, mapfiles, one_ledger, pip17
from records import copied, managed_ledger
from scenes.garbage import CollectedTier, changing, clock, kinds
from scenes.moves import MovedTopic, moved_by_mapping
from scenes.repairs import repaired
from tiers import TOPIC, uuid_of

from offload_core.format.codec.object_format import parse_key
from offload_core.format.codec.object_marks import LOST_KEY, MAPPED_KEY, REPAIRED_FROM_KEY
from offload_core.maintenance.gc import Collection, Scope
from offload_core.metadata.catalogue import Records, open_records
from offload_core.metadata.records import pack_managed_ledger_info
from offload_core.writing.offload.attempt_objects import delete_objects
from offload_hooks.errors import OptionError


def standing_in(key: str, half: bool = False) -> Scene:
    """A ledger's copy that its record names, and another one that says that it was made of it."""
    scene = pip17()
    scene.add(one_ledger(), 5)
    for name in (scene.key(1), scene.index_key(1)):
        scene.objects[name].metadata[key] = scene.key(0)
    if half:
        del scene.objects[scene.index_key(1)]
    return scene


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("key", [MAPPED_KEY, REPAIRED_FROM_KEY])
def test_what_stands_in_for_a_copy_stays_while_its_ledger_is_recorded(key: str, half: bool) -> None:
    scene = standing_in(key, half)
    world = CollectedTier.of(scene)
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert world.keys == before
    assert [why for why, count in world.summary.kept.items() if count] == [
        "it stands in for a copy that records name, by a mapping of relocate or after a repair"
    ]
    assert len(world.collect(is_shared=False, takes_stand_ins=True)) == 1
    assert world.keys < before


def test_what_stands_in_for_copies_of_ledgers_that_are_gone_goes() -> None:
    scene = standing_in(MAPPED_KEY)
    scene.records = {TOPIC: managed_ledger(closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid_of(0))))}
    assert kinds(CollectedTier.of(scene).collect(is_shared=False)) == {scene.key(1): "orphan"}
    scene.records = {
        f"{TOPIC}-of-others": managed_ledger(closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(0))))
    }
    assert kinds(CollectedTier.of(scene).collect(is_shared=False)) == {scene.key(1): "deleted-topic"}


@pytest.mark.parametrize("turn", [2, 3])
def test_what_stands_in_stays_if_its_topics_record_comes_back_before_the_last_look(turn: int) -> None:
    scene = standing_in(REPAIRED_FROM_KEY)
    record = managed_ledger(closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(0))))
    scene.records = {f"{TOPIC}-of-others": record}
    world = CollectedTier.of(scene)
    before = world.keys
    comes_back = changing(world, lambda: world.put_record(TOPIC, record), turn)
    world.collect(records=comes_back, is_shared=False)
    assert world.keys == before


def test_a_copy_that_lost_entries_is_no_reason_for_another_to_go() -> None:
    scene = pip17()
    scene.add(one_ledger(), 5)
    for name in (scene.key(0), scene.index_key(0)):
        scene.objects[name].metadata[LOST_KEY] = f"1 entries: {LEDGER}:3"
    world = CollectedTier.of(scene)
    before = world.keys
    assert world.collect(is_shared=False) == []
    assert world.keys == before


def test_what_a_repair_saved_by_a_live_pulsars_records_stays() -> None:
    scene = pip17()
    DAMAGES["a-block-is-zeros"].do(scene)
    world = CollectedTier.of(scene)
    (planned,), _, _ = repaired(scene, world.tier, quarantine=True)
    before = world.keys
    assert planned.target in before
    later = clock(datetime.now(UTC) + timedelta(days=40))
    assert world.collect(is_shared=False, now_ms=later) == []
    assert world.keys == before


# --- by a mapping ----------------------------------------------------------------------------------


@pytest.fixture
def moved(tmp_path: Path) -> MovedTopic:
    return moved_by_mapping(tmp_path)


def collection_of(moved: MovedTopic, own: dict[str, str], **scope: object) -> Collection:
    later = int((time.time() + 40 * 86_400) * 1000)

    def records() -> AbstractContextManager[Records]:
        return open_records(f"sqlite:{moved.folder}/records.db", moved.source, {}, own)

    fields = {"now_ms": lambda: later, "is_shared": False} | scope
    return Collection(moved.source, records, Scope(**fields))  # type: ignore[arg-type]


def test_copies_that_a_mapping_names_are_not_garbage_of_records_that_do_not(moved: MovedTopic) -> None:
    before = moved.keys(moved.source)
    assert len(before) == 8
    collection = collection_of(moved, {})
    assert list(collection.collect(moved.audit)) == []
    assert moved.keys(moved.source) == before
    gone = list(collection_of(moved, {}, takes_stand_ins=True).collect(moved.audit))
    assert len(gone) == 2
    assert moved.read_all(tiers=[moved.source]) == moved.entries


def test_by_a_mapping_nothing_is_deleted_of_what_the_records_name(moved: MovedTopic) -> None:
    own = {"relocations": str(moved.folder / "mapping")}
    before = moved.keys(moved.source)
    with pytest.raises(OptionError, match="mapping of moved copies was applied"):
        list(collection_of(moved, own).collect(moved.audit))
    assert moved.keys(moved.source) == before
    report = collection_of(moved, own)
    list(report.report())
    assert "mapping of moved copies" in str(report.summary.why_incomplete)


@pytest.mark.parametrize(
    "names",
    [("cold/persistent/a+b", "cold/persistent/a%20b"), ("x/cold/persistent/t", "x/persistent/cold%2Ft")],
)
def test_two_records_of_one_topic_and_nothing_goes(names: tuple[str, str]) -> None:
    scene = pip17()
    scene.add(one_ledger(), 5)
    world = CollectedTier.of(scene)
    for name, uuid in zip(names, (0, 5), strict=True):
        info = managed_ledger(closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(uuid))))
        world.metadata.put(f"/managed-ledgers/acme/{name}", pack_managed_ledger_info(info), None)
    before = world.keys
    with pytest.raises(OptionError, match="another record is of the same topic"):
        world.collect(is_shared=False)
    world.report(is_shared=False)
    assert "another record" in str(world.summary.why_incomplete)
    assert world.keys == before


# --- beside the two objects, and in other folders --------------------------------------------------


def test_a_deletion_that_is_cut_off_leaves_no_checksums_alone(moved: MovedTopic) -> None:
    keys = [parse_key(each) for each in moved.keys(moved.source)]
    key = next(each for each in keys if each is not None and not each.is_index)
    moved.source.write_index(key.block_checksums_key, b"checksums")
    calls: list[set[str]] = []

    class CutOff:
        def delete(self, names: list[str]) -> None:
            calls.append(set(names))

    delete_objects(CutOff(), [key])  # type: ignore[arg-type]
    assert calls == [{key.index_key, key.block_checksums_key}, {key.data_key}]


@pytest.mark.parametrize("is_shared", [True, False])
def test_mapfiles_in_a_folder_are_not_taken_for_those_of_deleted_topics(is_shared: bool) -> None:
    scene = mapfiles()
    for name in list(scene.objects):
        backup = f"backup/{name}".replace(str(uuid_of(0)), str(uuid_of(7)))
        scene.objects[backup] = scene.objects[name]
    world = CollectedTier.of(scene)
    before = world.keys
    assert world.collect(is_shared=is_shared) == []
    assert world.keys == before
    assert world.summary.unknown["it lies in another folder"] == 1
