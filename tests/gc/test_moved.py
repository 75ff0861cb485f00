"""Old copies of ledgers that were moved to another tier go, if the new ones are there and whole; else they stay."""

import shutil
import time
from dataclasses import replace
from functools import partial

import pytest
from damage import DAMAGES
from damage.scenes import LEDGER, PAYLOADS, closed_ledger, mapfiles, one_ledger, pip17
from records import copied, managed_ledger
from scenes.garbage import CollectedTier, changing, clock, kinds
from scenes.moves import MovedTopic, moved_by_mapping
from scenes.repairs import repaired
from tiers import MANAGED_LEDGER, TOPIC, uuid_of

from offload_core.format.codec.object_format import ObjectFormat, parse_key
from offload_core.format.codec.object_marks import LOST_KEY, MAPPED_KEY, REPAIRED_FROM_KEY
from offload_core.interfaces.cli.gc import summary_lines
from offload_core.maintenance.gc import Collection, Scope
from offload_core.metadata.catalogue import open_records
from offload_core.metadata.records import pack_managed_ledger_info
from offload_core.storage.tier import Tier, open_store
from offload_core.writing.offload.attempt_objects import delete_objects
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.errors import OptionError

pytestmark = pytest.mark.long


@pytest.fixture
def world(tmp_path):
    """Two ledgers of one object each, and one in two segments."""
    made = MovedTopic.make(tmp_path, f"sqlite:{tmp_path}/records.db")
    ledgers = [made.add_ledger(count) for count in (12, 9, 15)]
    for ledger_id in ledgers[:2]:
        made.offload(ledger_id)
    made.stream((ledgers[2], 9), (ledgers[2], 14))
    return made


def as_a_broker_has_them(world):
    """The records name the new copies, and remember nothing of the old ones."""
    names = ("pulsar-offload.replaced", "pulsar-offload.replacement")

    def forget(ledger):
        context = ledger.context
        kept = tuple(each for each in context.driver.properties if each[0] not in names)
        return replace(ledger, context=replace(context, driver=replace(context.driver, properties=kept)))

    world.records.update(MANAGED_LEDGER, lambda info: info.with_ledgers(map(forget, info.ledgers)))


def later_ms():
    """A long time later."""
    return int((time.time() + 40 * 86_400) * 1000)


def collect(world, elsewhere, tier=None, prefix=""):
    """Collect the garbage of the source or another tier, a long time later; all of it is deleted."""
    records = partial(open_records, f"sqlite:{world.folder}/records.db", world.source, {}, {})
    scope = Scope(prefix=prefix, is_shared=False, now_ms=later_ms)
    collection = Collection(tier or world.source, records, scope, elsewhere=elsewhere)
    assert all(each.is_deleted for each in collection.collect(world.audit))
    return collection


@pytest.mark.sampled(4)
@pytest.mark.parametrize("of_a_broker", [False, True], ids=["our records", "a broker's records"])
@pytest.mark.parametrize("format_", [None, ObjectFormat.MAPFILE])
def test_old_copies_go_once_the_new_ones_can_be_seen(world, format_, of_a_broker):
    world.move_all(world.wanted(format_))
    if of_a_broker:
        as_a_broker_has_them(world)
    before, made = world.keys(world.source), world.keys(world.target)
    kept = collect(world, []).summary.kept
    assert world.keys(world.source) == before
    assert sum(kept.values()) == 4
    collect(world, [world.target])
    assert world.keys(world.source) == []
    assert world.keys(world.target) == made
    assert world.read_all(tiers=[world.target]) == world.entries


@pytest.mark.parametrize("of_a_broker", [False, True], ids=["our records", "a broker's records"])
def test_an_old_copy_stays_whose_new_one_is_not_whole(world, of_a_broker):
    [first, *_] = world.move_all()
    if of_a_broker:
        as_a_broker_has_them(world)
    context = world.info.ledgers[0].context
    world.target.delete([f"{context.uuid}-ledger-0-index"])
    collect(world, [world.target])
    assert world.keys(world.source) == [f"{first.replaces[0]}-ledger-0{end}" for end in ("", "-index")]


def test_a_tier_that_records_do_not_mean_is_no_reason_for_any_to_go(world, tmp_path):
    world.move_all()
    as_a_broker_has_them(world)
    before = world.keys(world.source)
    with open_store(tmp_path / "target") as target, open_store(tmp_path / "third") as third:
        (tmp_path / "third").mkdir()
        for listed in target.list_objects():
            data = bytes(target.read_range(listed.key, 0, listed.size_bytes))
            third.write_index(listed.key, data, user_metadata=target.stat(listed.key).user_metadata)
        collect(world, [third])
    assert world.keys(world.source) == before


class Renamed(LocalDriver):
    """A folder that says it is elsewhere."""

    def __init__(self, folder, **said):
        super().__init__(str(folder))
        self._said = said

    @hookimpl
    def describe(self):
        return replace(super().describe(), **self._said)


def in_bucket(endpoint):
    metadata = {"managedLedgerOffloadDriver": "aws-s3", "bucket": "cold", "serviceEndpoint": endpoint}
    return {"location": "s3://cold", "driver_metadata": metadata}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({}, in_bucket("http://a")),
        (in_bucket("http://a"), {}),
        (in_bucket("http://a"), in_bucket("http://b")),
    ],
    ids=["from a folder into a bucket", "from a bucket into a folder", "another store's bucket of that name"],
)
def test_new_copies_may_be_in_a_tier_of_another_kind(world, source, target):
    with (
        Tier(Renamed(world.folder / "source", **source)) as here,
        Tier(Renamed(world.folder / "target", **target)) as there,
    ):
        world.target = there
        world.move_all()
        as_a_broker_has_them(world)
        before = world.keys(here)
        collect(world, [], here)
        assert world.keys(here) == before
        collect(world, [there], here)
        assert world.keys(here) == []


@pytest.mark.parametrize("format_", [None, ObjectFormat.MAPFILE])
def test_new_copies_are_looked_for_where_the_other_tiers_url_says(world, tmp_path, format_):
    world.move_all(world.wanted(format_))
    as_a_broker_has_them(world)
    without = shutil.ignore_patterns(".*")
    shutil.copytree(tmp_path / "source", tmp_path / "bucket" / "cluster", ignore=without)
    with open_store(tmp_path / "bucket") as bucket:
        assert len(world.keys(bucket)) == 8
        collect(world, [world.target], bucket, "cluster")
        assert world.keys(bucket) == []


# --- What lies elsewhere by design is said and stays: copies that wait for a relocation's end, the quarantine, notes.


WAITS = "the copy that took its place lies in another tier: relocate --delete-source deletes this one"


def test_copies_that_a_relocation_left_behind_are_said_with_their_bytes(tmp_path):
    moved = MovedTopic.make(tmp_path, f"sqlite:{tmp_path}/records.db")
    for count in (12, 9):
        moved.offload(moved.add_ledger(count))
    sizes = sum(each.size_bytes for each in moved.source.list_objects())
    assert len(moved.move_all()) == 2
    before = moved.keys(moved.source)
    collection = collection_of(moved, {}, is_shared=True)
    assert list(collection.collect(moved.audit)) == []
    summary = collection.summary
    assert (summary.kept[WAITS], summary.kept_bytes[WAITS]) == (2, sizes)
    (line,) = [line for line in summary_lines(summary, is_dry=True) if WAITS in line]
    assert line.startswith(f"  kept: 2, {sizes / 1000:.1f} kB")
    assert moved.keys(moved.source) == before


@pytest.mark.parametrize("prefix", ["", "quarantine/"])
@pytest.mark.parametrize("scope", [{}, {"is_shared": False}, {"is_shared": False, "takes_stand_ins": True}])
def test_what_a_repair_put_aside_and_its_notes_are_never_garbage(scope, prefix):
    scene = pip17(records=False)
    DAMAGES["a-block-is-zeros"].do(scene)
    world = CollectedTier.of(scene)
    repaired(scene, world.tier, quarantine=True)
    kept = closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(9)))
    world.put_record("acme/cold/persistent/others", managed_ledger(kept))  # the topic itself was deleted
    aside = {key for key in world.keys if key.startswith("quarantine/")}
    assert any(key.endswith(".quarantined") for key in aside)
    assert len(aside) > 2
    world.collect(now_ms=clock(), prefix=prefix, **scope)
    assert aside <= world.keys
    assert not any(key in str(each) for key in aside for each in world.log.changes)


# --- Copies that stand in for those that records name stay; one that lost entries is no reason for another to go.


def standing_in(key, half=False):
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
def test_what_stands_in_for_a_copy_stays_while_its_ledger_is_recorded(key, half):
    scene = standing_in(key, half)
    world = CollectedTier.of(scene)
    before = world.keys
    world.assert_all_stays(is_shared=False)
    assert [why for why, count in world.summary.kept.items() if count] == [
        "it stands in for a copy that records name, by a mapping of relocate or after a repair"
    ]
    assert len(world.collect(is_shared=False, takes_stand_ins=True)) == 1
    assert world.keys < before


def test_what_stands_in_for_copies_of_ledgers_that_are_gone_goes():
    scene = standing_in(MAPPED_KEY)
    scene.records = {TOPIC: managed_ledger(closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid_of(0))))}
    assert kinds(CollectedTier.of(scene).collect(is_shared=False)) == {scene.key(1): "orphan"}
    scene.records = {
        f"{TOPIC}-of-others": managed_ledger(closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(0))))
    }
    assert kinds(CollectedTier.of(scene).collect(is_shared=False)) == {scene.key(1): "deleted-topic"}


@pytest.mark.parametrize("turn", [2, 3])
def test_what_stands_in_stays_if_its_topics_record_comes_back_before_the_last_look(turn):
    scene = standing_in(REPAIRED_FROM_KEY)
    record = managed_ledger(closed_ledger(LEDGER, PAYLOADS, copied(uuid_of(0))))
    scene.records = {f"{TOPIC}-of-others": record}
    world = CollectedTier.of(scene)
    before = world.keys
    comes_back = changing(world, lambda: world.put_record(TOPIC, record), turn)
    world.collect(records=comes_back, is_shared=False)
    assert world.keys == before


def test_a_copy_that_lost_entries_is_no_reason_for_another_to_go():
    scene = pip17()
    scene.add(one_ledger(), 5)
    for name in (scene.key(0), scene.index_key(0)):
        scene.objects[name].metadata[LOST_KEY] = f"1 entries: {LEDGER}:3"
    CollectedTier.of(scene).assert_all_stays(is_shared=False)


def test_what_a_repair_saved_by_a_live_pulsars_records_stays():
    scene = pip17()
    DAMAGES["a-block-is-zeros"].do(scene)
    world = CollectedTier.of(scene)
    (planned,), _, _ = repaired(scene, world.tier, quarantine=True)
    before = world.keys
    assert planned.target in before
    assert world.collect(is_shared=False, now_ms=later_ms) == []
    assert world.keys == before


# --- by a mapping ----------------------------------------------------------------------------------


@pytest.fixture
def moved(tmp_path):
    return moved_by_mapping(tmp_path)


def collection_of(moved, own, **scope):
    records = partial(open_records, f"sqlite:{moved.folder}/records.db", moved.source, {}, own)
    return Collection(moved.source, records, Scope(**{"now_ms": later_ms, "is_shared": False} | scope))


def test_copies_that_a_mapping_names_are_not_garbage_of_records_that_do_not(moved):
    before = moved.keys(moved.source)
    assert len(before) == 8
    collection = collection_of(moved, {})
    assert list(collection.collect(moved.audit)) == []
    assert moved.keys(moved.source) == before
    gone = list(collection_of(moved, {}, takes_stand_ins=True).collect(moved.audit))
    assert len(gone) == 2
    assert moved.read_all(tiers=[moved.source]) == moved.entries


def test_by_a_mapping_nothing_is_deleted_of_what_the_records_name(moved):
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
def test_two_records_of_one_topic_and_nothing_goes(names):
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


def test_a_deletion_that_is_cut_off_leaves_no_checksums_alone(moved):
    keys = [parse_key(each) for each in moved.keys(moved.source)]
    key = next(each for each in keys if each is not None and not each.is_index)
    moved.source.write_index(key.block_checksums_key, b"checksums")
    calls: list[set[str]] = []

    class CutOff:
        def delete(self, names):
            calls.append(set(names))

    delete_objects(CutOff(), [key])
    assert calls == [{key.index_key, key.block_checksums_key}, {key.data_key}]


@pytest.mark.parametrize("is_shared", [True, False])
def test_mapfiles_in_a_folder_are_not_taken_for_those_of_deleted_topics(is_shared):
    scene = mapfiles()
    for name in list(scene.objects):
        backup = f"backup/{name}".replace(str(uuid_of(0)), str(uuid_of(7)))
        scene.objects[backup] = scene.objects[name]
    world = CollectedTier.of(scene)
    world.assert_all_stays(is_shared=is_shared)
    assert world.summary.unknown["it lies in another folder"] == 1
