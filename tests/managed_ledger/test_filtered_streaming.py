"""A streamed topic whose entries go through a filter: only what it decides of goes, and no sooner."""

from __future__ import annotations

from pathlib import Path

import pytest
from managed_ledgers import NAME, Clock
from scenes.filters import Filtered
from scenes.repairs import findings
from scenes.segments import pool_of

from offload_core.metadata.records import EntryPosition
from offload_core.writing.managed_ledger import Environment, StreamingPool, request_completion, waits_of
from offload_core.writing.managed_ledger.streaming.status import SegmentCompletion
from offload_hooks.errors import UnresolvedTransactionError
from pulsar_offload import TierReader, scan


@pytest.fixture
def pool(cold: TierReader, clock: Clock) -> StreamingPool:
    return pool_of(cold.store, clock)


@pytest.fixture
def topic(environment: Environment, pool: StreamingPool, cold: TierReader, tmp_path: Path) -> Filtered:
    return Filtered.streamed(environment, pool, cold.store, tmp_path / "cold")


def test_only_what_is_before_the_stop_goes_and_the_rest_when_that_has_moved(
    topic: Filtered, clock: Clock
) -> None:
    topic.add(1)
    topic.filter.stop_at(EntryPosition(topic.position(0).ledger_id, 14))
    topic.add(30)
    topic.run()
    assert topic.sparse_entries() == topic.added[:10]
    assert topic.status.next_position == topic.position(14)
    assert (topic.status.stop, topic.status.waits_for) == (topic.position(14), "a sign")
    topic.filter.stop_at(topic.position(23))
    topic.run()
    assert topic.status.next_position == topic.position(14)
    clock.pass_s(1)
    topic.run()
    assert topic.sparse_entries() == topic.added[:20]
    assert topic.status.next_position == topic.position(23)
    topic.filter.stop_at(None)
    clock.pass_s(1)
    topic.run()
    assert topic.sparse_entries() == topic.added[:30]
    assert topic.status.waits_for is None


def test_segments_are_as_large_as_what_is_left(topic: Filtered) -> None:
    topic.filter.unwanted = set(range(0, 60, 3))
    topic.add(45)
    topic.run()
    assert [segment.end for segment in topic.segments] == [topic.position(i) for i in (14, 29, 44)]
    topic.add(1)
    topic.ledger.complete_segment()
    assert topic.sparse_entries() == topic.kept()


@pytest.mark.parametrize("rolls", [False, True])
def test_of_a_segment_of_which_nothing_is_left_there_is_a_complete_copy_nonetheless(
    topic: Filtered, rolls: bool
) -> None:
    topic.filter.unwanted = set(range(3, 12))
    topic.add(6)
    if rolls:
        topic.ledger.roll()
    topic.ledger.complete_segment()
    topic.add(6)
    topic.ledger.complete_segment()
    topic.add(2)
    topic.ledger.roll()
    topic.ledger.complete_segment()
    assert [segment.is_finished for segment in topic.segments] == [True] * 3
    assert topic.sparse_entries() == topic.kept()
    assert all(ledger.is_fully_offloaded for ledger in topic.info.ledgers)
    assert topic.left() == set()
    assert findings(topic.tier, {NAME: topic.info}) == []


def test_ledgers_of_which_nothing_is_left_lie_in_a_segment_with_others(
    topic: Filtered, cold: TierReader
) -> None:
    topic.filter.unwanted = {0, 1, 4, 5, 6, 7, 9}
    for count in (2, 3, 3, 2):
        topic.add(count)
        topic.ledger.roll()
    topic.ledger.complete_segment()
    (segment,) = topic.segments
    assert len(segment.ledger_ids) == 4
    assert (segment.begin, segment.end) == (topic.position(0), topic.position(9))
    assert topic.sparse_entries() == topic.kept()
    assert findings(topic.tier, {NAME: topic.info}) == []
    scanned = scan(cold, "persistent://acme/cold/orders", level="entries").to_table().to_pylist()
    assert [(row["__ledgerId"], row["__entryId"], row["value"]) for row in scanned] == [
        (at.ledger_id, at.entry_id, payload) for at, payload in topic.kept()
    ]


def test_a_topic_that_is_held_is_asked_for_less_and_less_and_keeps_no_memory(
    topic: Filtered, pool: StreamingPool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.add(4)
    topic.filter.stop_at(topic.position(1))
    topic.add(30)
    topic.run()
    assert topic.filter.opened == 1
    asked, turns, streaming = [], [], topic.ledger._streaming
    assert streaming is not None
    go_on = streaming._go_on
    monkeypatch.setattr(streaming, "_go_on", lambda: (turns.append(1), go_on()))
    for _ in range(600):
        clock.pass_s(1)
        topic.add(1)
        topic.run()
        asked.append(topic.filter.opened)
    assert asked[2] <= 3
    assert asked[-1] <= 18
    assert asked[-1] - asked[-121] <= 2
    assert len(turns) <= 2 * asked[-1]
    assert pool.buffer_budget.taken_bytes == 0
    assert pool.budget.taken_bytes == 0
    assert topic.sparse_entries() == topic.added[:1]  # which was old enough
    topic.filter.stop_at(None)
    clock.pass_s(60)
    topic.run()
    topic.ledger.complete_segment()
    assert topic.sparse_entries() == topic.added
    topic.add(5)
    assert pool.buffer_budget.taken_bytes > 0


def test_a_topic_without_a_turn_for_it_is_not_asked(topic: Filtered, clock: Clock) -> None:
    topic.add(1)
    topic.run()
    for _ in range(59):
        clock.pass_s(1)
        topic.run()
    assert topic.filter.opened == 0
    clock.pass_s(1)
    topic.run()
    assert topic.sparse_entries() == topic.added
    assert topic.filter.opened == 1


def test_what_is_settled_of_an_open_segment_is_closed_by_its_age(topic: Filtered, clock: Clock) -> None:
    topic.add(9)
    topic.filter.stop_at(topic.position(5))
    topic.run()
    assert topic.status.state == "open"
    clock.pass_s(60)
    topic.run()
    assert topic.sparse_entries() == topic.added[:5]
    assert topic.status.state == "idle"


def test_completed_by_hand_is_what_is_settled_and_the_rest_is_told_of(topic: Filtered, clock: Clock) -> None:
    topic.add(7)
    topic.filter.stop_at(topic.position(5))
    wanted = SegmentCompletion(end=topic.position(4), waits_for="a sign")
    assert topic.ledger.complete_segment() == wanted
    assert topic.sparse_entries() == topic.added[:5]
    assert topic.ledger.complete_segment() == wanted
    topic.filter.stop_at(topic.position(6))
    assert topic.ledger.complete_segment().end == topic.position(5)
    topic.filter.stop_at(None)
    assert topic.ledger.complete_segment() == SegmentCompletion(end=topic.position(6))
    assert topic.sparse_entries() == topic.added


def test_nothing_settled_is_told_of_as_well(topic: Filtered) -> None:
    assert topic.ledger.complete_segment() == SegmentCompletion(end=None)
    topic.filter.stop = (0, 0)
    topic.add(3)
    assert topic.ledger.complete_segment() == SegmentCompletion(end=None, waits_for="a sign")
    assert topic.segments == ()
    topic.add(20)
    topic.run()
    assert topic.segments == ()


def test_who_asks_from_elsewhere_is_told_what_the_rest_waits_for(topic: Filtered) -> None:
    topic.add(3)
    topic.filter.stop_at(topic.position(2))
    records = topic.environment.records

    def answer(_: float) -> None:
        topic.ledger.answer_requests()

    assert waits_of(request_completion(records, NAME, wait=answer)) == "a sign"
    assert topic.sparse_entries() == topic.added[:2]
    topic.filter.stop_at(None)
    assert waits_of(request_completion(records, NAME, wait=answer)) is None
    assert topic.sparse_entries() == topic.added


def test_a_filter_that_fails_is_asked_again_after_a_pause(topic: Filtered, clock: Clock) -> None:
    topic.filter.error = UnresolvedTransactionError("not now")
    topic.add(12)
    topic.run()
    assert topic.status.last_error is topic.filter.error
    assert topic.status.state == "waiting"
    with pytest.raises(UnresolvedTransactionError):
        topic.ledger.complete_segment()
    topic.filter.error = None
    clock.pass_s(3)
    topic.run()
    assert topic.sparse_entries() == topic.added[:10]


def test_what_comes_after_the_filter_was_asked_is_not_taken_before_it_is_asked_again(topic: Filtered) -> None:
    topic.add(5)
    topic.run()
    opened = topic.filter.opened
    topic.add(1)
    topic.filter.stop_at(topic.position(5))
    topic.add(14)
    topic.run()
    assert topic.status.next_position == topic.position(5)
    assert topic.filter.opened > opened
