"""A topic that is streamed: its entries go to segment after segment, in their order, none twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from managed_ledgers import NAME, Clock
from streamed_topics import SETTINGS, in_segments, left_in, pool_of

from offload_core import TierReader
from offload_core.managed_ledger import (
    Environment,
    ManagedLedger,
    RolloverPolicy,
    StreamingPool,
    open_managed_ledger,
)
from offload_core.metadata import EntryPosition, ManagedLedgerInfo, segments_of

Recorded = Callable[[], ManagedLedgerInfo]


@pytest.fixture
def pool(cold: TierReader, clock: Clock) -> StreamingPool:
    return pool_of(cold.store, clock)


@pytest.fixture
def streamed(environment: Environment, pool: StreamingPool) -> Environment:
    return replace(environment, streaming=pool)


class Topic:
    """A topic that is open, and what was added to it."""

    def __init__(self, environment: Environment, cold: Path, recorded: Recorded) -> None:
        self.environment, self.cold, self.recorded = environment, cold, recorded
        self.added: list[tuple[EntryPosition, bytes]] = []
        self.open()

    def open(self, max_entries: int = 1000) -> ManagedLedger:
        rollover = RolloverPolicy(max_entries=max_entries, min_age_s=0)
        self.ledger = open_managed_ledger(self.environment, NAME, rollover=rollover)
        return self.ledger

    def add(self, count: int, size: int = 100) -> None:
        for _ in range(count):
            payload = (b"%d " % len(self.added)).ljust(size, b".")
            self.added.append((self.ledger.add_entry(payload), payload))

    def run(self) -> None:
        pool = self.environment.streaming
        assert pool is not None
        pool.run_due()

    def cold_entries(self) -> list[tuple[EntryPosition, bytes]]:
        return in_segments(self.cold, self.recorded())


@pytest.fixture
def topic(streamed: Environment, tmp_path: Path, recorded: Recorded) -> Topic:
    return Topic(streamed, tmp_path / "cold", recorded)


def test_entries_go_to_segments_of_the_size_that_is_set(topic: Topic, recorded: Recorded) -> None:
    topic.ledger.set_streaming(SETTINGS)
    topic.add(25)
    topic.run()
    assert topic.cold_entries() == topic.added[:20]
    assert [segment.is_finished for segment in segments_of(recorded())] == [True, True, False]
    assert topic.ledger.streaming_status.state == "open"
    topic.add(10)
    topic.run()
    assert topic.cold_entries() == topic.added[:30]
    assert topic.ledger.streaming_status.completed == 3


def test_a_segment_closes_by_age_also_on_an_idle_topic(topic: Topic, clock: Clock) -> None:
    topic.ledger.set_streaming(SETTINGS)
    topic.add(1)
    topic.run()
    assert topic.ledger.streaming_status.state == "idle"
    clock.pass_s(59)
    topic.run()
    assert topic.cold_entries() == []
    clock.pass_s(1)
    topic.run()
    assert topic.cold_entries() == topic.added


def test_a_segment_that_is_completed_by_hand_is_there_when_the_call_returns(topic: Topic) -> None:
    topic.ledger.set_streaming(SETTINGS)
    topic.add(3)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added
    topic.ledger.complete_segment()
    topic.add(23)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added


def test_several_ledgers_lie_in_one_segment(topic: Topic, recorded: Recorded) -> None:
    topic.ledger.set_streaming(SETTINGS)
    for count in (2, 3, 4):
        topic.add(count)
        topic.run()
        topic.ledger.roll()
    topic.add(3)
    topic.run()
    assert topic.cold_entries() == topic.added[:10]
    (first,) = segments_of(recorded())
    assert len(first.ledger_ids) == 4


@pytest.mark.parametrize("kill", [False, True])
def test_the_next_owner_resumes_what_was_left(
    topic: Topic, clock: Clock, recorded: Recorded, kill: bool
) -> None:
    topic.ledger.set_streaming(SETTINGS)
    topic.add(15)
    topic.run()
    if kill:
        clock.pass_s(301)
    else:
        topic.ledger.close()
    (_, old) = segments_of(recorded())
    topic.open()
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    (_, new) = segments_of(recorded())
    assert new.uuid != old.uuid
    assert new.begin == old.begin
    topic.add(3)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added
    assert left_in(topic.cold, recorded()) == set()


def test_history_is_streamed_first_and_what_is_offloaded_is_left(topic: Topic, recorded: Recorded) -> None:
    for count in (4, 25, 3, 2):
        topic.add(count)
        topic.ledger.roll()
    second = recorded().in_order[1].ledger_id
    topic.ledger.offload_prefix(EntryPosition(second, 25))
    topic.add(1)
    topic.ledger.set_streaming(SETTINGS)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added[29:]
    assert left_in(topic.cold, recorded()) == set()


def test_switched_off_a_ledger_that_is_partly_in_segments_is_finished_and_then_ledgers_follow(
    topic: Topic, recorded: Recorded
) -> None:
    topic.ledger.set_streaming(SETTINGS)
    topic.add(12)
    topic.run()
    topic.ledger.set_streaming(None)
    topic.add(5)
    topic.run()
    topic.ledger.roll()
    topic.run()
    assert topic.cold_entries() == topic.added
    assert topic.ledger.streaming_status.state == "off"
    topic.add(5)
    topic.ledger.roll()
    topic.run()
    assert topic.cold_entries() == topic.added[:17]
    topic.ledger.offload_prefix(EntryPosition(1 << 40, 0))
    assert recorded().in_order[-1].has_complete_copy
    topic.ledger.set_streaming(SETTINGS)
    topic.add(3)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added[:17] + topic.added[22:]
