"""Copies are moved, of any format to any other, entry by entry the same; and what goes wrong leaves the old one."""

import os
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from entries import read_sparse_through, read_whole
from managed_ledgers import NAME
from records import new_copy
from scenes.moves import TOPIC_NAME, MovedTopic

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.codec.object_marks import LOST_KEY, MAPPED_KEY, REPAIRED_FROM_KEY
from offload_core.maintenance.relocate import byte_copies, plan_topic
from offload_core.maintenance.relocate.entry_copies import KeptLedger
from offload_core.maintenance.verify import Verification
from offload_core.maintenance.verify.verified_objects import Sealing
from offload_core.metadata.catalogue import open_records, parse_topic
from offload_core.metadata.catalogue.known_tiers import KnownTiers, is_same_place, tier_record
from offload_core.metadata.catalogue.topics import topic_selection
from offload_core.metadata.records import OtherRole, begin_replacement, other_copies, segments_of
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease
from offload_core.metadata.records.ledger_changes import mark_for_deletion
from offload_core.metadata.records.relocations import MappingFile, read_mapping
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.writing.managed_ledger.copy_registry import MappingRegistry
from offload_hooks.errors import AttemptError, DataLossError, OptionError, OutcomeUnknownError
from offload_hooks.ledger_stores import EntryBatch

NOW_MS = int(time.time() * 1000)
PIP17, STREAMING, MAPFILE = ObjectFormat.PIP17, ObjectFormat.STREAMING, ObjectFormat.MAPFILE


@pytest.fixture
def world(tmp_path):
    """Two ledgers of one object each, one of which is filtered, and two in three segments."""
    made = MovedTopic.make(tmp_path)
    ledgers = [made.add_ledger(count) for count in (40, 30, 25, 50)]
    made.offload(ledgers[0])
    made.offload(ledgers[1], drops=lambda payload: int(payload[-1] % 3 == 0))
    made.stream((ledgers[2], 9), (ledgers[3], 19), (ledgers[3], 49))
    return made


def begin(world, driver, until_ms):
    """Somebody has begun another copy of ledger 0 there; its uuid."""
    copy = new_copy(UUID(int=7), 0, driver=driver, since_ms=1)
    lease = AttemptLease(holder=AttemptHolder(machine=1, process=2, started=3), until_ms=until_ms)
    world.records.update(NAME, partial(begin_replacement, copy=copy, lease=lease))
    return copy.uuid


def is_moved(world):
    """Whether all copies are in the target, by the record and by a reader that has nothing else."""
    there = tier_record(world.target)
    for ledger in world.info.ledgers:
        context = ledger.context
        for driver in [share.driver for share in context.segments] or [context.driver]:
            if not is_same_place(there, driver):
                return False
    return world.read_all(tiers=[world.target]) == world.entries


@pytest.fixture(params=[byte_copies.PART_BYTES, 100])
def part_bytes(request, monkeypatch):
    """Objects of more bytes are copied by parts: none of this world's, or all."""
    monkeypatch.setattr(byte_copies, "PART_BYTES", request.param)


@pytest.mark.usefixtures("part_bytes")
def test_all_that_is_cold_goes_to_another_tier_as_it_is(world):
    before = world.read_all()
    assert before == world.entries
    moves = world.move_all()
    assert [move.ledger_ids for move in moves] == [(0,), (1,), (2,), (2, 3), (3,)]
    assert {move.how.value for move in moves} == {"bytes"}
    assert is_moved(world)
    assert list(Verification(world.target, deep=True)) == []
    assert (world.plan().moves, world.plan().done) == ((), (0, 1, 2, 3))
    assert world.read_all() == before
    assert [each.role for each in other_copies(world.info)] == [OtherRole.REPLACED] * 5
    sizes = {key[36:]: world.source.stat(key).size_bytes for key in world.keys(world.source)}
    assert {key[36:] for key in world.keys(world.target)} == set(sizes)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("target", [PIP17, STREAMING])
def test_all_goes_into_one_format(world, target):
    world.move_all(world.wanted(target))
    for ledger in world.info.ledgers:
        assert bool(ledger.context.segments) == (target is STREAMING)
    assert is_moved(world)
    assert list(Verification(world.target, deep=True)) == []
    assert world.plan(world.wanted(target)).moves == ()


def test_the_format_changes_and_changes_back_in_one_tier(world):
    world.target = world.source
    world.move_all(world.wanted(STREAMING))
    assert len(segments_of(world.info)) == 5
    world.move_all(world.wanted(PIP17))
    assert segments_of(world.info) == ()
    assert world.read_all(tiers=[world.source]) == world.entries


def test_small_ledgers_are_merged_into_segments(tmp_path):
    world = MovedTopic.make(tmp_path)
    for count in (10, 12, 14, 40, 9, 8):
        world.offload(world.add_ledger(count))
    limit = 3 * (world.info.ledgers[0].info.size or 0)
    wanted = world.wanted(merge_bytes=limit)
    moves = world.move_all(wanted)
    assert [move.ledger_ids for move in moves] == [(0, 1, 2), (3,), (4, 5)]
    assert [each.ledger_ids for each in segments_of(world.info)] == [(0, 1, 2), (3,), (4, 5)]
    assert is_moved(world)
    assert list(Verification(world.target, deep=True)) == []
    assert world.plan(wanted).moves == ()


def test_what_a_filter_said_goes_along(world):
    for format_ in (STREAMING, PIP17, STREAMING):
        world.move_all(world.wanted(format_))
        world.source, world.target = world.target, world.source
        assert world.read_all(tiers=[world.source]) == world.entries
    share = world.info.ledger(1).context.segments[0]
    said = world.source.stat(f"{share.uuid}-index").user_metadata
    assert said["pulsaroffloadfiltered"] == "by-test"
    kept = sum(ledger_id == 1 for ledger_id, _ in world.entries)
    assert said["pulsaroffloadfilteredkept"].startswith(f"{kept} entries, ")
    assert f'"kept":[{kept},' in share.filter_record


def test_who_has_the_old_copy_open_goes_on(world):
    readers = ColdReaders(KnownTiers(world.source), memory=ReadMemory(), read_buffer_bytes=200)
    with closing(readers.open(world.info.ledger(0), NAME)) as reader:
        entries = read_sparse_through(reader, 0, 39, 1000)
        found = [next(entries)]
        world.move_all()
        found += entries
    assert found == [(at, payload) for (ledger_id, at), payload in world.entries.items() if ledger_id == 0]


def test_old_copies_are_deleted_after_the_grace_if_asked_for(world):
    world.move_all()
    mover = world.mover()
    assert mover.delete_replaced(TOPIC_NAME, 60_000).deleted == ()
    before = world.keys(world.source)
    world.clock.pass_s(61)
    assert len(mover.replaced(TOPIC_NAME, 60_000)) == 5
    assert world.keys(world.source) == before
    assert len(mover.delete_replaced(TOPIC_NAME, 60_000).deleted) == 5
    assert world.keys(world.source) == []
    assert other_copies(world.info) == ()
    assert len([each for each in world.audit.deletions if getattr(each, "copy", None) == "cold"]) == 5
    assert is_moved(world)


def test_a_segment_stays_as_long_as_one_of_its_ledgers_reads_it(world):
    world.move_all(world.wanted(PIP17, ledger_ids=frozenset([3])))
    world.clock.pass_s(1)
    assert [each.ledger_ids for each in world.mover().delete_replaced(TOPIC_NAME, 0).deleted] == [(3,)]
    assert world.read_all() == world.entries
    world.move_all(world.wanted(PIP17))
    world.clock.pass_s(1)
    assert world.mover().delete_replaced(TOPIC_NAME, 0).error is None
    assert world.keys(world.source) == []
    assert is_moved(world)


def test_verifying_knows_what_was_replaced_and_what_is_under_way(world):
    world.move_all()
    uuid = begin(world, tier_record(world.source), NOW_MS + 30_000)
    for part in ("", "-index"):
        world.source.write_index(f"{uuid}-ledger-0{part}", b"half")

    def found(now_ms):
        verification = Verification(
            world.source,
            records=lambda: open_records({str(TOPIC_NAME): world.info}, world.source, {}),
            now_ms=lambda: now_ms,
        )
        return {(each.code.value, each.key) for each in verification}

    alive, left = found(NOW_MS), found(NOW_MS + (1 << 40))
    assert not [code for code, _ in alive if "orphan" in code], "those that were replaced are named"
    assert left - alive == {("attempt.unfinished", f"{uuid}-ledger-0")}


def test_a_damaged_copy_is_not_moved_and_nothing_of_it_stays(world):
    path = world.folder / "source" / f"{world.info.ledgers[0].context.uuid}-ledger-0"
    damaged = bytearray(path.read_bytes())
    damaged[200] ^= 1
    path.write_bytes(damaged)
    before = world.info
    [move] = world.plan(world.wanted(ledger_ids=frozenset([0]))).moves
    with pytest.raises(DataLossError, match="a new copy is not sound"):
        world.mover().move(move)
    assert world.info == before
    assert world.keys(world.target) == []


@pytest.mark.usefixtures("part_bytes")
def test_what_is_written_wrongly_is_not_taken(world, monkeypatch):
    tier = type(world.target)
    write_block, write_index = tier.write_block, tier.write_index

    def another(data):
        return bytes(data)[:-1] + bytes([data[-1] ^ 1])

    monkeypatch.setattr(
        tier,
        "write_block",
        lambda tier, upload, part, offset, data: write_block(tier, upload, part, offset, another(data)),
    )
    monkeypatch.setattr(
        tier, "write_index", lambda tier, key, data, **more: write_index(tier, key, another(data), **more)
    )
    before = world.info
    for move in world.plan().moves[:2]:
        with pytest.raises(DataLossError, match="a copy does not have the bytes of its original"):
            world.mover().move(move)
    assert world.info == before
    assert world.keys(world.target) == []


def test_an_index_that_is_sound_and_another_is_not_taken(world, monkeypatch):
    check = byte_copies.check_objects

    def with_another_index(*arguments, **listeners):
        examined = check(*arguments, **listeners)
        return replace(examined, index_crc=examined.index_crc ^ 1)

    monkeypatch.setattr(byte_copies, "check_objects", with_another_index)
    with pytest.raises(DataLossError, match="a copy does not have the bytes of its original") as caught:
        world.mover().move(world.plan().moves[0])
    assert caught.value.key.endswith("-index")
    assert world.keys(world.target) == []


def test_entries_that_are_others_are_not_taken(world, monkeypatch):
    read = KeptLedger.read

    def read_another(ledger, first, last, max_bytes):
        """As a writer would that swaps two bytes of a payload, after what was read was summed."""
        batch = read(ledger, first, last, max_bytes)
        data = bytearray(batch.data)
        data[-1] ^= 1
        return EntryBatch(batch.first_entry_id, memoryview(bytes(data)), batch.offsets)

    monkeypatch.setattr(KeptLedger, "read", read_another)
    monkeypatch.setattr("offload_core.maintenance.verify.deep.MessageCheck.check", lambda *_: None)
    before = world.info
    for format_, ledger_id in ((STREAMING, 0), (PIP17, 2)):
        [move] = world.plan(world.wanted(format_, ledger_ids=frozenset([ledger_id]))).moves
        with pytest.raises(DataLossError, match="are not those that it was made of"):
            world.mover().move(move)
    assert world.info == before
    assert world.keys(world.target) == []


@pytest.mark.parametrize("format_", [None, STREAMING])
def test_a_copy_is_read_back_once(world, format_, monkeypatch):
    read: Counter[str] = Counter()
    tier = type(world.target)
    read_range = tier.read_range

    def counted(tier, key, offset, length):
        if tier.describe().location == world.target.describe().location:
            read[key] += length
        return read_range(tier, key, offset, length)

    monkeypatch.setattr(tier, "read_range", counted)
    [move] = world.plan(world.wanted(format_, ledger_ids=frozenset([0]))).moves
    world.mover().move(move)
    data_keys = [key for key in world.keys(world.target) if not key.endswith("-index")]
    assert {key: read[key] for key in data_keys} == {
        key: world.target.stat(key).size_bytes for key in data_keys
    }


def test_large_objects_go_by_parts(world, monkeypatch):
    monkeypatch.setattr("offload_core.maintenance.relocate.byte_copies.PART_BYTES", 100)
    read: list[int] = []
    for move in world.plan().moves:
        world.mover(listener=read.append).move(move)
    assert is_moved(world)
    assert max(size for size in read[:5]) == 100
    assert len(read) > 100
    for tier in (world.source, world.target):
        assert {tier.stat(key).user_metadata["managedledgername"] for key in world.keys(tier)} == {NAME}


@pytest.mark.parametrize(
    ("topics", "namespaces", "wanted"),
    [
        (["acme/cold/a"], [], "a"),
        (["acme/cold/p"], [], "p"),
        ([], ["acme/cold"], "ap"),
        ([], ["acme/cold", "acme/hot"], "abp"),
        (["acme/cold/a", "acme/hot/b"], ["acme/hot"], "b"),
    ],
)
def test_topics_are_chosen_by_name_and_namespace(topics, namespaces, wanted):
    named = {"a": "acme/cold/a", "b": "acme/hot/b", "p": "acme/cold/p-partition-3", "?": None}
    wants = topic_selection([parse_topic(each) for each in topics], namespaces)
    chosen = [short for short, name in named.items() if wants(None if name is None else parse_topic(name))]
    assert "".join(chosen) == wanted


def test_a_plan_of_copies_that_changed_meanwhile_is_refused(world):
    moves = world.plan().moves
    world.move_all()
    before = world.keys(world.target)
    for move in moves:
        with pytest.raises(AttemptError, match="other copies by now"):
            world.mover().move(move)
    assert world.keys(world.target) == before


def test_ledgers_that_are_to_be_deleted_are_left_alone(world):
    world.records.update(NAME, lambda info: mark_for_deletion(info, [0, 1]))
    assert [move.ledger_ids for move in world.plan().moves] == [(2,), (2, 3), (3,)]


def test_a_ledger_that_is_deleted_while_it_is_moved_is_not_switched(world):
    def delete(_):
        world.records.update(NAME, lambda info: mark_for_deletion(info, [0]))

    with pytest.raises(AttemptError, match="abandoned"):
        world.mover(listener=delete).move(world.plan().moves[0])
    assert world.keys(world.target) == []
    assert other_copies(world.info) == ()


def test_what_an_attempt_left_is_deleted_when_nobody_is_at_it(world):
    uuid = begin(world, tier_record(world.target), world.clock.now_ms + 30_000)
    world.target.write_index(f"{uuid}-ledger-0", b"half")
    assert world.mover().clean(TOPIC_NAME) == 0, "its holder is alive, for all that is known"
    with pytest.raises(AttemptError, match="is not ended"):
        world.mover().move(world.plan().moves[0])
    world.clock.pass_s(31)
    assert world.mover().clean(TOPIC_NAME) == 1
    assert world.keys(world.target) == []
    world.move_all()
    assert is_moved(world)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"merge_bytes": 0}, "at least one byte"),
        ({"merge_bytes": 5, "format_": PIP17}, "in streaming objects"),
        ({"merge_bytes": 5, "format_": MAPFILE}, "in streaming objects"),
    ],
)
def test_what_makes_no_sense_is_refused(world, given, message):
    with pytest.raises(OptionError, match=message):
        world.wanted(**given)


def test_nothing_to_move_is_refused(world):
    world.target = world.source
    with pytest.raises(OptionError, match="there already"):
        world.wanted()


# --- What must stay or go along when copies are moved: old copies, checksums, what says that entries were lost.


@pytest.fixture
def small(tmp_path):
    """Two ledgers of one object each."""
    made = MovedTopic.make(tmp_path)
    for count in (12, 9):
        made.offload(made.add_ledger(count))
    return made


def say(tier, stem, said):
    """Have the objects of an attempt say something more."""
    for key in (stem, f"{stem}-index"):
        metadata = {**tier.stat(key).user_metadata, **said}
        tier.write_index(key, read_whole(tier, key), user_metadata=metadata)


def stem_of(small, tier, ledger_id):
    return next(key for key in small.keys(tier) if key.endswith(f"-ledger-{ledger_id}"))


@pytest.mark.parametrize("wrong", ["index", "data", "lost"])
def test_an_old_copy_stays_while_what_took_its_place_is_not_whole(small, wrong):
    small.move_all()
    small.clock.pass_s(61)
    stem, old = stem_of(small, small.target, 0), stem_of(small, small.source, 0)
    if wrong == "lost":
        say(small.target, stem, {LOST_KEY: "1 entries: 0:3"})
    else:
        small.target.delete([stem if wrong == "data" else f"{stem}-index"])
    assert len(small.mover().replaced(TOPIC_NAME, 60_000)) == 1
    found = small.mover().delete_replaced(TOPIC_NAME, 60_000)
    assert [copy.ledger_ids for copy in found.deleted] == [(1,)]
    assert isinstance(found.error, DataLossError)
    assert "what took their place is not there as a whole" in str(found.error)
    assert small.keys(small.source) == [old, f"{old}-index"]
    assert len(other_copies(small.info)) == 1


def test_checksums_of_blocks_go_along_and_go_with_the_old_copy(small):
    stem = stem_of(small, small.source, 0)
    sealing = Sealing(small.source, audit=small.audit)
    assert list(Verification(small.source, deep=True, sealing=sealing)) == []
    checksums = read_whole(small.source, f"{stem}-checksums")
    small.move_all()
    assert read_whole(small.target, f"{stem_of(small, small.target, 0)}-checksums") == checksums
    assert small.mover().delete_replaced(TOPIC_NAME, 0).deleted
    assert small.keys(small.source) == []


def test_checksums_of_blocks_that_are_written_wrongly_are_not_taken(small, monkeypatch):
    assert list(Verification(small.source, deep=True, sealing=Sealing(small.source, audit=small.audit))) == []
    tier = type(small.target)
    write_index = tier.write_index

    def damaged(tier, key, data, **more):
        write_index(tier, key, bytes(len(data)) if key.endswith("-checksums") else data, **more)

    monkeypatch.setattr(tier, "write_index", damaged)
    with pytest.raises(DataLossError, match="a copy does not have the bytes of its original"):
        small.mover().move(small.plan().moves[0])
    assert small.keys(small.target) == []


def test_a_copy_that_lost_entries_is_moved_as_it_is_and_not_to_another_format(small):
    said = {LOST_KEY: "1 entries: 0:3", REPAIRED_FROM_KEY: "another"}
    say(small.source, stem_of(small, small.source, 0), said)
    before = small.info
    for wanted in (small.wanted(ObjectFormat.STREAMING), small.wanted(merge_bytes=1 << 20)):
        with pytest.raises(OptionError, match="lost entries"):
            small.mover().move(small.plan(wanted).moves[0])
    assert (small.info.in_order, small.keys(small.target)) == (before.in_order, [])
    small.move_all()
    for key in (stem_of(small, small.target, 0), f"{stem_of(small, small.target, 0)}-index"):
        assert small.target.stat(key).user_metadata.items() >= said.items()


# --- by a mapping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", [None, ObjectFormat.STREAMING])
def test_copies_of_a_mapping_say_so_and_no_others_do(small, format_):
    with MappingFile(small.folder / "mapping") as file:
        mover = small.mover(registry=MappingRegistry(file, lambda _: small.info, small.clock))
        for move in plan_topic(TOPIC_NAME, small.info, small.wanted(format_)).moves:
            mover.move(move)
    keys = small.keys(small.target)
    assert len(keys) == 4
    assert all(MAPPED_KEY in small.target.stat(key).user_metadata for key in keys)
    small.move_all(small.wanted(format_))
    assert sum(MAPPED_KEY in small.target.stat(key).user_metadata for key in small.keys(small.target)) == 4


def test_of_a_copy_that_a_mapping_perhaps_names_nothing_is_deleted(small, monkeypatch):
    real = MappingFile.add

    def add(self, step, relocation):
        real(self, step, relocation)
        if step == "done":  # it is on the disk, and the disk says that it is not
            self.mapped = replace(self.mapped, done=(), under_way=(relocation,))
            raise OutcomeUnknownError("no space left on device")

    monkeypatch.setattr(MappingFile, "add", add)
    with MappingFile(small.folder / "mapping") as file:
        mover = small.mover(registry=MappingRegistry(file, lambda _: small.info, small.clock))
        with pytest.raises(OutcomeUnknownError):
            mover.move(small.plan().moves[0])
        mover.clean(TOPIC_NAME)
    [done] = read_mapping(small.folder / "mapping").done
    assert {key[:36] for key in small.keys(small.target)} == {str(done.copy.uuid)}


def test_a_disk_that_fails_leaves_open_whether_a_step_was_added(small, monkeypatch):
    def fail(_):
        raise OSError(28, "no space left on device")

    with MappingFile(small.folder / "mapping") as file:
        mover = small.mover(registry=MappingRegistry(file, lambda _: small.info, small.clock))
        mover.move(small.plan().moves[0])
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OutcomeUnknownError, match="no space left"):
            file.add("done", file.mapped.done[0])
