"""A streamed topic where things come at a bad time: appends, closing, a clock put back, short memory."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest
from managed_ledgers import NAME, policies_to
from scenes.segments import SETTINGS, Topic, left_in, pool_of

from offload_core.metadata.records import AttemptStatus, ManagedLedgerInfo, segments_of
from offload_core.metadata.records.attempts import lease_of
from offload_core.metadata.records.segments import abandon_segment
from offload_core.storage.tier import Tier
from offload_core.storage.tier.chain import Layer
from offload_core.writing.managed_ledger import (
    delete_managed_ledger,
    open_managed_ledger,
)
from offload_core.writing.managed_ledger.upkeep import keep_up
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.errors import AttemptError, OffloadStoppedError, OwnershipLostError
from offload_hooks.testing.fault_plan import FaultPlan
from offload_hooks.testing.faults import FaultLayer

SOON_S = 20


@pytest.fixture
def topic(environment, pool, tmp_path):
    topic = Topic(replace(environment, streaming=pool), tmp_path / "cold")
    topic.ledger.set_streaming(SETTINGS)
    with closing(topic.ledger):
        yield topic


def test_an_entry_that_comes_when_a_turn_has_just_looked_is_streamed_when_it_is_old(
    topic, clock, monkeypatch
):
    streaming = topic.ledger._streaming
    topic.add(1)
    topic.run()  # it rests, until more comes or that entry is old
    look = streaming._due.pending

    def look_and_append(*place):
        found = look(*place)
        if not found and streaming._segment is None and len(topic.added) == 1:
            topic.add(1)
        return found

    monkeypatch.setattr(streaming._due, "pending", look_and_append)
    clock.pass_s(60)
    topic.run()
    monkeypatch.undo()
    assert len(topic.added) == 2
    topic.run()
    clock.pass_s(60)
    topic.run()
    assert topic.cold_entries() == topic.added


def test_a_turn_that_is_too_slow_for_closing_gives_all_back_when_it_ends(
    environment, pool, tmp_path, monkeypatch
):
    topic = open_managed_ledger(replace(environment, streaming=pool), NAME)
    topic.set_streaming(SETTINGS)
    streaming = topic._streaming
    assert streaming is not None
    topic.add_entries([b"x" * 100] * 12)
    pool.run_due()
    is_in_it, gate = threading.Event(), threading.Event()
    step = streaming._step

    def slow_step():
        is_in_it.set()
        assert gate.wait(SOON_S)
        return step()

    monkeypatch.setattr(streaming, "_step", slow_step)
    topic.add_entries([b"x" * 100] * 3)
    target = topic.last_position
    assert target is not None
    waiter = streaming._waiters.add(target)
    streaming.wake()
    turning = threading.Thread(target=pool.run_due)
    turning.start()
    assert is_in_it.wait(SOON_S)
    streaming.close(timeout_s=0.01)
    gate.set()
    turning.join()
    pool.run_due()
    with pytest.raises(OffloadStoppedError, match="was stopped"):
        waiter.result(0)
    assert pool.budget.taken_bytes == pool.buffer_budget.taken_bytes == 0
    known = environment.records.read(NAME)
    assert segments_of(known.info)[-1].status is AttemptStatus.FAILED
    topic.close()


def test_what_a_closing_topic_has_in_the_tier_is_deleted_if_the_topic_was(environment, tmp_path, clock):
    class Deleting:
        @hookimpl(wrapper=True)
        def write_index(self):
            delete_managed_ledger(environment, NAME)
            return (yield)

    tier = Tier(LocalDriver(str(tmp_path / "cold")), [Layer(name="deleting", make=lambda _: Deleting())])
    topic = Topic(replace(environment, streaming=pool_of(tier, clock)), tmp_path / "cold")
    topic.ledger.set_streaming(SETTINGS)
    topic.add(10)
    streaming = topic.ledger._streaming
    streaming.turn()
    assert topic.status.state == "closing"
    with pytest.raises(OwnershipLostError):
        topic.ledger.close()
    assert environment.records.read(NAME) is None
    assert left_in(topic.cold, ManagedLedgerInfo()) == set()


class Asked:
    """A topic that is asked to close its segment."""

    def __init__(self):
        self.times = 0

    def turn(self):
        """Nothing is due."""

    def close_early(self):
        """It cannot now."""
        self.times += 1


def test_where_the_oldest_cannot_close_its_segment_the_next_one_is_asked_but_one_at_a_time(pool):
    first, second = Asked(), Asked()
    for each in (first, second):
        pool.note_open(each, is_open=True)
    pool.relieve()
    pool.relieve()
    assert (first.times, second.times) == (1, 0)
    pool.run_due()
    pool.relieve()
    assert (first.times, second.times) == (1, 1)


@pytest.mark.parametrize("fails", [False, True])
def test_a_clock_that_is_put_back_delays_nothing(environment, tmp_path, clock, fails):
    plan = FaultPlan.parse("fail-before commit_data #1" if fails else "")
    layers = [Layer(name="faults", make=lambda rest: FaultLayer(rest, plan=plan))]
    tier = Tier(LocalDriver(str(tmp_path / "cold")), layers)
    topic = Topic(replace(environment, streaming=pool_of(tier, clock)), tmp_path / "cold")
    topic.ledger.set_streaming(SETTINGS)
    with closing(topic.ledger):
        topic.add(10 if fails else 6)
        topic.run()
        assert topic.status.state == ("waiting" if fails else "open")
        clock.pass_s(-3600)
        topic.run()
        clock.pass_s(60)
        topic.run()
        assert topic.cold_entries() == topic.added


def test_a_lease_is_renewed_when_the_clock_was_put_back(topic, clock):
    topic.add(6)
    topic.run()
    clock.pass_s(-3600)
    topic.run()
    (segment,) = topic.segments
    lease = lease_of(segment.driver)
    assert 0 < lease.until_ms - clock() <= 300_000


def test_entries_for_which_there_is_no_memory_are_not_read_at_each_turn(topic, pool, monkeypatch):
    streaming = topic.ledger._streaming
    assert streaming is not None
    taken = pool.budget.limit_bytes - pool.budget.taken_bytes
    assert pool.budget.try_take(taken)  # by others
    topic.add(6)
    reads = []
    read = streaming._source.read

    def count(*given):
        reads.append(given)
        return read(*given)

    monkeypatch.setattr(streaming._source, "read", count)
    for _ in range(32):
        streaming.turn()
    assert 1 < len(reads) <= 5
    pool.budget.give_back(taken)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added


def test_a_segment_that_was_abandoned_in_the_record_is_resumed(topic, clock):
    topic.add(6)
    topic.run()
    (segment,) = topic.segments
    topic.environment.records.update(NAME, partial(abandon_segment, uuid=segment.uuid))
    clock.pass_s(120)
    topic.run()
    assert isinstance(topic.status.last_error, AttemptError)
    clock.pass_s(1)
    topic.run()
    clock.pass_s(60)
    topic.run()
    assert topic.cold_entries() == topic.added
    assert topic.left() == set()


def test_a_fault_in_a_driver_keeps_no_topic_from_being_closed(environment, tmp_path, clock):
    class Faulty:
        @hookimpl(wrapper=True)
        def commit_data(self):
            raise RuntimeError("a fault")
            yield

    tier = Tier(LocalDriver(str(tmp_path / "cold")), [Layer(name="faulty", make=lambda _: Faulty())])
    topic = Topic(replace(environment, streaming=pool_of(tier, clock)), tmp_path / "cold")
    topic.ledger.set_streaming(SETTINGS)
    topic.add(10)
    streaming = topic.ledger._streaming
    streaming.turn()
    topic.ledger.close()
    assert topic.info.ledgers[0].info.is_closed
    assert [segment.status for segment in topic.segments] == [AttemptStatus.FAILED]


def test_who_opens_a_topic_that_is_not_streamed_any_more_finishes_what_was_begun(topic):
    topic.add(6)
    topic.run()
    topic.ledger.close()
    topic.open()
    topic.run()
    assert topic.ledger.has_left_segments
    keep_up(topic.ledger, policies_to(streaming=False), topic.environment.now_ms())
    topic.run()
    assert not topic.ledger.has_left_segments
    assert topic.cold_entries() == topic.added[:6]
    assert topic.info.ledgers[0].context is not None
    assert topic.info.ledgers[0].is_fully_offloaded
    assert topic.status.state == "off"
