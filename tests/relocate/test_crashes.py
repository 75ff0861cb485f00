"""Wherever a relocation is cut off: all entries are read, and the next run ends it and leaves nothing behind."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from crash_points import FAULTS, Fault, Killed, Metadata, PointedAudit, Points
from effort import Sample
from scenes.moves import TOPIC_NAME, MovedTopic, watched

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.relocate import make_moves, plan_topic
from offload_core.metadata.records import other_copies, read_copies
from offload_core.metadata.records.relocations import MappingFile, read_mapping
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.managed_ledger.copy_registry import MappingRegistry, RecordRegistry
from offload_hooks.errors import OffloadError


def make_world(folder: Path) -> MovedTopic:
    world = MovedTopic.make(folder)
    ledgers = [world.add_ledger(12), world.add_ledger(9)]
    world.offload(ledgers[0], drops=lambda payload: int(payload[-1] % 4 == 0))
    world.stream((ledgers[1], 8))
    return world


def move(world: MovedTopic, points: Points) -> None:
    """What one process does: plan, and move all."""
    wanted = world.wanted(ObjectFormat.STREAMING)
    store = Metadata(world.records.store, points)  # type: ignore[arg-type]
    mover = world.mover(
        registry=RecordRegistry(ManagedLedgerRecords(store), world.clock),  # type: ignore[arg-type]
        source=watched(world, "source", points),
        target=watched(world, "target", points),
        audit=PointedAudit(world.audit, points),  # type: ignore[arg-type]
    )
    with suppress(OffloadError):
        list(make_moves(mover, [plan_topic(TOPIC_NAME, world.info, wanted)], parallel=1))


def check_ended(world: MovedTopic) -> None:
    """All is in the target, and nothing else."""
    move(world, Points())
    assert world.read_all(tiers=[world.target]) == world.entries
    named = {str(uuid) for uuid in read_copies(world.info)}
    assert {key[:36] for key in world.keys(world.target)} == named
    assert {each.role.value for each in other_copies(world.info)} == {"replaced"}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_relocation_is_cut_off_anywhere(tmp_path: Path, fault: Fault, sample: Sample[int]) -> None:
    counted = Points()
    move(make_world(tmp_path / "counted"), counted)
    assert len(counted.calls) > 25
    for at in sample(range(1, len(counted.calls) + 1), 24):
        world = make_world(tmp_path / str(at))
        points = Points(at, fault)
        with suppress(Killed):
            move(world, points)
        assert world.read_all() == world.entries, f"after {fault} of call {at}, {points.calls[at - 1 :][:1]}"
        check_ended(world)


@pytest.mark.parametrize("fault", ["before", "kill before", "kill after"])
def test_a_relocation_by_a_mapping_is_cut_off_anywhere(
    tmp_path: Path, fault: Fault, sample: Sample[int]
) -> None:
    def run(world: MovedTopic, points: Points) -> None:
        with MappingFile(world.folder / "mapping") as file:
            registry = MappingRegistry(file, lambda _: world.info, world.clock)
            mover = world.mover(
                registry=registry,
                source=watched(world, "source", points),
                target=watched(world, "target", points),
            )
            info = registry.info(TOPIC_NAME.full.replace("persistent://acme/cold", "acme/cold/persistent"))
            plan = plan_topic(TOPIC_NAME, info, world.wanted(ObjectFormat.STREAMING))
            with suppress(OffloadError):
                list(make_moves(mover, [plan], parallel=1))

    counted = Points()
    run(make_world(tmp_path / "counted"), counted)
    for at in sample(range(1, len(counted.calls) + 1), 24):
        world = make_world(tmp_path / str(at))
        before = world.info
        with suppress(Killed):
            run(world, Points(at, fault))
        run(world, Points())
        assert world.info == before
        mapped = read_mapping(world.folder / "mapping")
        assert mapped.under_way == ()
        uuids = {str(each.copy.uuid) for each in mapped.done}
        assert (len(uuids), {key[:36] for key in world.keys(world.target)}) == (2, uuids)
