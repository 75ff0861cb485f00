"""Copies of one ledger that contradict or repeat each other, where no record shows which counts."""

from __future__ import annotations

from entries import pip17_object

from damage.corpus import Place, damage
from damage.in_indexes import alone, segments
from damage.scenes import FIRST, FOLLOWING, LEDGER, PAYLOADS, Scene, first_segment, one_ledger, second_segment
from offload_core.maintenance.verify import Code


@damage(alone, Code.SUPERSEDED)
def a_ledger_has_two_copies(scene: Scene):
    scene.add(one_ledger(), 1, later=5)


@damage(alone, Code.COPIES_DIFFER)
def two_copies_differ(scene: Scene):
    scene.add(pip17_object(PAYLOADS[:-1], ledger_id=LEDGER), 1, later=5)


@damage(alone, Code.LOST_ENTRIES)
def an_object_says_that_it_lacks_entries(scene: Scene) -> Place:
    for stored in scene.objects.values():
        stored.metadata["pulsaroffloadlost"] = f"2 entries: {LEDGER}:3-4"
    return {"key": scene.key(0), "ledger_id": LEDGER, "entry_id": 3}


@damage(segments, Code.SUPERSEDED)
def a_segment_has_two_copies(scene: Scene):
    scene.add(first_segment(), 2, later=5)


@damage(segments, Code.SUPERSEDED)
def a_segmented_ledger_has_a_whole_copy(scene: Scene):
    del scene.objects[scene.key(1)], scene.objects[scene.index_key(1)]
    scene.add(one_ledger(), 2, later=5)


@damage(segments, Code.GAP)
def the_first_segment_is_gone(scene: Scene) -> Place:
    scene.add(pip17_object(FOLLOWING, ledger_id=LEDGER - 1), 2)  # so that it was not trimmed
    del scene.objects[scene.key(0)], scene.objects[scene.index_key(0)]
    return {"key": scene.key(1), "ledger_id": LEDGER, "entry_id": 0}


@damage(Scene, Code.GAP)
def entries_lie_in_no_segment(scene: Scene) -> Place:
    scene.add(first_segment(), 0)
    scene.add(second_segment(12, PAYLOADS[12:]), 1)
    return {"key": scene.key(1), "ledger_id": LEDGER, "entry_id": len(FIRST)}


@damage(Scene, Code.OVERLAP)
def entries_lie_in_two_segments(scene: Scene) -> Place:
    scene.add(first_segment(), 0)
    scene.add(second_segment(7, PAYLOADS[7:]), 1)
    return {"key": scene.key(1), "ledger_id": LEDGER, "entry_id": 7}
