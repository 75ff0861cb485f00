"""Wherever a relocation is cut off: all entries are read, and the next run ends it and leaves nothing behind."""

import re
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from crash_points import FAULTS, Killed, Metadata, PointedAudit, Points, Watch
from effort import effort
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from managed_ledgers import NAME, Audit
from scenes.machines import TopicMachine
from scenes.moves import TOPIC_NAME, MovedTopic, watched

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.relocate import Mover, Wanted, make_moves, plan_topic
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import parse_topic
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import other_copies, read_copies
from offload_core.metadata.records.relocations import MappingFile, read_mapping
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_core.storage.tier.chain import Layer
from offload_core.writing.audit import Change, Deletion
from offload_core.writing.managed_ledger import delete_managed_ledger
from offload_core.writing.managed_ledger.copy_registry import MappingRegistry, RecordRegistry
from offload_drivers.local import LocalDriver
from offload_hooks.errors import AttemptError, DataLossError, OffloadError


def make_world(folder):
    world = MovedTopic.make(folder)
    ledgers = [world.add_ledger(12), world.add_ledger(9)]
    world.offload(ledgers[0], drops=lambda payload: int(payload[-1] % 4 == 0))
    world.stream((ledgers[1], 8))
    return world


def move(world, points):
    """What one process does: plan, and move all."""
    wanted = world.wanted(ObjectFormat.STREAMING)
    store = Metadata(world.records.store, points)
    mover = world.mover(
        registry=RecordRegistry(ManagedLedgerRecords(store), world.clock),
        source=watched(world, "source", points),
        target=watched(world, "target", points),
        audit=PointedAudit(world.audit, points),
    )
    with suppress(OffloadError):
        list(make_moves(mover, [plan_topic(TOPIC_NAME, world.info, wanted)], parallel=1))


def check(world, where):
    assert world.read_all() == world.entries, where


def check_ended(world, where):
    """All is in the target, and nothing else."""
    assert world.read_all(tiers=[world.target]) == world.entries, where
    named = {str(uuid) for uuid in read_copies(world.info)}
    assert {key[:36] for key in world.keys(world.target)} == named, where
    assert {each.role.value for each in other_copies(world.info)} == {"replaced"}, where


def test_a_relocation_is_cut_off_anywhere(crash_matrix):
    calls = crash_matrix(make_world, move, check=check, check_done=check_ended, every=142)
    assert len(calls) > 25


def test_a_relocation_by_a_mapping_is_cut_off_anywhere(crash_matrix):
    before = {}

    def scene(folder):
        world = make_world(folder)
        before[folder] = world.info
        return world

    def run(world, points):
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

    def check_unchanged(world, where):
        assert world.info == before[world.folder], where

    def check_mapped(world, where):
        mapped = read_mapping(world.folder / "mapping")
        assert mapped.under_way == (), where
        uuids = {str(each.copy.uuid) for each in mapped.done}
        assert (len(uuids), {key[:36] for key in world.keys(world.target)}) == (2, uuids), where

    crash_matrix(scene, run, check=check_unchanged, check_done=check_mapped, every=142)


# --- Whatever a relocation changes, in records or a mapping as in tiers, the audit log says before it is changed.


@dataclass
class Happened(Audit):
    """Lines of the log, and changes of records or objects, in their order."""

    order: list[str] = field(default_factory=list)

    def record(self, change):
        what = "delete" if isinstance(change, Deletion) else change.action.value
        self.order.append(f"line: {what}")
        super().record(change)

    @property
    def whys(self):
        """What lines about records say."""
        return [
            each.why for each in self.changes if isinstance(each, Change) and each.action.value == "record"
        ]


class Told(Points):
    """Points that tell what has changed."""

    def __init__(self, happened):
        super().__init__()
        self.happened = happened

    def before(self, name):
        """See `Points`. A copy's objects go by several calls."""
        said = {"put": "a record", "delete": "objects go"}.get(name)
        order = self.happened.order
        if said is not None and order[-1:] != ["objects go"]:
            order.append(said)
        super().before(name)


@pytest.fixture
def world(tmp_path):
    """One ledger of one object."""
    made = MovedTopic.make(tmp_path)
    made.offload(made.add_ledger(12))
    return made


def mover_of(world, told, **given):
    store = Metadata(world.records.store, told)
    return world.mover(
        registry=RecordRegistry(ManagedLedgerRecords(store), world.clock),
        source=watched(world, "source", told),
        target=watched(world, "target", told),
        audit=told.happened,
        **given,
    )


GOES = ["line: delete", "objects go", "line: record", "a record"]
"""A copy is deleted, and forgotten."""


def test_a_move_and_the_old_copys_end(world):
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


def test_a_move_that_fails(world):
    told = Told(Happened())

    def fail(_):
        raise DataLossError("by test")

    with pytest.raises(DataLossError):
        mover_of(world, told, listener=fail).move(world.plan().moves[0])
    begins = ["line: write", "line: record", "a record"]
    assert told.happened.order[:5] == [*begins, "line: record", "a record"]
    assert told.happened.order[-4:] == GOES
    assert {each.managed_ledger for each in told.happened.changes} == {world.plan().moves[0].name}


def test_what_a_move_that_was_killed_has_left(world):
    def kill(_):
        raise Killed

    with suppress(Killed):
        mover_of(world, Told(Happened()), listener=kill).move(world.plan().moves[0])
    told = Told(Happened())
    assert mover_of(world, told).clean(TOPIC_NAME) == 1
    assert told.happened.order == ["line: record", "a record", *GOES]


def test_an_attempt_that_somebody_is_at_is_not_said_to_be_abandoned(world):
    told = Told(Happened())
    with mover_of(world, Told(Happened())).begin(world.plan().moves[0]):
        assert mover_of(world, told).clean(TOPIC_NAME) == 0
    assert told.happened.order == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_mapping(world, monkeypatch, fails):
    happened, real = Happened(), MappingFile.add

    def add(self, step, relocation):
        happened.order.append(step)
        real(self, step, relocation)

    def watch(_):
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


def test_an_attempt_is_given_up_unless_it_is_read(world):
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


# --- A topic that is used while its cold copies are moved, and moving is cut off


_TOPIC = parse_topic(NAME)
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_formats = st.sampled_from([None, *ObjectFormat])


class RelocationMachine(TopicMachine):
    """The topic's machine, with two tiers."""

    @initialize()
    def make_the_other_tier(self):
        self.cold = Path(self.folder.name)
        self.other_folder = tempfile.TemporaryDirectory()
        self.other = Path(self.other_folder.name)
        self.others.append(Tier(LocalDriver(str(self.other))))
        self.open_anew(3, 0)

    def mover(self, points, *, back, listener=lambda _: None):
        """As a process of its own has it."""
        tiers = [
            Tier(LocalDriver(str(folder)), [Layer(name="watch", make=lambda _: Watch(points))])
            for folder in (self.cold, self.other)
        ]
        source, target = reversed(tiers) if back else tiers
        records = ManagedLedgerRecords(Metadata(self.records.store, points))
        return Mover(
            RecordRegistry(records, self.clock),
            source,
            target,
            Audit(),
            now_ms=self.clock,
            block_bytes=700,
            listener=listener,
        )

    def relocate(self, points, *, back, format_, merge, listener=lambda _: None):
        here, there = (tier_record(Tier(LocalDriver(str(folder)))) for folder in (self.cold, self.other))
        wanted = Wanted(
            source=there if back else here,
            target=here if back else there,
            format=None if merge else format_,
            merge_bytes=merge,
        )
        plan = plan_topic(_TOPIC, self.records.read(NAME).info, wanted)
        with suppress(Killed):
            list(make_moves(self.mover(points, back=back, listener=listener), [plan], parallel=1))

    @rule(back=st.booleans(), format_=_formats, merge=st.sampled_from([None, None, 300, 10_000]))
    def move(self, back, format_, merge):
        self.relocate(Points(), back=back, format_=format_, merge=merge)

    @rule(
        back=st.booleans(),
        format_=_formats,
        merge=st.sampled_from([None, 300]),
        at=st.integers(1, 60),
        fault=st.sampled_from(FAULTS),
    )
    def begin_to_move(self, back, format_, merge, at, fault):
        """And be cut off, or fail."""
        with suppress(OffloadError):
            self.relocate(Points(at, fault), back=back, format_=format_, merge=merge)

    @rule(
        back=st.booleans(),
        format_=_formats,
        what=st.sampled_from(["trim", "offload", "hot", "read"]),
        after=st.integers(0, 4),
    )
    def move_meanwhile(self, back, format_, what, after):
        """The topic goes on in the midst of a move."""
        reads = 0

        def go_on(_):
            nonlocal reads
            reads += 1
            if reads != after + 1 or not self.entries:
                return
            end = self.entries[len(self.entries) // 2][0]
            if what == "trim":
                gone = set(self.topic.trim(RetentionPolicies(), consumed_before=end))
                self.entries = [each for each in self.entries if each[0].ledger_id not in gone]
            elif what == "offload":
                self.topic.offload_prefix(end)
            elif what == "hot":
                self.topic.delete_hot_copies(0)
            else:
                self.read_all()

        self.relocate(Points(), back=back, format_=format_, merge=None, listener=go_on)

    @rule(back=st.booleans())
    def delete_replaced(self, back):
        """After a grace, in which all that read the old copies have ended."""
        self.open_anew(3, 0)
        assert self.mover(Points(), back=back).delete_replaced(_TOPIC, 0).error is None

    @rule(back=st.booleans())
    def clean(self, back):
        self.mover(Points(), back=back).clean(_TOPIC)
        roles = {each.role.value for each in other_copies(self.records.read(NAME).info)}
        assert roles <= {"replaced"}

    @invariant()
    def both_tiers_have_what_the_record_says(self):
        """All that is read is there, and nothing that the record does not name."""
        info = self.records.read(NAME).info
        hot = {
            ledger.ledger_id
            for ledger in info.ledgers
            if ledger.context is None or not ledger.context.bookkeeper_deleted
        }
        assert set(self.shared.ledgers) == hot
        read = {str(uuid) for uuid in read_copies(info)}
        named = read | {str(each.uuid) for each in other_copies(info)}
        keys = [each.key for tier in (self.tier, *self.others) for each in tier.list_objects()]
        there = {_UUID.findall(key)[-1] for key in keys}
        assert read <= there <= named

    def teardown(self):
        """The topic is deleted, and nothing is left of it."""
        delete_managed_ledger(self.environment(0), NAME)
        assert [each.key for tier in (self.tier, *self.others) for each in tier.list_objects()] == []
        self.other_folder.cleanup()
        super().teardown()


RelocationMachine.TestCase.settings = effort(0.2, stateful_step_count=25)
TestRelocation = RelocationMachine.TestCase
