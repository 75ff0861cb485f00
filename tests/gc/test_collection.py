"""Each kind of garbage is found and goes; of what is sound nothing does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from damage import DAMAGES, SCENES, Scene
from damage.scenes import LEDGER
from scenes.garbage import KINDS, LATER, CollectedTier, clock, replaced, superseded, unfinished_attempt
from tiers import MODIFIED_AT, uuid_of

from offload_core.maintenance.gc import GarbageKind
from offload_core.metadata.records import ManagedLedgerInfo

# --- what is sound ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, make in SCENES.items() if make().records])
@pytest.mark.parametrize("is_shared", [True, False])
def test_of_what_is_sound_nothing_goes(name: str, is_shared: bool) -> None:
    world = CollectedTier.of(SCENES[name]())
    before = world.keys
    assert world.collect(is_shared=is_shared) == []
    assert (world.keys, world.log.changes) == (before, [])
    assert world.summary.left == 0


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=lambda damage: damage.name)
def test_nothing_that_a_record_calls_complete_goes_however_damaged_it_is(damage) -> None:  # type: ignore[no-untyped-def]
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


def needed_uuids(scene: Scene) -> set[object]:
    infos = [info for info in (scene.records or {}).values() if isinstance(info, ManagedLedgerInfo)]
    contexts = [ledger.context for info in infos for ledger in info.ledgers if ledger.context]
    whole = {context.uuid for context in contexts if context.complete}
    return whole | {each.uuid for context in contexts for each in context.segments if each.complete}


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_each_kind_is_found_and_goes_and_nothing_else(make: Callable[[], tuple[Scene, GarbageKind]]) -> None:
    scene, kind = make()
    world = CollectedTier.of(scene)
    before, garbage = world.keys, {scene.key(1), scene.index_key(1)}
    (found,) = world.report()
    assert (found.garbage.kind, found.garbage.key, found.is_deleted) == (kind, scene.key(1), False)
    assert world.keys == before
    (gone,) = world.collect()
    assert (gone.garbage.kind, gone.is_deleted) == (kind, True), gone.why_kept
    assert world.keys == before - garbage
    assert any(str(uuid_of(0 if make is replaced else 5)) in str(each) for each in world.log.changes)
    assert world.collect() == []
    assert world.summary.left == 0


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_what_is_not_old_enough_stays(make: Callable[[], tuple[Scene, GarbageKind]]) -> None:
    scene, _ = make()
    world = CollectedTier.of(scene)
    at = MODIFIED_AT + timedelta(days=1, minutes=4)
    assert world.collect(now_ms=clock(at)) == []
    assert world.summary.younger == 1
    assert len(world.report(now_ms=clock(at), clock_skew=timedelta(0))) == 1
    assert len(world.report(now_ms=clock(at + timedelta(minutes=2)))) == 1


def test_the_younger_of_two_objects_counts() -> None:
    scene, _ = superseded()
    scene.objects[scene.index_key(1)].modified_at = LATER - timedelta(hours=3)
    assert CollectedTier.of(scene).collect() == []


def test_an_attempt_that_was_left_is_given_up_in_its_record_and_forgotten() -> None:
    scene, _ = unfinished_attempt()
    world = CollectedTier.of(scene)
    world.collect()
    known = world.records.read("acme/cold/persistent/orders")
    assert known is not None
    ledger = known.info.ledger(LEDGER + 1)
    assert ledger is not None
    assert ledger.context is None
