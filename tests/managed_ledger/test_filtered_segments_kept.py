"""What lasts of a filtered streamed topic: segments that are resumed or begun anew, history, and what records say."""

from __future__ import annotations

from pathlib import Path

import pytest
from managed_ledgers import NAME, Clock
from records import knowable, partly_offloaded
from scenes.filters import Filtered, chosen
from scenes.repairs import findings
from scenes.segments import SETTINGS, pool_of

from offload_core.format.codec.object_marks import FILTERED_KEY
from offload_core.maintenance.recover import Unknown, recover_records
from offload_core.metadata.records.filter_record import RECORD_KEY, recorded_filter
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.audit import LoggedChanges
from offload_core.writing.filters import NO_FILTER, DroppedEntries, FilterMode, parse_filter_record
from offload_core.writing.filters.recorded_filters import settled_by_filters
from offload_core.writing.managed_ledger import Environment, StreamingPool
from offload_core.writing.managed_ledger.streaming.status import SegmentCompletion
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import TierReader


@pytest.fixture
def pool(cold: TierReader, clock: Clock) -> StreamingPool:
    return pool_of(cold.store, clock)


@pytest.fixture
def topic(environment: Environment, pool: StreamingPool, cold: TierReader, tmp_path: Path) -> Filtered:
    return Filtered.streamed(environment, pool, cold.store, tmp_path / "cold")


@pytest.mark.parametrize("kill", [False, True])
def test_a_resumed_segment_has_its_positions_and_is_filtered_anew(
    topic: Filtered, clock: Clock, kill: bool
) -> None:
    topic.filter.unwanted = {0, 1, 4, 11, 14}
    topic.add(24)
    topic.filter.stop_at(topic.position(20))
    topic.run()
    if kill:
        clock.pass_s(301)
    else:
        topic.ledger.close()
    *_, old = topic.segments
    assert not old.is_finished
    topic.filter.stop_at(topic.position(23))
    topic.open()
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    *_, new = topic.segments
    assert (new.begin, new.uuid != old.uuid) == (old.begin, True)
    assert topic.ledger.complete_segment().end == topic.position(22)
    assert topic.sparse_entries() == topic.kept(23)
    assert topic.left() == set()


def test_a_segment_is_not_resumed_before_its_first_entry_is_settled(topic: Filtered, clock: Clock) -> None:
    topic.add(5)
    topic.run()
    topic.ledger.close()
    topic.filter.stop_at(topic.position(0))
    (old,) = topic.segments
    topic.open()
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    assert topic.ledger.complete_segment() == SegmentCompletion(end=None, waits_for="a sign")
    assert topic.segments == (old,)
    topic.filter.stop_at(None)
    topic.ledger.complete_segment()
    assert topic.sparse_entries() == topic.added


@pytest.mark.parametrize("is_old", [False, True])
def test_a_segment_whose_end_is_recorded_waits_for_it(
    topic: Filtered, clock: Clock, pool: StreamingPool, is_old: bool
) -> None:
    """As it is where history was begun without a filter."""
    topic.ledger.set_streaming(None)
    topic.add(20)
    topic.ledger.roll()
    topic.choice = NO_FILTER
    topic.ledger.set_streaming(SETTINGS)
    assert topic.ledger._streaming is not None
    topic.ledger._streaming.turn()
    (old,) = topic.segments
    assert old.end == topic.position(9)
    clock.pass_s(301)
    topic.choice = chosen(FilterMode.GAP, topic.filter, "numbers")
    topic.filter.stop_at(topic.position(4))
    topic.open()
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    if is_old:
        clock.pass_s(70)
        topic.run()
    done = topic.ledger.complete_segment()
    assert done == SegmentCompletion(end=None, waits_for="a sign")
    assert topic.status.next_position == topic.position(4)
    topic.filter.stop_at(topic.position(7))
    clock.pass_s(61)
    topic.run()
    assert topic.status.next_position == topic.position(7)
    topic.filter.stop_at(None)
    assert topic.ledger.complete_segment().end == topic.position(19)
    assert topic.sparse_entries() == topic.added
    assert topic.segments[0].end == old.end


@pytest.mark.parametrize("to", ["none", "another", "mode"])
def test_where_another_filter_is_chosen_the_open_segment_is_begun_anew(topic: Filtered, to: str) -> None:
    topic.filter.unwanted = {1, 3}
    topic.add(6)
    topic.run()
    (old,) = topic.segments
    if to == "none":
        topic.choice, topic.filter.unwanted = NO_FILTER, set()
    elif to == "another":
        topic.choice = chosen(FilterMode.GAP, topic.filter, "other")
        topic.filter.unwanted = {2}
    else:
        topic.choice = chosen(FilterMode.TOMBSTONE, topic.filter, "numbers")
        topic.filter.unwanted = set()
    topic.ledger.complete_segment()
    topic.ledger.complete_segment()
    (new,) = topic.segments
    assert (new.begin, new.uuid != old.uuid) == (old.begin, True)
    assert topic.sparse_entries() == topic.kept()
    about = topic.tier.stat(str(new.uuid)).user_metadata
    assert about.get(FILTERED_KEY) == {"none": None, "another": "other", "mode": "numbers"}[to]
    assert topic.status.last_error is None
    assert topic.left() == set()


def test_switched_off_a_ledger_is_finished_when_all_of_it_is_settled(topic: Filtered, clock: Clock) -> None:
    topic.add(12)
    topic.run()
    topic.ledger.set_streaming(None)
    topic.add(5)
    topic.filter.stop_at(topic.position(15))
    topic.ledger.roll()
    topic.run()
    assert topic.sparse_entries() == topic.added[:10]
    clock.pass_s(3)
    topic.run()
    assert topic.sparse_entries() == topic.added[:10]
    topic.filter.stop_at(None)
    clock.pass_s(3)
    topic.run()
    assert topic.sparse_entries() == topic.added
    assert topic.status.state == "off"
    assert len(topic.segments) == 2


def test_history_goes_through_the_filter_too(topic: Filtered) -> None:
    topic.ledger.set_streaming(None)
    topic.filter.unwanted = set(range(0, 80, 2))
    for count in (4, 25, 3, 12):
        topic.add(count)
        topic.ledger.roll()
    topic.add(3)
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    topic.ledger.complete_segment()
    assert topic.sparse_entries() == topic.kept()
    assert [segment.end for segment in topic.segments] == [topic.position(i) for i in (19, 39, 46)]


def test_what_was_done_is_in_the_record_of_each_ledger(topic: Filtered) -> None:
    topic.filter.unwanted = {1, 2, 5}
    topic.add(4)
    topic.ledger.roll()
    topic.add(4)
    topic.filter.stop_at(topic.position(7))
    topic.ledger.complete_segment()
    first, second = topic.info.in_order
    found = []
    for ledger in (first, second):
        assert ledger.context is not None
        (share,) = ledger.context.segments
        record = recorded_filter(share.driver, ledger.ledger_id)
        assert record is not None
        assert share.filter_record is not None
        assert record == parse_filter_record(share.filter_record)
        found.append((record.name, record.stop, record.kept.entries, record.total_dropped))
    stop = topic.position(7)
    assert found == [
        ("numbers", stop, 2, DroppedEntries(entries=2, payload_bytes=200)),
        ("numbers", stop, 2, DroppedEntries(entries=1, payload_bytes=100)),
    ]
    assert settled_by_filters(topic.info) is None, "whatever it stops for, it is not transactions"
    topic.filter.stop_at(None)
    topic.ledger.complete_segment()
    context = topic.info.in_order[1].context
    assert context is not None
    record = recorded_filter(context.segments[-1].driver, 1)
    assert record is not None
    assert record.stop is None
    assert first.context is not None
    assert first.context.driver is not None
    assert first.context.driver.get(RECORD_KEY) is None
    segment, _ = topic.segments
    for key in (f"{segment.uuid}", f"{segment.uuid}-index"):
        about = topic.tier.stat(key).user_metadata
        assert about[FILTERED_KEY] == "numbers"
        dropped = [value for name, value in about.items() if "dropped" in name]
        assert dropped == (["3 entries, 300 bytes"] if key.endswith("index") else [])


@pytest.mark.parametrize("rolls", [False, True])
def test_records_come_back_from_filtered_segments(topic: Filtered, rolls: bool) -> None:
    topic.filter.unwanted = {0, 1, 5, 9, 10, 11, *range(14, 20)}
    topic.add(13)
    if rolls:
        topic.ledger.roll()
    topic.add(14)
    topic.ledger.complete_segment()
    original = topic.info
    records = ManagedLedgerRecords(MemoryMetadataStore())
    (recovered,) = recover_records(topic.tier, records, LoggedChanges())
    back = records.read(NAME)
    assert back is not None
    assert knowable(back.info, partly=partly_offloaded(original)) == knowable(original)
    assert {fact.what for fact in recovered.rebuilt.unknown} <= {Unknown.OPEN_LEDGER}
    assert not findings(topic.tier, {NAME: back.info})
