"""Whatever a relocation changes, in records or a mapping as in tiers, the audit log says before it is changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from crash_points import Killed, Metadata, Points
from managed_ledgers import Audit
from scenes.moves import TOPIC_NAME, MovedTopic, watched

from offload_core.maintenance.relocate import Mover
from offload_core.metadata.records.relocations import MappingFile
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.audit import Change, Deletion
from offload_core.writing.managed_ledger.copy_registry import MappingRegistry, RecordRegistry
from offload_hooks.errors import AttemptError, DataLossError, OffloadError


@dataclass
class Happened(Audit):
    """Lines of the log, and changes of records or objects, in their order."""

    order: list[str] = field(default_factory=list)

    def record(self, change: Deletion | Change) -> None:
        """See `AuditLog`."""
        what = "delete" if isinstance(change, Deletion) else change.action.value
        self.order.append(f"line: {what}")
        super().record(change)

    @property
    def whys(self) -> list[str]:
        """What lines about records say."""
        return [
            each.why for each in self.changes if isinstance(each, Change) and each.action.value == "record"
        ]


class Told(Points):
    """Points that tell what has changed."""

    def __init__(self, happened: Happened) -> None:
        super().__init__()
        self.happened = happened

    def before(self, name: str) -> None:
        """See `Points`. A copy's objects go by several calls."""
        said = {"put": "a record", "delete": "objects go"}.get(name)
        order = self.happened.order
        if said is not None and order[-1:] != ["objects go"]:
            order.append(said)
        super().before(name)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MovedTopic]:
    """One ledger of one object."""
    made = MovedTopic.make(tmp_path)
    made.offload(made.add_ledger(12))
    yield made
    made.source.close()
    made.target.close()


def mover_of(world: MovedTopic, told: Told, **given: Any) -> Mover:
    store = Metadata(world.records.store, told)  # type: ignore[arg-type]
    return world.mover(
        registry=RecordRegistry(ManagedLedgerRecords(store), world.clock),  # type: ignore[arg-type]
        source=watched(world, "source", told),
        target=watched(world, "target", told),
        audit=told.happened,
        **given,
    )


GOES = ["line: delete", "objects go", "line: record", "a record"]
"""A copy is deleted, and forgotten."""


def test_a_move_and_the_old_copys_end(world: MovedTopic) -> None:
    told = Told(Happened())
    mover = mover_of(world, told)
    mover.move(world.plan().moves[0])
    begins = ["line: write", "line: record", "a record"]
    assert told.happened.order == [*begins, "line: record", "a record"]
    told.happened.order.clear()
    world.clock.pass_s(1)
    assert mover.delete_replaced(TOPIC_NAME, 0).error is None
    assert told.happened.order == GOES
    assert [why.partition(": ")[2] for why in told.happened.whys] == [
        "the copy that it will be",
        "the copy that is read",
        "it is forgotten, its objects are gone",
    ]


def test_a_move_that_fails(world: MovedTopic) -> None:
    told = Told(Happened())

    def fail(_: int) -> None:
        raise DataLossError("by test")

    with pytest.raises(DataLossError):
        mover_of(world, told, listener=fail).move(world.plan().moves[0])
    begins = ["line: write", "line: record", "a record"]
    assert told.happened.order[:5] == [*begins, "line: record", "a record"]
    assert told.happened.order[-4:] == GOES
    assert {each.managed_ledger for each in told.happened.changes} == {world.plan().moves[0].name}


def test_what_a_move_that_was_killed_has_left(world: MovedTopic) -> None:
    def kill(_: int) -> None:
        raise Killed

    with suppress(Killed):
        mover_of(world, Told(Happened()), listener=kill).move(world.plan().moves[0])
    told = Told(Happened())
    assert mover_of(world, told).clean(TOPIC_NAME) == 1
    assert told.happened.order == ["line: record", "a record", *GOES]


def test_an_attempt_that_somebody_is_at_is_not_said_to_be_abandoned(world: MovedTopic) -> None:
    told = Told(Happened())
    with mover_of(world, Told(Happened())).begin(world.plan().moves[0]):
        assert mover_of(world, told).clean(TOPIC_NAME) == 0
    assert told.happened.order == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_mapping(world: MovedTopic, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    happened, real = Happened(), MappingFile.add

    def add(self: MappingFile, step: Any, relocation: Any) -> None:
        happened.order.append(step)
        real(self, step, relocation)

    def watch(_: int) -> None:
        if fails:
            raise DataLossError("by test")

    monkeypatch.setattr(MappingFile, "add", add)
    with MappingFile(world.folder / "mapping") as file:
        registry = MappingRegistry(file, lambda _: world.info, world.clock)
        mover = world.mover(registry=registry, audit=happened, listener=watch)
        with suppress(OffloadError):
            mover.move(world.plan().moves[0])
    ends = ["line: delete", "line: record", "dropped"] if fails else ["line: record", "done"]
    assert happened.order == ["line: write", "line: record", "begin", *ends]


def test_an_attempt_is_given_up_unless_it_is_read(world: MovedTopic) -> None:
    move = world.plan().moves[0]
    registry = RecordRegistry(world.records, world.clock)
    with mover_of(world, Told(Happened())).begin(move) as begun:
        copy = begun.order.copy
    step = (move.name, copy, move.replaces, "by test", world.audit)
    assert registry.give_up(move.name, copy, "by test", world.audit)
    registry.forget(move.name, copy, "by test", world.audit)
    assert registry.give_up(move.name, copy, "by test", world.audit), "somebody else has cleaned it up"
    with registry.attempt(*step):
        registry.switch(*step)
    assert not registry.give_up(move.name, copy, "by test", world.audit)
    with pytest.raises(AttemptError, match="other copies by now"), registry.attempt(*step):
        pass
