"""Every kind of damage: all that the bytes still hold is restored, entry by entry; the rest is said, and left."""

import pytest
from damage import DAMAGES, SCENES
from damage.scenes import LEDGER, PAYLOADS, in_memory_tier, mapfiles, one_ledger, pip17, streaming
from damage.sealed import checksums_key, sealed
from entries import entry, pip17_object
from managed_ledgers import Audit
from scenes.repairs import (
    contents_of,
    context,
    findings_of,
    lay_out_damage,
    pairs_of,
    planned,
    read_pair,
    recorded,
    repair_of,
    repaired,
    truth_of,
)

from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.maintenance.repair import QUARANTINE, Action
from offload_core.maintenance.verify import Code
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.executors import ProcessExecutor, ThreadExecutor
from offload_core.storage.tier import Tier
from offload_hooks import hookimpl
from offload_hooks.errors import DataLossError
from offload_hooks.testing import MemoryDriver
from offload_hooks.values import Capabilities

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


@pytest.mark.sampled(8)
@pytest.mark.parametrize("quarantine", [pytest.param(False, marks=pytest.mark.nightly), True])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=lambda damage: damage.name)
def test_all_that_the_bytes_still_hold_is_restored_and_the_rest_is_still_said(damage, quarantine):
    scene, _ = damage.make()
    tier = scene.tier()
    before = contents_of(tier)
    planned, _, lines = repaired(scene, tier, quarantine=quarantine)
    after, pairs = contents_of(tier), pairs_of(tier)
    for number, written in enumerate(scene.written):
        key = written.key.data_key
        plan = next((each for each in planned if each.key == key), None)
        if plan is None or plan.choice.action not in SAVED_OR_INDEXED:
            continue
        lost = {(LEDGER, entry_id) for entry_id in LOST.get(damage.name, set())}
        kept = {place: payload for place, payload in truth_of(scene, number).items() if place not in lost}
        assert read_pair(tier, pairs[plan.target or key]) == kept
        if plan.target is not None:
            assert before[key] == after.get(key, after.get(f"{QUARANTINE}{key}.quarantined"))
    if not any(each.changes for each in planned):
        assert after == before
        assert not lines.changes
    if quarantine:
        saved = {each.key for each in planned if each.target is not None}
        left = [
            each
            for each in findings_of(scene, tier)
            if scene.records is None or not (each.key in saved or each.code is Code.ORPHAN)
        ]
        assert {each.code for each in left} <= LEFT_ALONE | {Code.LOST_ENTRIES}, left
        is_lossy = any(each.lost is not None and each.lost.count and each.target for each in planned)
        was_said = damage.code is Code.LOST_ENTRIES
        assert any(each.code is Code.LOST_ENTRIES for each in left) == (is_lossy or was_said)
    planned, done, lines = repaired(scene, tier, quarantine=quarantine)
    assert not any(each.changes for each in planned)
    assert (done, lines.changes, contents_of(tier)) == ([], [], after)


@pytest.mark.parametrize("name", SCENES)
def test_of_what_is_sound_nothing_is_planned(name):
    scene = SCENES[name]()
    tier = scene.tier()
    before = contents_of(tier)
    planned, _, _ = repaired(scene, tier, quarantine=True)
    assert planned == []
    assert contents_of(tier) == before


def test_what_is_lost_is_said_in_user_metadata_of_both_objects():
    scene, _ = DAMAGES["a-block-is-zeros"].make()
    tier = scene.tier()
    (planned,), _, _ = repaired(scene, tier)
    pair = pairs_of(tier)[planned.target or ""]
    for key in (pair.key.data_key, pair.key.index_key):
        lost = ObjectMarks.of(tier.stat(key).user_metadata).lost
        assert (lost.count, lost.ranges, lost.is_all) == (5, ((LEDGER, 7, 12),), True)
        assert tier.stat(key).user_metadata["pulsaroffloadrepairedfrom"] == planned.key


def test_the_original_lies_in_quarantine_with_a_note():
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
    assert [line.key for line in lines.changes if line.action.value == "move"] == list(before)


# --- Repairs that processes verify, judge and count for: the same plan as with threads.


@pytest.mark.nightly
def test_processes_plan_what_threads_plan(tmp_path):
    lay_out_damage(tmp_path)
    by_threads = planned(tmp_path, ThreadExecutor(2))
    actions = {each.choice.action for each in by_threads}
    others = {Action.OFFLOAD_AGAIN, Action.NOT_SAVABLE, Action.REWRITE_CHECKSUMS, Action.KEEP_HOT}
    assert actions == set(Action) - others
    assert planned(tmp_path, ProcessExecutor(1)) == by_threads


# --- Checksums beside objects follow what is made of these: an index that is made anew, and objects that are put aside.


@pytest.mark.parametrize(
    "scene", [pip17(records=False), streaming(records=False), mapfiles(checksums=False, records=False)]
)
def test_an_index_made_anew_is_the_one_that_the_checksums_know(scene):
    tier = sealed(scene).tier()
    tier.delete([scene.index_key()])
    repaired(scene, tier)
    assert findings_of(scene, tier) == []
    assert checksums_key(scene.written[0].key) in contents_of(tier)


def test_checksums_go_with_an_object_that_is_put_aside():
    scene = pip17(records=False)
    DAMAGES["a-block-is-zeros"].do(scene)
    key = checksums_key(scene.written[0].key)
    scene.objects[key] = sealed(pip17(records=False)).objects[key]
    tier = scene.tier()
    before = contents_of(tier)
    repaired(scene, tier, quarantine=True)
    after = contents_of(tier)
    assert key not in after
    assert after[f"quarantine/{key}.quarantined"] == before[key]
    assert {each.code for each in findings_of(scene, tier)} == {Code.LOST_ENTRIES}


# --- A ledger that is whole in another copy is not salvaged: what would be newer, and lack entries, is not made.


def two_copies(*, records=False):
    """A ledger whose newer copy, which its record names, is damaged, and an older one that is right."""
    scene = pip17(records=records)
    DAMAGES["a-block-is-zeros"].do(scene)
    scene.add(one_ledger(), 1, later=-5)
    return scene


def of_first(planned, scene):
    """The repair that is planned of the first copy."""
    (one,) = [each for each in planned if each.key == scene.key()]
    return one


@pytest.mark.parametrize(("records", "quarantine"), [(False, False), (True, True)])
def test_what_another_copy_has_is_not_salvaged_and_what_a_record_names_stays(records, quarantine):
    scene = two_copies(records=records)
    tier = scene.tier()
    before = contents_of(tier)
    planned, _, lines = repaired(scene, tier, quarantine=quarantine)
    one = of_first(planned, scene)
    assert (one.choice.action, one.other) == (Action.OTHER_COPY, scene.key(1))
    assert (one.changes, one.recorded is not None) == (False, records)
    assert (contents_of(tier), lines.changes) == (before, [])


def test_the_damaged_one_is_put_aside_for_the_other():
    scene = two_copies()
    tier = scene.tier()
    before = contents_of(tier)
    repaired(scene, tier, quarantine=True)
    after = contents_of(tier)
    assert after[f"quarantine/{scene.key()}.quarantined"] == before[scene.key()]
    assert after[scene.key(1)] == before[scene.key(1)]
    assert findings_of(scene, tier) == []
    assert repaired(scene, tier, quarantine=True)[0] == []


def test_a_record_that_is_ours_goes_on_to_the_other():
    scene = two_copies(records=True)
    store, tier = recorded(scene), scene.tier()
    records = ManagedLedgerRecords(store)
    repaired(scene, tier, ours=records)
    assert context(records).uuid == scene.written[1].key.uuid
    assert context(records).complete
    assert repaired(scene, tier, ours=records)[2].changes == []


@pytest.mark.parametrize(
    "payloads",
    [PAYLOADS[:-1], [entry(b"of another ledger" * 9) for _ in PAYLOADS]],
    ids=["fewer-entries", "other-entries"],
)
def test_a_copy_that_lacks_something_is_not_gone_by(payloads):
    scene = pip17(records=False)
    DAMAGES["a-block-is-zeros"].do(scene)
    scene.add(pip17_object(payloads, ledger_id=LEDGER, max_block_bytes=1000), 1, later=-5)
    planned, _, _ = repaired(scene, scene.tier())
    assert of_first(planned, scene).choice.action is Action.SALVAGE


@pytest.mark.parametrize("name", ["managedledgername", "pulsarclustername"])
def test_the_ledger_of_another_topic_or_cluster_is_none_of_it(name):
    scene = two_copies()
    for key in (scene.key(1), scene.index_key(1)):
        scene.objects[key].metadata[name] = "acme/cold/persistent/other"
    planned, _, _ = repaired(scene, scene.tier())
    assert of_first(planned, scene).choice.action is Action.SALVAGE


def test_a_damaged_copy_is_not_gone_by():
    scene = two_copies()
    scene.flip(scene.key(1), scene.frame(15) + 60)
    planned, _, _ = repaired(scene, scene.tier())
    chosen = of_first(planned, scene)
    assert chosen.choice.action is Action.SALVAGE
    assert {each.code for each in chosen.findings} >= {Code.BLOCK_BAD_MAGIC}


def test_a_damaged_copy_that_is_older_is_not_salvaged_either():
    scene = pip17(records=False)
    scene.flip(scene.index_key(), 0)
    DAMAGES["a-block-is-zeros"].do(scene)
    scene.add(one_ledger(), 1, later=5)
    planned, _, _ = repaired(scene, scene.tier())
    assert of_first(planned, scene).choice.action is Action.OTHER_COPY


# --- What is written is read back before an original is touched; an entry that is there in two ways is in neither.


class Liar(MemoryDriver):
    """A store that flips a bit of what it stores under keys with this in them, and says nothing."""

    wrong = ""

    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        return super().write_block(upload, part_number, offset, self._changed(upload.key, data))

    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        return super().write_index(key, self._changed(key, data), content_type, user_metadata, create_only)

    def _changed(self, key, data):
        changed = bytearray(data)
        if self.wrong in key and not key.endswith(".json"):
            changed[len(changed) // 2] ^= 1
        return bytes(changed)


@pytest.mark.parametrize(("wrong", "quarantine"), [("-ledger-", False), ("quarantine/", True)])
def test_a_copy_that_is_not_as_it_must_be_leaves_the_original(wrong, quarantine):
    scene, _ = DAMAGES["a-block-is-zeros"].make()
    driver = Liar(in_memory_tier(scene.objects), Capabilities())
    driver.wrong = wrong
    tier = Tier(driver)
    before = contents_of(tier)
    work = repair_of(scene, tier, quarantine=quarantine)
    (planned,) = work.plan()
    with pytest.raises(DataLossError):
        work.do(planned, Audit())
    after = contents_of(tier)
    assert {key: after[key] for key in before} == before


def restored(scene):
    tier = scene.tier()
    (planned,), _, _ = repaired(scene, tier)
    return read_pair(tier, pairs_of(tier)[planned.target or ""])


def test_entries_that_are_there_twice_are_kept():
    scene = pip17(records=False)
    truth = truth_of(scene)
    scene.write(scene.key(), 1000, scene.objects[scene.key()].data[:1000])  # the first block over the second
    assert restored(scene) == {place: payload for place, payload in truth.items() if not 7 <= place[1] < 12}


def test_of_entries_that_are_there_in_two_ways_none_is_kept():
    scene = pip17(records=False)
    truth = truth_of(scene)
    other = pip17_object([entry(b"another" * 10), *PAYLOADS[1:]], ledger_id=LEDGER, max_block_bytes=1000)
    scene.write(scene.key(), 1000, other.data[:1000])
    lost = {0, *range(8, 12)}  # the other block is shorter by an entry: 7 is in it as well
    found = restored(scene)
    assert {place for place in truth if place not in found} == {(LEDGER, i) for i in lost}
    assert all(truth[place] == payload for place, payload in found.items())


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(LEDGER, 9), (8, 0), (8, 1), (8, 3)])
def test_a_segment_is_saved_also_if_a_block_lacks_its_first_entries(ledger_id, entry_id):
    scene = streaming(records=False)
    truth = truth_of(scene, 1)
    scene.flip(scene.key(1), scene.frame(entry_id, 1, ledger_id) + 60)
    expected = {place: payload for place, payload in truth.items() if place != (ledger_id, entry_id)}
    assert restored(scene) == expected
