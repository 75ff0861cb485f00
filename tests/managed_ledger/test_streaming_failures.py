"""A streamed topic whose store fails, hangs or is short of memory, that is taken over, or that lost entries."""

import threading
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest
from layered import Gate, layer
from managed_ledgers import NAME, policies_to
from scenes.segments import SETTINGS, Topic, left_in, pool_of

from offload_core.metadata.records import AttemptStatus, ManagedLedgerInfo, segments_of
from offload_core.metadata.records.attempts import lease_of
from offload_core.metadata.records.segments import abandon_segment
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger import HotLedgers, delete_managed_ledger, open_managed_ledger
from offload_core.writing.managed_ledger.upkeep import keep_up
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.errors import (
    AttemptError,
    LiveAttemptError,
    OffloadStoppedError,
    OptionError,
    OwnershipLostError,
    StoreUnavailableError,
)
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore
from offload_hooks.testing.fault_plan import FaultPlan
from offload_hooks.testing.faults import FaultLayer


@pytest.fixture
def ledgers():
    return MemoryLedgers()


@pytest.fixture
def opened(environment, ledgers, tmp_path, clock):
    """Opens a topic, streamed to a tier with these faults; its ledgers are in memory."""

    def make(faults="", **given):
        layers = [layer(FaultLayer, plan=FaultPlan.parse(faults))] if faults else []
        tier = Tier(LocalDriver(str(tmp_path / "cold")), layers)
        made = replace(
            environment, hot=HotLedgers(MemoryLedgerStore(ledgers)), streaming=pool_of(tier, clock, **given)
        )
        topic = Topic(made, tmp_path / "cold")
        topic.ledger.set_streaming(SETTINGS)
        return topic

    return make


@pytest.mark.parametrize("hook", ["begin_data", "write_block", "commit_data", "write_index"])
@pytest.mark.parametrize("kind", ["fail-before", "fail-after"])
def test_a_segment_that_failed_is_resumed_after_a_pause_that_grows(opened, clock, kind, hook):
    calls = "#1,9,17" if hook == "write_block" else "#1,2,3"  # eight blocks are on their way at once
    topic = opened(f"{kind} {hook} {calls}")
    topic.add(12)
    topic.run()
    begun = topic.segments
    for failures, pause_s in ((1, 1), (2, 2), (3, 4)):
        status = topic.status
        assert (status.state, status.failures_in_a_row) == ("waiting", failures)
        assert isinstance(status.last_error, StoreUnavailableError)
        assert status.next_try_ms == clock.now_ms + pause_s * 1000
        (failed,) = topic.segments
        assert failed.status is AttemptStatus.FAILED
        assert failed.begin == begun[0].begin
        clock.pass_s(pause_s - 0.1)
        topic.run()
        assert topic.segments == (failed,)
        clock.pass_s(0.1)
        topic.run()
    assert topic.cold_entries() == topic.added[:10]
    status = topic.status
    assert (status.state, status.failures_in_a_row, status.next_try_ms) == ("idle", 0, None)
    assert status.last_error is not None
    assert topic.left() == set()
    deletions = topic.environment.audit.deletions
    assert [each.copy for each in deletions] == ["cold"] * 3


def test_a_segment_that_was_closed_is_offloaded_again_to_the_same_end(opened, clock):
    topic = opened("fail-before commit_data #1")
    topic.add(12)
    topic.run()
    (failed,) = topic.segments
    assert failed.end == topic.added[9][0]
    topic.add(20)
    clock.pass_s(1)
    topic.run()
    assert (topic.segments[0].begin, topic.segments[0].end) == (failed.begin, failed.end)
    assert topic.segments[0].uuid != failed.uuid
    assert topic.cold_entries() == topic.added[:30]


def test_no_segment_begins_while_one_is_failed(opened, clock):
    topic = opened("fail-before write_block 100%")
    topic.add(50)
    for _ in range(5):
        topic.run()
        assert len(topic.segments) == 1
        topic.add(1)
        assert topic.status.buffered_bytes == 0  # which others may need meanwhile
        clock.pass_s(61)


def test_who_completes_a_segment_by_hand_is_told_what_failed_and_it_goes_on(opened, clock):
    topic = opened("fail-before commit_data #1")
    topic.add(3)
    with pytest.raises(StoreUnavailableError, match="commit_data"):
        topic.ledger.complete_segment()
    topic.ledger.complete_segment()  # at once: who asks need not wait for the pause
    assert topic.cold_entries() == topic.added


def test_a_hot_tier_that_fails_is_asked_again(opened, clock, ledgers):
    topic = opened(buffer_bytes=1)
    topic.add(12)
    topic.ledger._cache.close()
    (ledger,) = ledgers.ledgers.values()
    ledgers.ledgers.clear()
    topic.run()
    assert topic.status.state == "waiting"
    ledgers.ledgers[ledger.ledger_id] = ledger
    clock.pass_s(1)
    topic.run()
    assert topic.cold_entries() == topic.added[:10]


def test_who_lost_the_topic_gives_its_segment_up_and_the_next_owner_goes_on(opened, clock):
    former = opened()
    former.add(5)
    former.run()
    (old,) = former.segments
    topic = opened()
    topic.run()
    assert isinstance(topic.status.last_error, LiveAttemptError)  # of this process, which is at it
    former.run()
    assert topic.segments == (old,)
    clock.pass_s(101)  # the lease is renewed every third of its time, and the former owner finds out
    former.run()
    assert former.status.state == "ended"
    topic.run()
    assert topic.cold_entries() == former.added  # which have waited for longer than a segment may
    topic.added = former.added
    topic.add(5)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added
    assert topic.left() == set()
    with pytest.raises(OwnershipLostError):
        former.add(1)


def test_one_that_is_complete_in_the_tier_and_not_recorded_is_cleaned_up_by_the_next_owner(opened, clock):
    former = opened()
    former.add(12)
    topic = opened()
    former.run()  # assigns as an owner does: it is none any more
    assert former.status.state == "ended"
    assert former.segments == ()
    topic.added = former.added
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added
    assert topic.left() == set()


@pytest.mark.parametrize("closes", [False, True])
def test_a_topic_that_is_deleted_while_its_segment_is_written_leaves_nothing(
    environment, clock, tmp_path, closes
):
    class Deleting:
        @hookimpl(wrapper=True)
        def write_index(self):
            delete_managed_ledger(environment, NAME)
            return (yield)

    tier = Tier(LocalDriver(str(tmp_path / "cold")), [layer(lambda _: Deleting())])
    topic = Topic(replace(environment, streaming=pool_of(tier, clock)), tmp_path / "cold")
    topic.ledger.set_streaming(SETTINGS)
    topic.add(10)
    if closes:
        topic.ledger._streaming.turn()
        assert topic.status.state == "closing"
        with pytest.raises(OwnershipLostError):
            topic.ledger.close()
    else:
        topic.run()
        assert topic.status.state == "ended"
    assert environment.records.read(NAME) is None
    assert left_in(topic.cold, ManagedLedgerInfo()) == set()


def test_where_memory_is_short_for_long_the_oldest_segment_is_closed_early(environment, clock, tmp_path):
    tier = Tier(LocalDriver(str(tmp_path / "cold")))
    pool = pool_of(tier, clock, budget_bytes=16 << 10)
    settings = replace(SETTINGS, block_bytes=6 << 10, max_segment_bytes=1 << 20)
    first, second = (
        open_managed_ledger(
            replace(environment, streaming=pool, hot=HotLedgers(MemoryLedgerStore())),
            f"acme/cold/persistent/{name}",
        )
        for name in ("first", "second")
    )
    for topic in (first, second):
        topic.set_streaming(settings)
    for _ in range(65):
        first.add_entry(b"x" * 100)
    pool.run_due()
    assert first.streaming_status.state == "open"
    taken = pool.budget.limit_bytes - pool.budget.taken_bytes
    assert 0 < taken < 16 << 10
    assert pool.budget.try_take(taken)  # by others
    for _ in range(65):
        second.add_entry(b"x" * 100)
    pool.run_due()
    assert first.streaming_status.completed == 1
    pool.budget.give_back(taken)
    second.complete_segment()
    assert second.streaming_status.completed == 1


def test_an_entry_that_no_block_takes_is_told_of(opened, clock):
    topic = opened(budget_bytes=2000)
    topic.add(1, size=3000)
    topic.run()
    assert isinstance(topic.status.last_error, OptionError)
    clock.pass_s(1)
    topic.run()
    assert topic.status.failures_in_a_row == 2


# --- entries that were acknowledged, and lost ----------------------------------------------------


def test_what_is_left_of_a_ledger_that_is_lost_are_its_complete_segments(opened, clock, ledgers):
    topic = opened()
    topic.add(15)
    topic.run()
    assert len(topic.segments) == 2
    ledgers.ledgers.clear()
    clock.pass_s(301)
    topic.open(accept_loss=True)
    assert topic.ledger.last_position == topic.added[9][0]
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    assert topic.cold_entries() == topic.added[:10]
    assert topic.left() == set()
    topic.added = topic.added[:10]
    topic.add(12)
    topic.run()
    assert topic.cold_entries() == topic.added[:20]


@pytest.mark.parametrize("kept", [0, 8, 10, 12])
def test_a_ledger_that_is_shorter_than_its_segments_say_leaves_nothing_behind(opened, clock, ledgers, kept):
    topic = opened("fail-before commit_data #2")
    topic.add(20)
    topic.run()
    assert [segment.status for segment in topic.segments] == [AttemptStatus.OFFLOADED, AttemptStatus.FAILED]
    (ledger,) = ledgers.ledgers.values()
    del ledger.entries[kept:]
    clock.pass_s(301)
    topic.open()
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    topic.ledger.complete_segment()
    assert topic.left() == set()
    assert topic.cold_entries() == topic.added[: max(kept, 10)]
    topic.added = topic.added[: max(kept, 10)]
    topic.add(10)
    topic.run()
    assert topic.cold_entries() == topic.added
    assert topic.status.failures_in_a_row == 0


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
    topic.add_entries([b"x" * 100] * 12)
    pool.run_due()
    gate, step = Gate(), streaming._step

    def slow_step():
        gate.hold()
        return step()

    monkeypatch.setattr(streaming, "_step", slow_step)
    topic.add_entries([b"x" * 100] * 3)
    waiter = streaming._waiters.add(topic.last_position)
    streaming.wake()
    turning = threading.Thread(target=pool.run_due)
    turning.start()
    gate.wait_for()
    streaming.close(timeout_s=0.01)
    gate.open()
    turning.join()
    pool.run_due()
    with pytest.raises(OffloadStoppedError, match="was stopped"):
        waiter.result(0)
    assert pool.budget.taken_bytes == pool.buffer_budget.taken_bytes == 0
    assert segments_of(environment.records.read(NAME).info)[-1].status is AttemptStatus.FAILED
    topic.close()


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
def test_a_clock_that_is_put_back_delays_nothing(opened, clock, fails):
    topic = opened("fail-before commit_data #1" if fails else "")
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

    tier = Tier(LocalDriver(str(tmp_path / "cold")), [layer(lambda _: Faulty())])
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
    assert topic.info.ledgers[0].is_fully_offloaded
    assert topic.status.state == "off"
