"""A topic that is streamed: its entries go to segment after segment, in their order, none twice."""

from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from managed_ledgers import NAME
from scenes.segments import SETTINGS, Topic, in_segment, pool_of

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import (
    AttemptStatus,
    DriverMetadata,
    EntryPosition,
    ReadPriority,
    begin_attempt,
    complete_attempt,
)
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReaders, ReadMemory, TieredReaders
from offload_core.writing.managed_ledger import OffloadStatus, StreamingStatus, open_managed_ledger
from offload_core.writing.managed_ledger.owned_record import begin_ledger, claim_record
from offload_core.writing.managed_ledger.streaming.status import EntriesByOrigin
from offload_core.writing.offload.running_attempt import lease_from, working_on
from offload_hooks.errors import AttemptError, LiveAttemptError, OptionError
from offload_hooks.testing import MemoryMetadataStore


@pytest.fixture
def streamed(environment, pool):
    return replace(environment, streaming=pool)


@pytest.fixture
def topic(streamed, tmp_path):
    return Topic(streamed, tmp_path / "cold")


def test_entries_go_to_segments_of_the_size_that_is_set(topic):
    topic.ledger.set_streaming(SETTINGS)
    topic.add(25)
    topic.run()
    assert topic.cold_entries() == topic.added[:20]
    assert [segment.is_finished for segment in topic.segments] == [True, True, False]
    assert topic.ledger.streaming_status.state == "open"
    topic.add(10)
    topic.run()
    assert topic.cold_entries() == topic.added[:30]
    assert topic.ledger.streaming_status.completed == 3


def test_a_segment_closes_by_age_also_on_an_idle_topic(topic, clock):
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


def test_ages_count_over_openings(topic, clock):
    """A topic that is opened for a moment, again and again, has its segments closed all the same."""
    for _ in range(3):
        topic.ledger.set_streaming(SETTINGS)
        topic.add(1)
        topic.run()
        assert topic.cold_entries() == []
        topic.ledger.close()
        clock.pass_s(25)
        topic.open()
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    assert topic.cold_entries() == topic.added


def test_several_ledgers_lie_in_one_segment(topic):
    topic.ledger.set_streaming(SETTINGS)
    for count in (2, 3, 4):
        topic.add(count)
        topic.run()
        topic.ledger.roll()
    topic.add(3)
    topic.run()
    assert topic.cold_entries() == topic.added[:10]
    (first,) = topic.segments
    assert len(first.ledger_ids) == 4


@pytest.mark.parametrize("kill", [False, True])
def test_the_next_owner_resumes_what_was_left(topic, clock, kill):
    topic.ledger.set_streaming(SETTINGS)
    topic.add(15)
    topic.run()
    if kill:
        clock.pass_s(301)
    else:
        topic.ledger.close()
        assert (topic.status.state, topic.left()) == ("ended", set())
        assert topic.segments[-1].status is AttemptStatus.FAILED
        pool = topic.environment.streaming
        assert pool.budget.taken_bytes == pool.buffer_budget.taken_bytes == 0
    (_, old) = topic.segments
    topic.open()
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    (_, new) = topic.segments
    assert new.uuid != old.uuid
    assert new.begin == old.begin
    topic.add(3)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added
    assert topic.left() == set()


def test_history_is_streamed_first_and_what_is_offloaded_is_left(topic):
    for count in (4, 25, 3, 2):
        topic.add(count)
        topic.ledger.roll()
    second = topic.info.in_order[1].ledger_id
    topic.ledger.offload_prefix(EntryPosition(second, 25))
    topic.add(1)
    topic.ledger.set_streaming(SETTINGS)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added[29:]
    assert topic.left() == set()


def test_switched_off_a_ledger_that_is_partly_in_segments_is_finished_and_then_ledgers_follow(topic):
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
    assert topic.info.in_order[-1].has_complete_copy
    topic.ledger.set_streaming(SETTINGS)
    topic.add(3)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added[:17] + topic.added[22:]


def test_segments_of_history_are_as_large_as_is_set(topic):
    for count, size in ((3, 100), (1, 700), (20, 60), (2, 100), (1, 2500), (30, 10)):
        topic.add(count, size)
        topic.ledger.roll()
    topic.ledger.set_streaming(SETTINGS)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added
    sizes = [[len(payload) for _, payload in in_segment(topic.cold, each)] for each in topic.segments]
    assert all(sum(each) >= SETTINGS.max_segment_bytes > sum(each[:-1]) for each in sizes[:-1])
    assert len(sizes[0]) == 4
    assert len(topic.segments[2].ledger_ids) == 3


def test_a_ledger_offload_that_runs_comes_to_its_end_first(topic):
    topic.add(15)
    topic.ledger.roll()
    (ledger,) = topic.info.in_order
    topic.ledger.set_streaming(SETTINGS)
    with working_on(UUID(int=7)):
        lease = lease_from(topic.environment.now_ms(), 60)
        driver = DriverMetadata(name="filesystem")
        topic.environment.records.update(
            NAME, lambda info: begin_attempt(info, ledger.ledger_id, UUID(int=7), driver, lease=lease)
        )
        topic.run()
        assert isinstance(topic.status.last_error, LiveAttemptError)
        assert topic.status.state == "waiting"
    complete = partial(complete_attempt, ledger_id=ledger.ledger_id, uuid=UUID(int=7), timestamp_ms=1)
    topic.environment.records.update(NAME, complete)
    topic.add(2)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added[15:]


def test_a_topic_that_is_streamed_is_not_offloaded_by_ledgers(topic):
    topic.add(3)
    topic.ledger.roll()
    topic.ledger.set_streaming(SETTINGS)
    with pytest.raises(AttemptError, match="is streamed"):
        topic.ledger.offload_prefix(EntryPosition(1 << 40, 0))


def test_an_environment_without_a_pool_streams_nothing(environment):
    ledger = open_managed_ledger(environment, NAME)
    with pytest.raises(OptionError, match="no tier"):
        ledger.set_streaming(SETTINGS)
    with pytest.raises(OptionError, match="no tier"):
        ledger.complete_segment()
    assert ledger.streaming_status.state == "off"
    assert not ledger.is_streamed


def test_entries_come_from_memory_where_they_are_there(topic):
    topic.ledger.set_streaming(SETTINGS)
    topic.add(20)
    topic.run()
    assert topic.status.read_from == EntriesByOrigin(buffer=20)
    assert topic.status.buffered_bytes == 0


def test_a_full_buffer_is_passed_by_and_come_back_to(environment, cold, clock, tmp_path):
    pool = pool_of(cold.store, clock, buffer_bytes=1500)
    streamed = replace(environment, streaming=pool, cache_bytes=3000)
    topic = Topic(streamed, tmp_path / "cold")
    topic.ledger.set_streaming(SETTINGS)
    topic.add(40)
    assert 1200 <= pool.buffer_budget.taken_bytes <= 1500
    topic.run()
    counts = topic.status.read_from
    assert (counts.buffer, counts.hot, counts.cache) == (5, 25, 10)
    topic.add(5)
    topic.run()
    assert topic.status.read_from.buffer == 10
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added
    topic.ledger.close()
    assert pool.buffer_budget.taken_bytes == pool.budget.taken_bytes == 0


def test_batches_may_lie_over_the_borders_of_segments(topic):
    topic.ledger.set_streaming(SETTINGS)
    for i in range(6):
        payloads = [b"%d %d" % (i, j) + b"." * 97 for j in range(7)]
        first = topic.ledger.add_entries(payloads)
        topic.added += [
            (EntryPosition(first.ledger_id, first.entry_id + j), each) for j, each in enumerate(payloads)
        ]
    topic.run()
    assert topic.cold_entries() == topic.added[:40]
    assert topic.status.read_from.hot == topic.status.read_from.cache == 0


def test_a_segment_ends_before_a_ledger_that_has_a_copy_of_its_own(topic):
    for _ in range(3):
        topic.add(3)
        topic.ledger.roll()
    topic.environment.offloads.offload(NAME, topic.info.in_order[1].ledger_id)
    topic.ledger.set_streaming(SETTINGS)
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added[:3] + topic.added[6:]


def test_switched_off_a_segment_ends_with_its_ledger_although_another_follows(topic):
    topic.ledger.set_streaming(SETTINGS)
    topic.add(15)
    topic.run()
    topic.ledger.set_streaming(None)
    topic.ledger.roll()
    topic.add(12)
    topic.run()
    assert topic.cold_entries() == topic.added[:15]
    topic.ledger.complete_segment()
    assert topic.cold_entries() == topic.added[:15]


def test_a_topic_that_is_not_streamed_gets_no_segments(topic):
    topic.add(12)
    topic.ledger.roll()
    topic.ledger.set_streaming(None)
    topic.ledger.complete_segment()
    topic.add(12)
    topic.run()
    assert topic.segments == ()
    assert topic.status == StreamingStatus(state="off")


def test_streaming_waits_for_the_ledger_offload_of_its_own_process(topic):
    topic.add(12)
    offloads = topic.ledger._offloads
    offloads.offload_status = OffloadStatus(state="running")
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    assert topic.segments == ()
    assert topic.status.failures_in_a_row == 0
    topic.ledger.set_streaming(None)
    offloads.offload_status = OffloadStatus()
    topic.ledger.offload_prefix(EntryPosition(0, 0))
    topic.ledger.set_streaming(SETTINGS)
    topic.run()
    assert topic.cold_entries() == topic.added[:10]


def test_who_reads_the_tier_sees_a_segment_as_soon_as_it_is_complete(streamed, cold, hot, tmp_path):
    readers = TieredReaders(hot, ColdReaders(KnownTiers(cold.store), memory=ReadMemory()))
    topic = Topic(replace(streamed, open_reader=readers.open), tmp_path / "cold")
    topic.ledger.set_streaming(SETTINGS)
    for count in (10, 20, 30):
        topic.add(10)
        topic.run()
        read = topic.ledger.read_entries(
            EntryPosition(0, 0), 1000, 1 << 20, priority=ReadPriority.OFFLOADED_ONLY
        )
        assert [(at, bytes(payload)) for at, payload in read] == topic.added[:count]


def test_the_record_of_an_owner_is_the_newest_however_its_changes_overtake_each_other():
    records = ManagedLedgerRecords(MemoryMetadataStore())
    owned = claim_record(records, NAME, create=True)
    update = records.update

    def overtaken(name, change):
        known = update(name, change)
        records.update = update
        owned.update(lambda info: begin_ledger(info, 2))
        return known

    records.update = overtaken
    first = owned.update(lambda info: begin_ledger(info, 1))
    assert [ledger.ledger_id for ledger in first.ledgers] == [1]
    assert [ledger.ledger_id for ledger in owned.info.ledgers] == [1, 2]
