"""What must stay or go along when copies are moved: old copies, checksums, what says that entries were lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scenes.moves import TOPIC_NAME, MovedTopic

from offload_core.format.codec.object_format import ObjectFormat, parse_key
from offload_core.format.codec.object_marks import LOST_KEY, MAPPED_KEY, REPAIRED_FROM_KEY
from offload_core.maintenance.relocate import MappingRegistry, plan_topic
from offload_core.maintenance.verify import Verification
from offload_core.maintenance.verify.sealing import Sealing
from offload_core.metadata.records import other_copies
from offload_core.metadata.records.relocations import MappingFile, read_mapping
from offload_core.storage.tier import Tier
from offload_hooks.errors import DataLossError, OptionError, OutcomeUnknownError


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MovedTopic]:
    """Two ledgers of one object each."""
    made = MovedTopic.make(tmp_path)
    for count in (12, 9):
        made.offload(made.add_ledger(count))
    yield made
    made.source.close()
    made.target.close()


def say(tier: Tier, stem: str, said: dict[str, str]) -> None:
    """Have the objects of an attempt say something more."""
    for key in (stem, f"{stem}-index"):
        stat = tier.stat(key)
        data = bytes(tier.read_range(key, 0, stat.size_bytes))
        tier.write_index(key, data, user_metadata={**stat.user_metadata, **said})


def stem_of(world: MovedTopic, tier: Tier, ledger_id: int) -> str:
    return next(key for key in world.keys(tier) if key.endswith(f"-ledger-{ledger_id}"))


@pytest.mark.parametrize("wrong", ["index", "data", "lost"])
def test_an_old_copy_stays_while_what_took_its_place_is_not_whole(world: MovedTopic, wrong: str) -> None:
    world.move_all()
    world.clock.pass_s(61)
    stem, old = stem_of(world, world.target, 0), stem_of(world, world.source, 0)
    if wrong == "lost":
        say(world.target, stem, {LOST_KEY: "1 entries: 0:3"})
    else:
        world.target.delete([stem if wrong == "data" else f"{stem}-index"])
    assert len(world.mover().replaced(TOPIC_NAME, 60_000)) == 1
    found = world.mover().delete_replaced(TOPIC_NAME, 60_000)
    assert [copy.ledger_ids for copy in found.deleted] == [(1,)]
    assert isinstance(found.error, DataLossError)
    assert "what took their place is not there as a whole" in str(found.error)
    assert world.keys(world.source) == [old, f"{old}-index"]
    assert len(other_copies(world.info)) == 1


def test_checksums_of_blocks_go_along_and_go_with_the_old_copy(world: MovedTopic) -> None:
    stem = stem_of(world, world.source, 0)
    key = parse_key(stem)
    assert key is not None
    checksums = seal(world, stem)
    world.move_all()
    moved = stem_of(world, world.target, 0)
    stat = world.target.stat(f"{moved}-checksums")
    assert bytes(world.target.read_range(stat.key, 0, stat.size_bytes)) == checksums
    assert world.mover().delete_replaced(TOPIC_NAME, 0).deleted
    assert world.keys(world.source) == []


def seal(world: MovedTopic, stem: str) -> bytes:
    """The checksums of an attempt, that lie beside it now."""
    sealing = Sealing(world.source, audit=world.audit)
    assert list(Verification(world.source, deep=True, sealing=sealing)) == []
    key = f"{stem}-checksums"
    return bytes(world.source.read_range(key, 0, world.source.stat(key).size_bytes))


def test_a_copy_that_lost_entries_is_moved_as_it_is_and_not_to_another_format(world: MovedTopic) -> None:
    said = {LOST_KEY: "1 entries: 0:3", REPAIRED_FROM_KEY: "another"}
    say(world.source, stem_of(world, world.source, 0), said)
    before = world.info
    for wanted in (world.wanted(ObjectFormat.STREAMING), world.wanted(merge_bytes=1 << 20)):
        with pytest.raises(OptionError, match="lost entries"):
            world.mover().move(world.plan(wanted).moves[0])
    assert (world.info.in_order, world.keys(world.target)) == (before.in_order, [])
    world.move_all()
    for key in (stem_of(world, world.target, 0), f"{stem_of(world, world.target, 0)}-index"):
        assert world.target.stat(key).user_metadata.items() >= said.items()


# --- by a mapping ----------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", [None, ObjectFormat.STREAMING])
def test_copies_of_a_mapping_say_so_and_no_others_do(world: MovedTopic, format_: ObjectFormat | None) -> None:
    with MappingFile(world.folder / "mapping") as file:
        mover = world.mover(registry=MappingRegistry(file, lambda _: world.info, world.clock))
        for move in plan_topic(TOPIC_NAME, world.info, world.wanted(format_)).moves:
            mover.move(move)
    keys = world.keys(world.target)
    assert len(keys) == 4
    assert all(MAPPED_KEY in world.target.stat(key).user_metadata for key in keys)
    world.move_all(world.wanted(format_))
    assert sum(MAPPED_KEY in world.target.stat(key).user_metadata for key in world.keys(world.target)) == 4


def test_of_a_copy_that_a_mapping_perhaps_names_nothing_is_deleted(
    world: MovedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MappingFile.add

    def add(self: MappingFile, step: Any, relocation: Any) -> None:
        real(self, step, relocation)
        if step == "done":  # it is on the disk, and the disk says that it is not
            self.mapped = replace(self.mapped, done=(), under_way=(relocation,))
            raise OutcomeUnknownError("no space left on device")

    monkeypatch.setattr(MappingFile, "add", add)
    with MappingFile(world.folder / "mapping") as file:
        mover = world.mover(registry=MappingRegistry(file, lambda _: world.info, world.clock))
        with pytest.raises(OutcomeUnknownError):
            mover.move(world.plan().moves[0])
        mover.clean(TOPIC_NAME)
    [done] = read_mapping(world.folder / "mapping").done
    assert {key[:36] for key in world.keys(world.target)} == {str(done.uuid)}


def test_a_disk_that_fails_leaves_open_whether_a_step_was_added(
    world: MovedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "no space left on device")

    with MappingFile(world.folder / "mapping") as file:
        mover = world.mover(registry=MappingRegistry(file, lambda _: world.info, world.clock))
        mover.move(world.plan().moves[0])
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OutcomeUnknownError, match="no space left"):
            file.add("done", file.mapped.done[0])
