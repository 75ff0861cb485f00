"""A streamed topic whose entries go through a filter: only what it decides of goes, and no sooner."""

import pytest
from managed_ledgers import NAME
from records import knowable, partly_offloaded
from scenes.filters import Filtered, chosen
from scenes.repairs import findings
from scenes.segments import SETTINGS

from offload_core.format.codec.object_marks import FILTERED_KEY
from offload_core.maintenance.record_recovery import Unknown, recover_records
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import (
    RECORD_KEY,
    DroppedEntries,
    FilterMode,
    parse_filter_record,
    recorded_filter,
)
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.audit import LoggedChanges
from offload_core.writing.managed_ledger import request_completion, waits_of
from offload_core.writing.managed_ledger.streaming.status import SegmentCompletion
from offload_core.writing.offload_filters import NO_FILTER, settled_by_filters
from offload_hooks.errors import UnresolvedTransactionError
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import scan


@pytest.fixture
def topic(environment, pool, cold, tmp_path):
    return Filtered.streamed(environment, pool, cold.store, tmp_path / "cold")


def test_only_what_is_before_the_stop_goes_and_the_rest_when_that_has_moved(topic, clock):
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


def test_segments_are_as_large_as_what_is_left(topic):
    topic.filter.unwanted = set(range(0, 60, 3))
    topic.add(45)
    topic.run()
    assert [segment.end for segment in topic.segments] == [topic.position(i) for i in (14, 29, 44)]
    topic.add(1)
    topic.ledger.complete_segment()
    assert topic.sparse_entries() == topic.kept()


@pytest.mark.parametrize("rolls", [False, True])
def test_of_a_segment_of_which_nothing_is_left_there_is_a_complete_copy_nonetheless(topic, rolls):
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


def test_ledgers_of_which_nothing_is_left_lie_in_a_segment_with_others(topic, cold):
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


def test_a_topic_that_is_held_is_asked_for_less_and_less_and_keeps_no_memory(topic, pool, clock, monkeypatch):
    topic.add(4)
    topic.filter.stop_at(topic.position(1))
    topic.add(30)
    topic.run()
    assert topic.filter.opened == 1
    asked, turns, streaming = [], [], topic.ledger._streaming
    go_on = streaming._go_on
    monkeypatch.setattr(streaming, "_go_on", lambda: (turns.append(1), go_on()))
    for _ in range(240):
        clock.pass_s(1)
        topic.add(1)
        topic.run()
        asked.append(topic.filter.opened)
    assert asked[2] <= 3
    assert asked[-1] <= 12
    assert asked[-1] - asked[-121] <= 3
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


def test_a_topic_without_a_turn_for_it_is_not_asked(topic, clock):
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


def test_what_is_settled_of_an_open_segment_is_closed_by_its_age(topic, clock):
    topic.add(9)
    topic.filter.stop_at(topic.position(5))
    topic.run()
    assert topic.status.state == "open"
    clock.pass_s(60)
    topic.run()
    assert topic.sparse_entries() == topic.added[:5]
    assert topic.status.state == "idle"


def test_completed_by_hand_is_what_is_settled_and_the_rest_is_told_of(topic, clock):
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


def test_nothing_settled_is_told_of_as_well(topic):
    assert topic.ledger.complete_segment() == SegmentCompletion(end=None)
    topic.filter.stop = (0, 0)
    topic.add(3)
    assert topic.ledger.complete_segment() == SegmentCompletion(end=None, waits_for="a sign")
    assert topic.segments == ()
    topic.add(20)
    topic.run()
    assert topic.segments == ()


def test_who_asks_from_elsewhere_is_told_what_the_rest_waits_for(topic):
    topic.add(3)
    topic.filter.stop_at(topic.position(2))
    records = topic.environment.records

    def answer(_):
        topic.ledger.answer_requests()

    assert waits_of(request_completion(records, NAME, wait=answer)) == "a sign"
    assert topic.sparse_entries() == topic.added[:2]
    topic.filter.stop_at(None)
    assert waits_of(request_completion(records, NAME, wait=answer)) is None
    assert topic.sparse_entries() == topic.added


def test_a_filter_that_fails_is_asked_again_after_a_pause(topic, clock):
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


def test_what_comes_after_the_filter_was_asked_is_not_taken_before_it_is_asked_again(topic):
    topic.add(5)
    topic.run()
    opened = topic.filter.opened
    topic.add(1)
    topic.filter.stop_at(topic.position(5))
    topic.add(14)
    topic.run()
    assert topic.status.next_position == topic.position(5)
    assert topic.filter.opened > opened


@pytest.mark.parametrize("kill", [False, True])
def test_a_resumed_segment_has_its_positions_and_is_filtered_anew(topic, clock, kill):
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


def test_a_segment_is_not_resumed_before_its_first_entry_is_settled(topic, clock):
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
def test_a_segment_whose_end_is_recorded_waits_for_it(topic, clock, pool, is_old):
    """As it is where history was begun without a filter."""
    topic.ledger.set_streaming(None)
    topic.add(20)
    topic.ledger.roll()
    topic.choice = NO_FILTER
    topic.ledger.set_streaming(SETTINGS)
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
def test_where_another_filter_is_chosen_the_open_segment_is_begun_anew(topic, to):
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


def test_switched_off_a_ledger_is_finished_when_all_of_it_is_settled(topic, clock):
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


def test_history_goes_through_the_filter_too(topic):
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


def test_what_was_done_is_in_the_record_of_each_ledger(topic):
    topic.filter.unwanted = {1, 2, 5}
    topic.add(4)
    topic.ledger.roll()
    topic.add(4)
    topic.filter.stop_at(topic.position(7))
    topic.ledger.complete_segment()
    first, second = topic.info.in_order
    found = []
    for ledger in (first, second):
        (share,) = ledger.context.segments
        record = recorded_filter(share.driver, ledger.ledger_id)
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
    record = recorded_filter(topic.info.in_order[1].context.segments[-1].driver, 1)
    assert record.stop is None
    assert first.context.driver.get(RECORD_KEY) is None
    segment, _ = topic.segments
    for key in (f"{segment.uuid}", f"{segment.uuid}-index"):
        about = topic.tier.stat(key).user_metadata
        assert about[FILTERED_KEY] == "numbers"
        dropped = [value for name, value in about.items() if "dropped" in name]
        assert dropped == (["3 entries, 300 bytes"] if key.endswith("index") else [])


@pytest.mark.parametrize("rolls", [False, True])
def test_records_come_back_from_filtered_segments(topic, rolls):
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
    assert knowable(back.info, partly=partly_offloaded(original)) == knowable(original)
    assert {fact.what for fact in recovered.rebuilt.unknown} <= {Unknown.OPEN_LEDGER}
    assert not findings(topic.tier, {NAME: back.info})
