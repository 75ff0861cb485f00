"""Every kind of damage: all that the bytes still hold is restored, entry by entry; the rest is said, and left."""

from __future__ import annotations

import pytest
from damage import DAMAGES, SCENES, Damage
from damage.scenes import LEDGER
from scenes.repairs import contents_of, findings_of, pairs_of, read_pair, repair_of, repaired, truth_of

from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.maintenance.repair import QUARANTINE, Action
from offload_core.maintenance.verify import Code

LOST: dict[str, set[int]] = {
    "data-is-cut-off-behind-a-block": {12, 13, 14, 15},
    "a-block-is-zeros": {7, 8, 9, 10, 11},
    "an-entry-is-left-out": {1},
    "the-last-entry-of-a-block-is-left-out": {6},
    "the-last-entry-is-cut-off-and-its-block-too": {15},
    "an-entry-of-a-segment-is-left-out": {2},
    "the-last-entry-of-a-segment-is-left-out": {8},
    "ids-go-back-in-a-filtered-object": {0, 2},  # nobody knows which of the two it is
    "a-filtered-block-goes-on-into-the-next": {6},
    "an-entry-behind-a-gap-has-a-flipped-bit": {5},
    "an-entry-that-a-filter-kept-is-left-out": set(),  # it was never there
    "payload-has-a-flipped-bit": {7},
    "checksum-has-a-flipped-bit": {4},
    "an-entry-is-shorter-than-its-checksum-covers": {4},
    "mapfile-data-has-a-flipped-bit": {7},
    "mapfile-record-does-not-inflate": {7},
    "mapfile-block-has-a-flipped-bit": {15},
    "mapfile-is-cut-off": {15},
    "mapfile-lacks-an-entry": set(),
    "mapfile-message-has-a-flipped-bit": {9},
    "a-sealed-mapfile-has-a-flipped-bit": {7},
}
"""Entries of ledger 7 whose bytes, or ids, are gone. Of all other kinds of damage nothing is lost that can be read."""

SAVED_OR_INDEXED = (Action.SALVAGE, Action.REBUILD_INDEX, Action.REWRITE_CHECKSUMS)

LEFT_ALONE = {
    code
    for code in Code
    if code.value.startswith(("record.", "attempt.", "message.", "upload.", "checksums."))
    or code
    in (
        Code.ORPHAN,
        Code.SUPERSEDED,
        Code.COPIES_DIFFER,
        Code.GAP,
        Code.OVERLAP,
        Code.NO_VERSION,
        Code.UNKNOWN_VERSION,
        Code.CONTRADICTION,
        Code.INDEX_OTHER_TOPIC,
        Code.NO_DATA,
        Code.INDEX_BAD_METADATA,  # what a filter did, of which there is no second copy
    )
} - {Code.MESSAGE_CHECKSUM, Code.BROKEN_COPY}
"""What repairing objects does not help against."""


def damages(*actions: Action) -> list[Damage]:
    """Those of which one of these must be done about the first object."""
    found = []
    for damage in DAMAGES.values():
        scene, _ = damage.make()
        planned = list(repair_of(scene, scene.tier()).plan())
        if any(each.choice.action in actions for each in planned):
            found.append(damage)
    return found


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=lambda damage: damage.name)
def test_all_that_the_bytes_still_hold_is_restored(damage: Damage) -> None:
    scene, _ = damage.make()
    tier = scene.tier()
    before = contents_of(tier)
    planned, _, lines = repaired(scene, tier)
    pairs = pairs_of(tier)
    for number, written in enumerate(scene.written):
        key = written.key.data_key
        plan = next((each for each in planned if each.key == key), None)
        if plan is None or plan.choice.action not in SAVED_OR_INDEXED:
            continue
        truth = truth_of(scene, number)
        lost = {(LEDGER, entry_id) for entry_id in LOST.get(damage.name, set())}
        kept = {place: payload for place, payload in truth.items() if place not in lost}
        assert read_pair(tier, pairs[plan.target or key]) == kept
        if plan.target is not None:
            assert before[key] == contents_of(tier)[key]
    if not any(each.changes for each in planned):
        assert contents_of(tier) == before
        assert not lines.lines


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=lambda damage: damage.name)
def test_what_can_be_restored_is_sound_and_the_rest_is_still_said(damage: Damage) -> None:
    scene, _ = damage.make()
    tier = scene.tier()
    is_recorded = scene.records is not None
    planned, _, _ = repaired(scene, tier, quarantine=not is_recorded)
    saved = {each.key for each in planned if each.target is not None}
    left = [
        each
        for each in findings_of(scene, tier)
        if not (is_recorded and (each.key in saved or each.code is Code.ORPHAN))
    ]
    assert {each.code for each in left} <= LEFT_ALONE | {Code.LOST_ENTRIES}, left
    is_lossy = any(each.lost is not None and each.lost.count and each.target for each in planned)
    was_said = damage.code is Code.LOST_ENTRIES
    assert any(each.code is Code.LOST_ENTRIES for each in left) == (is_lossy or was_said)


@pytest.mark.parametrize("quarantine", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=lambda damage: damage.name)
def test_a_second_call_changes_nothing(damage: Damage, quarantine: bool) -> None:
    scene, _ = damage.make()
    tier = scene.tier()
    repaired(scene, tier, quarantine=quarantine)
    after = contents_of(tier)
    planned, done, lines = repaired(scene, tier, quarantine=quarantine)
    assert done == []
    assert not lines.lines
    assert contents_of(tier) == after
    assert not any(each.changes for each in planned)


@pytest.mark.parametrize("name", SCENES)
def test_of_what_is_sound_nothing_is_planned(name: str) -> None:
    scene = SCENES[name]()
    tier = scene.tier()
    before = contents_of(tier)
    planned, _, _ = repaired(scene, tier, quarantine=True)
    assert planned == []
    assert contents_of(tier) == before


def test_what_is_lost_is_said_in_user_metadata_of_both_objects() -> None:
    scene, _ = DAMAGES["a-block-is-zeros"].make()
    tier = scene.tier()
    (planned,), _, _ = repaired(scene, tier)
    pair = pairs_of(tier)[planned.target or ""]
    for key in (pair.key.data_key, pair.key.index_key):
        lost = ObjectMarks.of(tier.stat(key).user_metadata).lost
        assert lost is not None
        assert (lost.count, lost.ranges, lost.is_all) == (5, ((LEDGER, 7, 12),), True)
        assert tier.stat(key).user_metadata["pulsaroffloadrepairedfrom"] == planned.key


def test_the_original_lies_in_quarantine_with_a_note() -> None:
    scene, _ = DAMAGES["a-block-is-zeros"].make()
    tier = scene.tier()
    before = contents_of(tier)
    _, (done,), lines = repaired(scene, tier, quarantine=True)
    after = contents_of(tier)
    for key, data in before.items():
        assert key not in after
        assert after[f"{QUARANTINE}{key}.quarantined"] == data
        assert b"block.bad-magic" in after[f"{QUARANTINE}{key}.quarantined.json"]
    assert set(done.moved) == {f"{QUARANTINE}{key}.quarantined" for key in before}
    assert [line.key for line in lines.lines if line.action.value == "move"] == list(before)  # type: ignore[union-attr]


def test_an_object_that_a_record_names_is_not_moved() -> None:
    scene, _ = DAMAGES["the-data-of-the-only-copy-is-gone"].make()
    tier = scene.tier()
    before = contents_of(tier)
    repaired(scene, tier, quarantine=True)
    assert contents_of(tier) == before
