"""A topic with transactions is streamed: what they settled goes, without what was aborted, and the rest waits."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from managed_ledgers import NAME, Clock, offloads_of, policies_to
from scenes.filters import FilteredTopic
from scenes.segments import SETTINGS, left_in, pool_of

from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import FilterMode
from offload_core.writing.managed_ledger import keep_up, settle_transactions
from offload_core.writing.managed_ledger.streaming.completion_requests import with_request
from offload_core.writing.offload.hot_copy_check import check_cold_copies
from offload_core.writing.offload_filters import recorded_filters, settled_by_filters


@dataclass
class Streamed(FilteredTopic):
    """Such a topic; `run` does what is due."""

    clock: Clock = field(default_factory=Clock)

    def open(self, **changes):
        """Open it anew, and stream it."""
        if "streaming" not in changes:
            self.pool = pool_of(self.tier, self.clock, budget_bytes=1 << 28)
            offloads = offloads_of(self.records, self.hot, self.tiers, block_bytes=None, now_ms=self.clock)
            changes |= {"streaming": self.pool, "offloads": offloads, "now_ms": self.clock}
        super().open(**changes)
        self.topic.topic.set_streaming(SETTINGS)

    def run(self):
        """What is due now."""
        self.pool.run_due()

    def complete(self):
        """By hand, with a snapshot before; up to where."""
        self.topic.snapshot()
        return self.topic.topic.complete_segment().end

    def check(self):
        """The tier has of what is in complete segments what the filter leaves, and hot copies could go."""
        for ledger in self.ledgers:
            context = ledger.context
            if context is None or not any(share.complete for share in context.segments):
                continue
            stop = 1 + max(share.end_entry_id for share in context.segments if share.complete)
            wanted = {at: payload for at, payload in self.left(ledger).items() if at < stop}
            assert self.cold(ledger, stop) == wanted
            if ledger.is_fully_offloaded:
                check_cold_copies(self.tiers, NAME, ledger)


@pytest.fixture
def topic(tmp_path):
    return Streamed(folder=tmp_path)


def test_what_is_settled_goes_without_what_was_aborted(topic):
    topic.do("m", "1", "2", "m", "c1", "2", "a2", "m", "3", "m")
    assert topic.complete() == EntryPosition(0, 7)
    topic.check()
    assert topic.topic.topic.streaming_status.waits_for is not None
    topic.do("c3", "m", "|", "m")
    topic.complete()
    topic.check()
    assert settled_by_filters(topic.topic.topic.read_info()) == EntryPosition(1, 0)
    (record, *_) = recorded_filters(topic.ledgers[0])
    assert record.total_dropped.entries == 4


def test_what_an_open_transaction_holds_up_is_named(topic):
    topic.do("m", "1", "m", "|", "m")
    topic.topic.snapshot()
    done = topic.topic.topic.complete_segment()
    assert done.end == EntryPosition(0, 0)
    assert done.waits_for is not None
    assert str(topic.begun[1]) in done.waits_for
    assert topic.topic.topic.streaming_status.waits_for == done.waits_for


def test_upkeep_answers_who_asks_with_all_that_is_settled_by_then(topic):
    topic.do("m", "1", "c1", "m")
    topic.records.update(NAME, lambda info: with_request(info, "a"))
    policies = policies_to(driver="filesystem", streaming=True)
    done = keep_up(topic.topic, policies, topic.clock())
    assert done.failures == {}
    last = topic.topic.topic.streaming_status.last_end
    assert last == EntryPosition(0, 3)


@pytest.mark.parametrize("mode", FilterMode)
def test_tombstones_keep_ids_dense_and_both_modes_leave_the_same_messages(tmp_path, mode):
    topic = Streamed(folder=tmp_path, mode=mode)
    topic.do("m", "1", "2", "m", "c1", "2", "a2", "m", "|", "3", "3", "a3", "|", "m")
    topic.complete()
    for ledger in topic.ledgers:
        wanted, count = topic.left(ledger), ledger.info.entries or 0
        found = topic.cold(ledger)
        assert {at: found.get(at) for at in wanted} == wanted
        assert set(found) == (set(wanted) if mode is FilterMode.GAP else set(range(count)))


@pytest.mark.sampled(200)
@pytest.mark.parametrize("seed", range(100))
def test_whatever_happens_what_is_there_is_right(tmp_path, seed):
    """Transactions, rollovers, kills, closes, time and other settlers, at random."""
    draw, topic = random.Random(seed), Streamed(folder=tmp_path)
    steps = [*["m"] * 4, *["1", "2", "3", "4"] * 2, *(f"{end}{i}" for end in "ca" for i in "1234"), "|"]
    ended = set()
    for _ in range(160):
        step = draw.choice(steps)
        if step[0] in "ca":
            if int(step[1]) not in topic.begun or step[1] in ended:
                continue
            topic.do(step)
            topic.begun.pop(int(step[1]))
            continue
        topic.do(step)
        match draw.randrange(12):
            case 0:
                topic.topic.snapshot()
            case 1 | 2 | 3:
                topic.run()
            case 4:
                topic.clock.pass_s(draw.choice([1, 20, 70]))
                topic.run()
            case 5:
                settle_transactions(topic.environment, NAME)
            case 6:
                topic.complete()
            case 7:
                topic.topic.topic.close()
                topic.open()
            case 8:
                topic.clock.pass_s(301)
                topic.open()
            case 9:
                topic.topic.topic.set_streaming(draw.choice([None, SETTINGS, SETTINGS]))
            case _:
                pass
    topic.check()
    for number in sorted(topic.begun):
        topic.do(f"{draw.choice('ca')}{number}")
    topic.do("m")
    topic.topic.topic.set_streaming(SETTINGS)
    topic.clock.pass_s(61)
    topic.run()
    last = topic.topic.topic.last_position
    assert topic.complete() == last
    topic.check()
    managed = topic.topic.topic
    assert left_in(topic.folder, managed.read_info()) == set()
    managed.roll()
    topic.complete()
    assert managed.delete_hot_copies(0)
