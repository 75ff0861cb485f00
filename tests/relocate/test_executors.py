"""Moves whose copies executors make: the same records and objects, whoever does it, and nothing lost when one goes."""

import hashlib
import os
import re
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from managed_ledgers import NAME
from scenes.moves import TOPIC_NAME, MovedTopic
from scenes.repairs import contents_of
from servers.spark_connect import SparkConnect

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.relocate import PlainCopy, PlainStatus, make_moves, plan_topic
from offload_core.maintenance.relocate.moving import CopyMaker
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.records import other_copies
from offload_core.metadata.records.attempts import lease_of
from offload_core.metadata.records.replacements import abandon_replacement
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.executors import ProcessExecutor, ThreadExecutor, trying
from offload_core.storage.tier import Tier, open_store
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.errors import (
    AttemptError,
    DataLossError,
    ObjectNotFoundError,
    OffloadError,
    OutcomeUnknownError,
)
from offload_hooks.testing import MemoryMetadataStore

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.fixture
def world(tmp_path):
    """Two ledgers of one object each, one of which is filtered, and two in three segments."""
    made = MovedTopic.make(tmp_path)
    ledgers = [made.add_ledger(count) for count in (20, 15, 12, 10)]
    made.offload(ledgers[0])
    made.offload(ledgers[1], drops=lambda payload: int(payload[-1] % 3 == 0))
    made.stream((ledgers[2], 4), (ledgers[3], 5), (ledgers[3], 9))
    return made


@pytest.fixture(params=["threads", "processes", "spark", "connected"])
def executor(request):
    """Each that there is."""
    if request.param in ("spark", "connected"):
        from offload_core.interfaces.engines.spark.executor import SparkExecutor

        return SparkExecutor(request.getfixturevalue(request.param))
    return ThreadExecutor(2) if request.param == "threads" else ProcessExecutor(2)


def another(world, name):
    """The same records and source, and a target of its own."""
    (world.folder / name).mkdir()
    records = ManagedLedgerRecords(MemoryMetadataStore())
    records.write(NAME, world.info, None)
    return replace(world, target=open_store(world.folder / name), records=records)


def move(world, executor, format_=None):
    plan = plan_topic(TOPIC_NAME, world.info, world.wanted(format_))
    outcomes = list(make_moves(world.mover(), [plan], executor=executor))
    assert sorted(each.move.ledger_ids for each in outcomes) == [each.ledger_ids for each in plan.moves]
    return outcomes


def all_of(world, name):
    """A world's record, and its target's objects with their user metadata; without uuids and the target's name."""
    uuids = dict.fromkeys(match[0] for match in _UUID.finditer(repr(world.info)))

    def named(text):
        for number, uuid in enumerate(uuids):
            text = text.replace(uuid, f"<{number}>")
        return text.replace(str(world.folder / name), "<target>")

    objects = {}
    for key, data in contents_of(world.target).items():
        said = str(sorted(world.target.stat(key).user_metadata.items()))
        objects[named(key)] = (hashlib.sha256(data).hexdigest(), said)
    return named(repr(world.info)), objects


@pytest.mark.spark
@pytest.mark.sampled(6)
def test_records_and_objects_are_the_same_whoever_makes_them(world, executor):
    """Two are written entry by entry, and three copied byte by byte."""
    here, there = another(world, "here"), another(world, "there")
    for each, by in ((here, None), (there, executor)):
        assert [outcome.error for outcome in move(each, by, ObjectFormat.STREAMING)] == [None] * 5
    assert there.read_all(tiers=[there.target]) == world.entries
    assert all_of(there, "there") == all_of(here, "here")


def damage(world, ledger_id):
    [key] = [key for key in world.keys(world.source) if key.endswith(f"-ledger-{ledger_id}")]
    path = world.folder / "source" / key
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)


@pytest.mark.spark
@pytest.mark.sampled(4)
@pytest.mark.parametrize("executor", ["threads", "spark"], indirect=True)
def test_what_a_worker_cannot_copy_stays_and_nothing_is_left_of_it(world, executor):
    before = world.info.ledger(0)
    entries = world.read_all()
    damage(world, 0)
    outcomes = move(world, executor)
    assert [(each.move.ledger_ids, type(each.error)) for each in outcomes if each.error] == [
        ((0,), DataLossError)
    ]
    assert world.info.ledger(0) == before
    assert not [key for key in world.keys(world.target) if key.endswith(("-ledger-0", "-ledger-0-index"))]
    assert {role.role.value for role in other_copies(world.info)} == {"replaced"}
    damage(world, 0)
    assert world.read_all() == entries


class Here:
    """An executor that does the work here, and something before or instead."""

    processes = 1

    def __init__(self, around):
        self._around = around

    def run(self, work, items):
        for item in items:
            yield self._around(work, item)


def test_a_task_that_is_tried_again_writes_and_deletes_nothing(world):
    """The first try has made the copy, or a part of it, and what it says is lost."""

    def lose(work, item):
        work(item)
        written = world.keys(world.target)
        with trying(is_second=True):
            answer = work(item)
        assert world.keys(world.target) == written != []
        return answer

    plan = plan_topic(TOPIC_NAME, world.info, world.wanted(ledger_ids=frozenset([0])))
    before = world.read_all()
    [outcome] = make_moves(world.mover(), [plan], executor=Here(lose))
    assert isinstance(outcome.error, OutcomeUnknownError)
    assert "a worker was lost" in str(outcome.error)
    assert world.read_all(tiers=[world.source]) == before
    [left] = other_copies(world.info)
    assert {key[:36] for key in world.keys(world.target)} == {str(left.uuid)}
    assert [each.error for each in move(world, None)] == [None] * 5
    assert not [key for key in world.keys(world.target) if key.startswith(str(left.uuid))]
    assert world.read_all(tiers=[world.target]) == before


def test_the_lease_is_kept_while_a_worker_is_at_it(world):
    def wait(work, item):
        seen: set[str] = set()
        while len(seen) < 3:
            [copy] = other_copies(world.info)
            seen.add(str(lease_of(copy.driver)))
            world.clock.pass_s(0.01)
            time.sleep(0.01)
        return work(item)

    plan = plan_topic(TOPIC_NAME, world.info, world.wanted(ledger_ids=frozenset([0])))
    registry = RecordRegistry(world.records, world.clock, lease_s=0.15)
    [outcome] = make_moves(world.mover(registry=registry), [plan], executor=Here(wait))
    assert outcome.error is None


def test_a_copy_that_was_taken_over_meanwhile_is_not_switched(world):
    def take_over(work, item):
        world.records.update(NAME, lambda info: abandon_replacement(info, item.uuid))
        return work(item)

    plan = plan_topic(TOPIC_NAME, world.info, world.wanted(ledger_ids=frozenset([0])))
    before = world.info
    [outcome] = make_moves(world.mover(), [plan], executor=Here(take_over))
    assert isinstance(outcome.error, AttemptError)
    assert world.info == before
    assert world.keys(world.target) == []


def test_moves_that_share_a_ledger_are_not_under_way_at_once(world):
    """All that may be are given out before the first result is taken."""
    rounds: list[list[tuple[int, ...]]] = []

    class AllAtOnce(ThreadExecutor):
        def run(self, work, items):
            drawn = list(items)
            rounds.append([each.move.ledger_ids for each in drawn])
            return iter([work(item) for item in drawn])

    assert [each.error for each in move(world, AllAtOnce(1))] == [None] * 5
    assert rounds == [[(0,), (1,), (2,), (3,)], [(2, 3)]]


def test_what_cannot_be_begun_is_said_among_the_others(world):
    plan = plan_topic(TOPIC_NAME, world.info, world.wanted())
    world.move_all(world.wanted(ledger_ids=frozenset([1])))
    outcomes = list(make_moves(world.mover(), [plan], executor=ThreadExecutor(2)))
    assert {each.move.ledger_ids: type(each.error) for each in outcomes if each.error} == {(1,): AttemptError}
    assert len(outcomes) == 5
    assert world.read_all(tiers=[world.target]) == world.entries


class Dies(CopyMaker):
    """Its process dies when the copy is there."""

    def __call__(self, order):
        super().__call__(order)
        os._exit(1)

    def __reduce__(self):
        return Dies, self._given


@pytest.mark.nightly
def test_a_worker_that_is_killed_ends_the_call_and_the_next_one_goes_on(world):
    mover = world.mover()
    mover.maker = Dies(world.source, world.target, 700)
    plan = plan_topic(TOPIC_NAME, world.info, world.wanted(ledger_ids=frozenset([0])))
    with pytest.raises(OffloadError, match="a worker process ended") as raised:
        list(make_moves(mover, [plan], executor=ProcessExecutor(1)))
    assert raised.tb is not None, "the call's frames are there still, and nobody is at the attempt"
    assert len(other_copies(world.info)) == 1
    assert world.read_all(tiers=[world.source]) == world.entries
    assert [each.error for each in move(world, None)] == [None] * 5
    assert world.read_all(tiers=[world.target]) == world.entries
    assert len(world.keys(world.target)) == 10


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("is_connect", [False, True], ids=["classic", "connect"])
def test_spark_tells_the_second_try_of_a_task(java, tmp_path, start_server, monkeypatch, is_connect):
    """In a session of its own, which tries a task twice: the first try's process dies."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    master = start_server(SparkConnect(master="local[2,2]")).endpoint if is_connect else "local[2,2]"
    script = tmp_path / "tried.py"
    script.write_text(
        "import os, sys\n"
        "from offload_core.storage.executors import is_second_try\n"
        "def work(item):\n"
        "    if item == 1 and not is_second_try():\n"
        "        os._exit(1)\n"
        "    return is_second_try()\n"
    )
    program = (
        "import tried\n"
        "from offload_core.interfaces.engines.spark.executor import SparkExecutor, start_session\n"
        f"session = start_session({master!r})\n"
        "print('tried again:', list(SparkExecutor(session).run(tried.work, range(3))))\n"
        "session.stop()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "tried again: [False, True, False]" in result.stdout


@pytest.mark.spark
@pytest.mark.sampled(6)
def test_a_bucket_is_copied_the_same_whoever_does_it(world, executor):
    def copied(name, executor):
        with open_store(world.folder / name) as target:  # its folder is made by the first write, if need be
            plain = PlainCopy(world.source, target, audit=world.audit, executor=executor)
            statuses = [(each.key.data_key, each.status.value) for each in plain]
            return statuses, contents_of(target)

    [kept] = [key for key in world.keys(world.source) if key.endswith("-ledger-0-index")]
    (world.folder / "there").mkdir()
    (world.folder / "there" / kept).write_bytes(b"another")
    here = copied("here", None)
    for status in ("copied", "there"):
        found = copied("there", executor if status == "copied" else None)
        assert [code for _, code in found[0]].count(status) == 4
        assert (kept.removesuffix("-index"), "conflict") in found[0]
        assert [key for key, _ in found[0]] == [key for key, _ in here[0]]
    assert {key: data for key, data in here[1].items() if kept[:36] not in key} == {
        key: data for key, data in found[1].items() if kept[:36] not in key
    }


class NoBucket(LocalDriver):
    """The place where all is to go is not there, as stores say that."""

    @hookimpl
    def write_index(self, key):
        raise ObjectNotFoundError("cannot write: there is no bucket 'new'", key=key)


def test_a_target_that_is_not_there_is_not_taken_for_half_a_pair(world):
    plain = list(PlainCopy(world.source, Tier(NoBucket(world.folder / "target")), audit=world.audit))
    assert {each.status for each in plain} == {PlainStatus.FAILED}
    assert {"no bucket" in str(each.error) for each in plain} == {True}


def test_orders_say_where_the_new_copy_goes(world):
    """What the audit log, the record and the objects name is one copy."""
    mover = world.mover()
    [planned] = world.plan(world.wanted(ledger_ids=frozenset([0]))).moves
    with mover.begin(planned) as begun:
        assert begun.order.driver == tier_record(world.target)
        made = mover.maker(begun.order)
        assert set(world.keys(world.target)) == {begun.order.key.data_key, begun.order.key.index_key}
        moved = mover.end(begun, made)
    assert moved.uuid == begun.order.uuid
    assert world.read_all() == world.entries
