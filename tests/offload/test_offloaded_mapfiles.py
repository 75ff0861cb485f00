"""Ledgers go to a tier of Pulsar's driver `filesystem` as MapFiles, with a filter or without, and live there."""

import os
from contextlib import closing, suppress
from uuid import uuid4

import pytest
from commands import in_this_process
from crash_points import Watch
from managed_ledgers import NAME, Audit, offloads_of
from mapfiles import golden_mapfile, read_mapfile
from scenes.filters import PlainFilter
from scenes.moves import BLOCK_BYTES, MovedTopic

from offload_core.format.codec.mapfile.crc_files import make_checksums
from offload_core.format.codec.object_format import TOPIC_KEY, ObjectFormat, parse_key
from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.maintenance.record_recovery import rebuild_topics
from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.catalogue.known_tiers import KnownTiers, offload_format, tier_record
from offload_core.metadata.catalogue.survey import LedgerSurvey
from offload_core.metadata.records.filter_record import FilterMode, indexed_filter
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.storage.tier import Tier, open_store
from offload_core.storage.tier.chain import Layer
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload.hot_copy_check import check_cold_copies
from offload_core.writing.offload_filters import FilterRun
from offload_drivers.pulsar_filesystem import FilesystemDriver
from offload_hooks.errors import OffloadError, OptionError, StoreUnavailableError


@pytest.fixture
def world(tmp_path):
    """A topic whose ledgers go where Pulsar's driver `filesystem` keeps them."""
    return mapfile_topic(tmp_path)


def mapfile_topic(folder):
    world = MovedTopic.make(folder)
    world.source = open_store("filesystem", fileSystemURI=f"file://{folder}/source")
    return world


def folder_of(world, ledger_id):
    return f"{NAME}/{ledger_id}-{world.info.ledger(ledger_id).context.uuid}"


def drops_a_third(payload):
    return int(payload[-1] % 3 == 0)


def test_a_ledger_lies_as_pulsars_offloader_leaves_it(world):
    ledgers = [world.add_ledger(count) for count in (300, 1)]
    for ledger_id in ledgers:
        world.offload(ledger_id)
    assert set(world.files("source")) == {folder_of(world, ledger_id) for ledger_id in ledgers}
    root = world.folder / "source"
    for folder, files in world.files("source").items():
        sidecars = {name for name in files if name.endswith(".metadata.json")}  # of commits that are retried
        assert set(files) - sidecars == {"data", "index", ".data.crc", ".index.crc"}
        for name in ("data", "index"):
            assert files[f".{name}.crc"].read_bytes() == make_checksums(files[name].read_bytes())
        entries = read_mapfile(golden_mapfile(root / folder, root))
        assert entries == [(*at, payload) for at, payload in world.entries.items() if at[0] == entries[0][0]]
    for ledger in world.info.ledgers:
        driver = ledger.context.driver
        assert (driver.name, driver.get("storageBasePath")) == ("filesystem", str(root))
    assert world.read_all(tiers=[world.source]) == world.entries
    for tier in (world.source, open_store(root)):
        assert list(Verification(tier, deep=True)) == []


def test_the_driver_says_whose_it_is_and_local_ones_write_blocks(world):
    assert offload_format(world.source) is ObjectFormat.MAPFILE
    assert offload_format(world.target) is ObjectFormat.PIP17
    assert tier_record(world.source, ObjectFormat.PIP17).name == "local"
    world.source, mapfiles = world.target, world.source
    ledger_id = world.add_ledger(20)
    world.offload(ledger_id)
    assert world.info.ledger(ledger_id).context.driver.name == "local"
    world.target = mapfiles
    world.move_all()
    assert world.info.ledger(ledger_id).context.driver.name == "local", "it is moved as it is"
    assert world.read_all(tiers=[mapfiles]) == world.entries


@pytest.mark.parametrize("mode", FilterMode)
def test_a_filter_is_told_of_and_its_copy_is_all_there_is(world, mode):
    ledger_id = world.add_ledger(40)
    world.offload(ledger_id, drops=drops_a_third, mode=mode)
    kept = {at: payload for at, payload in world.read_all().items() if at in world.entries}
    assert kept == world.entries
    assert len(world.read_all()) == (len(kept) if mode is FilterMode.GAP else 40)
    assert list(Verification(world.source, deep=True)) == []
    (record,) = check_cold_copies(KnownTiers(world.source), NAME, world.info.ledger(ledger_id))
    assert (record.mode, record.kept.entries) == (mode, len(kept))


def test_a_ledger_of_which_nothing_is_kept_is_a_mapfile_without_entries(world):
    ledger_id = world.add_ledger(10)
    world.offload(ledger_id, drops=lambda _: 1)
    assert world.read_all(tiers=[world.source]) == {}
    assert list(Verification(world.source, deep=True)) == []


@pytest.mark.parametrize("mode", [None, *FilterMode])
def test_its_record_is_rebuilt_from_the_files(world, mode):
    ledger_id = world.add_ledger(40)
    if mode is None:
        world.offload(ledger_id)
    else:
        world.offload(ledger_id, drops=drops_a_third, mode=mode)
    before = world.read_all()
    with LedgerSurvey() as survey:
        survey.fill(world.source)
        (topic,) = rebuild_topics(world.source, survey)
    (ledger,) = topic.info.ledgers
    recorded = world.info.ledger(ledger_id).context
    assert (ledger.context.uuid, ledger.context.driver) == (recorded.uuid, recorded.driver)
    assert world.read_all(topic.info) == before


def test_an_index_that_is_made_anew_keeps_the_record_of_a_filter(world, tmp_path, capsys, monkeypatch):
    ledger_id = world.add_ledger(400)
    world.offload(ledger_id, drops=drops_a_third)
    before, files = world.read_all(), world.files("source")[folder_of(world, ledger_id)]
    index = bytearray(files["index"].read_bytes())
    index[-1] ^= 1
    files["index"].write_bytes(index)
    for path in files.values():
        os.utime(path, (0, 0))  # long ago: no offload is under way
    assert list(Verification(world.source))
    offload = in_this_process(capsys, monkeypatch)
    key = f"{folder_of(world, ledger_id)}/data"
    audit = ["--yes", "--audit-log", tmp_path / "audit.jsonl"]
    done = offload("repair", world.folder / "source", key, *audit)
    assert done.code == 0, done.out + done.err
    assert world.read_all() == before
    assert list(Verification(world.source, deep=True)) == []
    (record,) = check_cold_copies(KnownTiers(world.source), NAME, world.info.ledger(ledger_id))
    assert record.dropped is not None


def test_what_is_saved_of_damaged_data_has_the_record_of_a_filter(world, tmp_path, capsys, monkeypatch):
    ledger_id = world.add_ledger(60, size=60_000)
    world.offload(ledger_id, drops=drops_a_third)
    before, files = world.read_all(), world.files("source")[folder_of(world, ledger_id)]
    data = bytearray(files["data"].read_bytes())
    data[len(data) // 2] ^= 1
    files["data"].write_bytes(data)
    for path in files.values():
        os.utime(path, (0, 0))
    offload = in_this_process(capsys, monkeypatch)
    key = f"{folder_of(world, ledger_id)}/data"
    audit = ["--yes", "--audit-log", tmp_path / "audit.jsonl"]
    done = offload("repair", world.folder / "source", key, *audit, "--json")
    assert done.code == 0, done.out + done.err
    (repair,) = done.json["repairs"]
    assert repair["entries"] + repair["lost"] == len(before), "what the filter left out was not lost"
    stat = world.source.stat(f"{repair['target']}-index")
    index = read_index(
        world.source, parse_key(repair["target"]), index_bytes=stat.size_bytes, data_bytes=None
    )
    assert indexed_filter(index.ledgers[0]).kept.entries == len(before)
    marks = ObjectMarks.of(stat.user_metadata)
    assert (marks.filter_name, marks.has_gaps, marks.lost.count) == ("by-test", True, repair["lost"])


def test_its_hot_copy_goes_and_it_is_read(world):
    ledger_id = world.add_ledger(30)
    world.offload(ledger_id)
    offloads = offloads_of(world.records, world.hot, KnownTiers(world.source), now_ms=world.clock)
    assert offloads.delete_hot_copy(NAME, ledger_id, 0)
    assert world.read_all() == world.entries


def test_an_attempt_that_fails_leaves_no_file(world):
    ledger_id = world.add_ledger(300)
    audit = Audit()
    offloads = offloads_of(
        world.records, world.hot, KnownTiers(world.source), block_bytes=BLOCK_BYTES, now_ms=world.clock
    )

    def stop(progress):
        if progress.blocks == 3:
            raise StoreUnavailableError("the listener wants no more")

    with pytest.raises(StoreUnavailableError):
        offloads.offload(NAME, ledger_id, listener=stop, audit=audit)
    assert world.files("source") == {}
    assert list(world.source.list_uploads()) == []
    assert world.info.ledger(ledger_id).context is None


def test_by_the_offloader_alone_a_name_is_needed(world):
    ledger_id, uuid = world.add_ledger(3), uuid4()
    offloader = LedgerOffloader(world.source)
    with closing(world.hot.open(ledger_id)) as ledger:
        with pytest.raises(OptionError, match="under the name of its managed ledger"):
            offloader.offload(ledger, uuid, {})
        offloader.offload(ledger, uuid, {TOPIC_KEY: NAME})
    with pytest.raises(OptionError, match="under the name of its managed ledger"):
        offloader.delete_offloaded(ledger_id, uuid)
    assert len(world.keys(world.source)) == 4
    offloader.delete_offloaded(ledger_id, uuid, {TOPIC_KEY: NAME})
    assert world.keys(world.source) == []


def test_it_is_cut_off_anywhere(crash_matrix):
    def scene(folder):
        world = mapfile_topic(folder)
        world.add_ledger(40)
        return world

    def run(world, points):
        driver = FilesystemDriver(f"file://{world.folder}/source")
        tier = Tier(driver, [Layer(name="watch", make=lambda _: Watch(points))])
        offloads = offloads_of(world.records.store, world.hot, KnownTiers(tier), points, now_ms=world.clock)
        world.clock.pass_s(3600)
        with suppress(OffloadError):
            run_filter = FilterRun("by-test", FilterMode.GAP, PlainFilter(drops_a_third))
            offloads.offload(NAME, 0, filter_run=run_filter)

    def check(world, where):
        readers = ColdReaders(KnownTiers(world.source), memory=ReadMemory())
        for ledger in world.info.ledgers:
            if ledger.has_complete_copy:
                with closing(readers.open(ledger, NAME)):
                    assert len(world.read_all()) > 20, where

    def check_done(world, where):
        check(world, where)
        assert world.info.ledger(0).has_complete_copy, where
        assert set(world.files("source")) == {folder_of(world, 0)}, where
        assert list(world.source.list_uploads()) == [], where

    calls = crash_matrix(scene, run, check=check, check_done=check_done, every=40)
    assert [call for call in calls if "index" in call]
