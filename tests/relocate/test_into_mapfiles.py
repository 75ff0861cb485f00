"""Whole ledgers go into MapFiles, and out of them again; what a MapFile cannot hold is left where it is, and said."""

from contextlib import suppress

import pytest
from crash_points import Killed, Metadata, Points
from entries import read_whole
from managed_ledgers import NAME
from mapfiles import golden_mapfile, read_mapfile
from scenes.moves import BLOCK_BYTES, TOPIC_NAME, MovedTopic, watched

from offload_core.format.codec.mapfile.crc_files import make_checksums
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    FileCompression,
    parse_whole_header,
)
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.object_marks import LOST_KEY
from offload_core.maintenance.relocate import make_moves, plan_topic
from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.records import other_copies, read_copies
from offload_core.metadata.records.filter_record import FilterMode, indexed_filter
from offload_core.metadata.records.relocations import MappingFile, relocated
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.managed_ledger.copy_registry import MappingRegistry, RecordRegistry
from offload_core.writing.offload_filters import recorded_filters
from offload_hooks.errors import OffloadError, OptionError

pytestmark = pytest.mark.long

PIP17, STREAMING, MAPFILE = ObjectFormat.PIP17, ObjectFormat.STREAMING, ObjectFormat.MAPFILE


@pytest.fixture
def world(tmp_path):
    """A ledger that is one object, and two in three segments."""
    made = MovedTopic.make(tmp_path)
    ledgers = [made.add_ledger(count) for count in (300, 25, 50)]
    made.offload(ledgers[0])
    made.stream((ledgers[1], 9), (ledgers[2], 19), (ledgers[2], 49))
    return made


def stored(world):
    """What is in the files of each folder in the target."""
    return {
        folder: {name: path.read_bytes() for name, path in files.items()}
        for folder, files in world.files("target").items()
    }


def test_ledgers_lie_as_pulsars_offloader_leaves_them(world):
    moves = world.move_all(world.wanted(MAPFILE))
    assert [move.ledger_ids for move in moves] == [(0,), (1,), (2,)]
    root = world.folder / "target"
    uuids = {ledger.ledger_id: ledger.context.uuid for ledger in world.info.ledgers if ledger.context}
    assert set(stored(world)) == {f"{NAME}/{ledger_id}-{uuid}" for ledger_id, uuid in uuids.items()}
    assert max(len(files["data"]) for files in stored(world).values()) > 3 * BLOCK_BYTES
    for folder, files in stored(world).items():
        assert set(files) == {"data", "index", ".data.crc", ".index.crc"}, "no sidecar of ours"
        assert files[".data.crc"] == make_checksums(files["data"])
        assert files[".index.crc"] == make_checksums(files["index"])
        assert parse_whole_header(files["data"], BYTES_WRITABLE).compression is FileCompression.BLOCK
        read = read_mapfile(golden_mapfile(root / folder, root))
        ledger_id = read[0][0]
        assert [(at, payload) for _, at, payload in read] == [
            (at, payload) for (of, at), payload in world.entries.items() if of == ledger_id
        ]
    for driver in [each.context.driver for each in world.info.ledgers]:
        assert (driver.name, driver.get("storageBasePath")) == ("filesystem", str(root))


def test_they_are_read_verified_and_done(world):
    world.move_all(world.wanted(MAPFILE))
    assert world.read_all(tiers=[world.target]) == world.entries
    assert list(Verification(world.target, deep=True)) == []
    plan = world.plan(world.wanted(MAPFILE))
    assert (plan.moves, plan.left, plan.done) == ((), (), (0, 1, 2))
    world.clock.pass_s(1)
    assert len(world.mover().delete_replaced(TOPIC_NAME, 0).deleted) == 4
    assert world.keys(world.source) == []


@pytest.mark.sampled(4)
@pytest.mark.parametrize("back", [PIP17, STREAMING])
def test_ledgers_go_into_mapfiles_and_back(world, back):
    world.move_all(world.wanted(MAPFILE))
    world.source, world.target = world.target, world.source
    world.move_all(world.wanted(back))
    assert world.read_all(tiers=[world.target]) == world.entries
    assert {each.context.driver.name for each in world.info.ledgers} == {"local"}
    world.clock.pass_s(1)
    assert world.mover().delete_replaced(TOPIC_NAME, 0).error is None
    assert world.keys(world.source) == [], "with the .crc files"


def test_within_one_tier(world):
    world.target = world.source
    world.move_all(world.wanted(MAPFILE))
    assert world.read_all(tiers=[world.source]) == world.entries


@pytest.mark.parametrize("mode", FilterMode)
def test_a_ledger_that_went_through_a_filter_says_so_in_a_mapfile(world, mode):
    filtered = world.add_ledger(30)
    world.offload(filtered, drops=lambda payload: int(payload[-1] % 3 == 0), mode=mode)
    before = world.read_all()
    (told,) = recorded_filters(world.info.ledger(filtered))
    world.move_all(world.wanted(MAPFILE))
    assert world.read_all(tiers=[world.target]) == before
    assert list(Verification(world.target, deep=True)) == []
    assert recorded_filters(world.info.ledger(filtered)) == (told,)
    uuid = world.info.ledger(filtered).context.uuid
    files = stored(world)[f"{NAME}/{filtered}-{uuid}"]
    assert set(files) == {
        *("data", "index", ".data.crc", ".index.crc", "data.metadata.json", "index.metadata.json")
    }, "the only MapFile with user metadata"
    index = read_index(
        world.target,
        ObjectKey.of_mapfile(NAME, filtered, uuid),
        index_bytes=len(files["index"]),
        data_bytes=len(files["data"]),
    )
    whole = indexed_filter(index.ledgers[0])
    assert (whole.mode, whole.kept.entries, whole.dropped is None) == (mode, 20, False)

    world.source, world.target = world.target, world.source
    world.move_all(world.wanted(PIP17))
    assert world.read_all(tiers=[world.target]) == before
    assert recorded_filters(world.info.ledger(filtered)) == (told,)


def test_what_was_saved_of_a_damaged_copy_is_not_taken_for_whole(world):
    [move, *_] = world.plan(world.wanted(MAPFILE)).moves
    key = f"{move.replaces[0]}-ledger-0"
    metadata = dict(world.source.stat(key).user_metadata) | {LOST_KEY: "{}"}
    world.source.write_index(key, read_whole(world.source, key), user_metadata=metadata)
    with pytest.raises(OptionError, match="lost entries before it was repaired"):
        world.mover().move(move)
    assert world.keys(world.target) == []


def test_a_ledger_that_is_only_partly_in_segments_is_left(world):
    part = world.add_ledger(20)
    world.stream((part, 9))
    plan = world.plan(world.wanted(MAPFILE))
    assert [move.ledger_ids for move in plan.moves] == [(0,), (1,), (2,)]
    assert [(left.ledger_ids, "only a part" in left.why) for left in plan.left] == [((part,), True)]


def test_a_mapping_names_mapfiles_and_readers_follow(world):
    before = world.info
    with MappingFile(world.folder / "mapping") as file:
        registry = MappingRegistry(file, lambda _: world.info, world.clock)
        world.move_all(world.wanted(MAPFILE), registry=registry)
        followed = relocated(world.info, file.mapped.of(NAME))
    assert world.info == before
    assert world.read_all(followed, [world.target]) == world.entries


def move(world, points):
    """What one process does: plan, and move all."""
    mover = world.mover(
        registry=RecordRegistry(ManagedLedgerRecords(Metadata(world.records.store, points)), world.clock),
        source=watched(world, "source", points),
        target=watched(world, "target", points),
    )
    with suppress(OffloadError):
        list(make_moves(mover, [plan_topic(TOPIC_NAME, world.info, world.wanted(MAPFILE))], parallel=1))


def make_small_world(folder):
    world = MovedTopic.make(folder)
    world.offload(world.add_ledger(12))
    return world


def test_an_upload_of_checksums_that_was_broken_off_is_aborted(tmp_path):
    counted = Points()
    move(make_small_world(tmp_path / "counted"), counted)
    begun = [at for at, call in enumerate(counted.calls, start=1) if call == "begin_data"]
    assert len(begun) == 2, "of the data, and of its checksums"
    world = make_small_world(tmp_path / "killed")
    with suppress(Killed):
        move(world, Points(begun[1], "kill after"))
    assert [each.upload.key.endswith("/.data.crc") for each in world.target.list_uploads()] == [True]
    world.clock.pass_s(3600)
    assert world.mover().clean(TOPIC_NAME) == 1
    assert list(world.target.list_uploads()) == []


def test_it_is_cut_off_anywhere(crash_matrix):
    def check(world, where):
        assert world.read_all() == world.entries, where

    def check_done(world, where):
        assert world.read_all(tiers=[world.target]) == world.entries, where
        [uuid] = read_copies(world.info)
        assert set(stored(world)) == {f"{NAME}/0-{uuid}"}, "nothing is left of the first attempt"
        assert {each.role.value for each in other_copies(world.info)} == {"replaced"}

    calls = crash_matrix(make_small_world, move, check=check, check_done=check_done, every=122)
    assert [call for call in calls if "index" in call]
