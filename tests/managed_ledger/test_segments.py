"""A topic that is offloaded by streaming segments: read, its hot copies deleted, trimmed, deleted as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import pytest
from managed_ledgers import NAME, ColdLedger
from scenes.segments import SegmentedOffloads, segment_keys

from offload_core.maintenance.rollback import (
    Allowed,
    Need,
    Verdict,
    delete_judged,
    judge_tier,
    plan_rollback,
    release_recorded,
)
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import (
    EntryPosition,
    ReadPriority,
    abandon_segment,
    segments_of,
    unfinished_segment,
)
from offload_core.reading.read_handles import ColdReaders, ReadMemory, TieredReaders
from offload_core.writing.managed_ledger import (
    Environment,
    ManagedLedger,
    delete_managed_ledger,
    open_managed_ledger,
)
from offload_core.writing.offload.segment_offloader import segment_key
from offload_hooks.errors import AttemptError, DataLossError, OffloadError, StoreUnavailableError

START, END = EntryPosition(0, 0), EntryPosition(1 << 40, 0)
EVERYTHING = RetentionPolicies()
SIZES = (4, 3, 5)
"""Entries of the sealed ledgers; two more are in the one that is written."""


@dataclass
class SegmentsTopic:
    """A topic of three sealed ledgers and an open one, which goes to segments as tests say."""

    environment: Environment
    open: ManagedLedger
    offloads: SegmentedOffloads
    readers: TieredReaders
    ids: list[int]
    payloads: list[bytes]

    def end(self, place, entry_id):
        return EntryPosition(self.ids[place], entry_id)

    def read(self, priority=ReadPriority.OFFLOADED_FIRST, at_once=100):
        found = []
        position = START
        while True:
            read = self.open.read_entries(position, at_once, priority=priority)
            if not len(read):
                return found
            found += [bytes(payload) for _, payload in read]
            position = read.next_position

    def without_hot_ledgers(self, *places):
        for place in places:
            self.environment.hot.store.delete(self.ids[place])


@pytest.fixture
def topic(environment, records, hot, cold, clock):
    readers = TieredReaders(hot, ColdReaders(KnownTiers(cold.store), memory=ReadMemory()))
    environment = replace(environment, open_reader=readers.open, cache_bytes=0)
    opened = open_managed_ledger(environment, NAME)
    payloads, ids = [], []
    for size in (*SIZES, 2):
        added = [b"%d-%d" % (len(ids), i) * 20 for i in range(size)]
        payloads += added
        ids.append(opened.add_entries(added).ledger_id)
        if len(ids) <= len(SIZES):
            opened.roll()
    offloads = SegmentedOffloads(name=NAME, records=records, hot=hot, tier=cold.store, now_ms=clock)
    return SegmentsTopic(environment, opened, offloads, readers, ids, payloads)


# --- reading -----------------------------------------------------------------------------------


@pytest.mark.parametrize("priority", [each for each in ReadPriority if each.falls_back])
@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_topic_that_is_partly_in_segments_is_read_in_order(topic, priority, at_once):
    assert topic.read(priority, at_once) == topic.payloads
    for place, entry_id in ((0, 1), (2, 2), (3, 0)):
        topic.offloads.offload(topic.end(place, entry_id))
        assert topic.read(priority, at_once) == topic.payloads
    topic.open.add_entry(b"later")
    assert topic.read(priority, at_once) == [*topic.payloads, b"later"]
    topic.open.roll()
    topic.open.add_entry(b"in the next ledger")
    assert topic.read(priority, at_once) == [*topic.payloads, b"later", b"in the next ledger"]
    assert topic.readers.fallback_counts == {}


def test_what_is_cold_is_read_cold_and_what_is_behind_it_hot(topic, cold):
    topic.offloads.offload(topic.end(0, 1))
    topic.offloads.offload(topic.end(2, 2))
    assert topic.read() == topic.payloads
    topic.without_hot_ledgers(0, 1)
    assert topic.read() == topic.payloads
    assert topic.read(ReadPriority.BOOKKEEPER_FIRST) == topic.payloads
    cut = sum(SIZES[:2]) + 3
    with pytest.raises(DataLossError):
        topic.read(ReadPriority.OFFLOADED_ONLY)
    read = topic.open.read_entries(START, 100, priority=ReadPriority.OFFLOADED_ONLY)
    assert [bytes(payload) for _, payload in read] == topic.payloads[:cut]
    topic.without_hot_ledgers(2)
    read = topic.open.read_entries(START, 100)
    assert [bytes(payload) for _, payload in read] == topic.payloads[:cut]
    with pytest.raises(OffloadError):
        topic.open.read_entries(read.next_position, 100)


def test_a_segment_that_cannot_be_read_is_read_hot(topic, cold):
    topic.offloads.offload(topic.end(1, 1))
    lost = topic.offloads.offload(topic.end(2, 4))
    cold.store.delete([str(lost)])
    assert topic.read() == topic.payloads
    with pytest.raises(OffloadError):
        topic.read(ReadPriority.OFFLOADED_ONLY)


def test_a_reader_of_a_ledger_that_was_open_reads_on_when_that_is_cold_as_a_whole(topic):
    topic.offloads.offload(topic.end(3, 0))
    assert topic.read() == topic.payloads
    topic.open.roll()
    topic.offloads.offload(topic.end(3, 1))
    assert topic.open.delete_hot_copies(0) == topic.ids
    topic.open.add_entry(b"later")
    assert topic.read(ReadPriority.BOOKKEEPER_FIRST) == topic.read() == [*topic.payloads, b"later"]


def test_segments_one_object_copies_and_hot_ledgers_are_read_as_one(topic):
    topic.open.offload_prefix(topic.end(1, 0))
    topic.offloads.offload(topic.end(2, 1), begin=topic.end(1, 0))
    assert topic.open.offload_prefix(END) == topic.end(2, 2), "what segments have of a ledger stays theirs"
    for priority in ReadPriority:
        if priority.falls_back:
            assert topic.read(priority) == topic.payloads
    assert topic.open.delete_hot_copies(0) == topic.ids[:2]
    assert topic.read() == topic.payloads


def test_the_first_position_that_is_not_offloaded_may_lie_in_a_ledger(topic):
    topic.offloads.offload(topic.end(1, 1))
    assert topic.open.offload_prefix(topic.end(1, 0)) == topic.end(1, 2)
    topic.offloads.offload(topic.end(3, 1))
    assert topic.open.offload_prefix(END) == topic.end(3, 2)


# --- hot copies --------------------------------------------------------------------------------


def test_hot_copies_go_after_the_lag_where_all_entries_are_in_complete_segments(
    topic, clock, hot, audit, recorded
):
    topic.offloads.offload(topic.end(0, 1))
    topic.offloads.offload(topic.end(2, 2), history=True)
    clock.pass_s(10)
    assert topic.open.delete_hot_copies(11) == []
    assert topic.open.delete_hot_copies(10) == topic.ids[:2]
    assert hot.ledger_ids() == topic.ids[2:]
    assert audit.copies() == [(ledger_id, "hot") for ledger_id in topic.ids[:2]]
    contexts = [ledger.context for ledger in recorded().in_order]
    assert [context and context.bookkeeper_deleted for context in contexts] == [True, True, False, None]
    assert topic.read() == topic.payloads
    topic.offloads.offload(topic.end(2, 4), completes=False)
    assert topic.open.delete_hot_copies(0) == [], "one that is not complete does not count"
    assert topic.read() == topic.payloads


def test_a_ledger_that_is_closed_after_its_last_segment_is_offloaded_as_a_whole(topic, hot):
    topic.offloads.offload(topic.end(3, 1))
    assert topic.open.delete_hot_copies(0) == topic.ids[:3]
    topic.open.roll()
    assert topic.open.delete_hot_copies(0) == topic.ids[3:]
    assert (hot.ledger_ids(), topic.read()) == ([], topic.payloads)


def test_a_hot_copy_stays_where_a_segment_is_not_as_its_record_says(topic, cold, hot):
    topic.offloads.offload(topic.end(0, 1))
    cold.store.delete([str(topic.offloads.offload(topic.end(1, 2)))])
    with pytest.raises(DataLossError, match="recorded as complete"):
        topic.open.delete_hot_copies(0)
    assert hot.ledger_ids() == topic.ids


# --- deletion ----------------------------------------------------------------------------------


def test_an_object_goes_with_the_last_ledger_that_it_has_entries_of(topic, audit, hot, recorded, objects):
    one, two = topic.offloads.offload(topic.end(0, 1)), topic.offloads.offload(topic.end(1, 1))
    three = topic.offloads.offload(topic.end(2, 4))
    assert topic.open.trim(EVERYTHING, consumed_before=topic.end(1, 0)) == topic.ids[:1]
    assert objects() == segment_keys([two, three])
    assert topic.read() == topic.payloads[4:]
    (gone,) = [each for each in audit.deletions if each.copy == "cold"]
    assert (gone.ledger_id, gone.uuid) == (topic.ids[0], one)
    assert (gone.begin, gone.end) == (topic.end(0, 0), topic.end(0, 1))
    assert segments_of(recorded())[0].begin == topic.end(0, 2), "though that ledger is gone"
    audit.changes.clear()
    topic.open.delete_hot_copies(0)
    assert topic.open.trim(EVERYTHING, consumed_before=topic.end(3, 0)) == topic.ids[1:3]
    assert (objects(), hot.ledger_ids()) == ([], topic.ids[3:])
    assert [each.uuid for each in audit.deletions if each.copy == "cold"] == [two, three], "each once"
    assert topic.read() == topic.payloads[-2:]


def test_ledgers_of_a_segment_that_is_being_offloaded_are_trimmed_when_it_has_failed(
    topic, records, recorded, objects
):
    one = topic.offloads.offload(topic.end(0, 3))
    two = topic.offloads.offload(topic.end(2, 1), completes=False)
    trim = partial(topic.open.trim, EVERYTHING, consumed_before=topic.end(2, 0))
    assert trim() == topic.ids[:1]
    assert trim() == []
    records.update(NAME, lambda info: abandon_segment(info, two))
    assert trim() == topic.ids[1:2]
    left = unfinished_segment(recorded())
    assert (left.uuid, left.ledger_ids) == (two, (topic.ids[2],))
    assert objects() == segment_keys([two]), "the process that resumes it deletes them"
    assert one != two
    assert topic.open.trim(EVERYTHING) == topic.ids[2:3]
    assert objects() == []


def test_a_tier_that_fails_keeps_the_ledger_until_its_objects_are_gone(
    topic, environment, monkeypatch, recorded, objects
):
    topic.offloads.offload(topic.end(1, 2))
    with monkeypatch.context() as broken:

        def fails(*_):
            raise StoreUnavailableError("the store is away")

        broken.setattr(environment.offloads, "delete_cold_copy", fails)
        with pytest.raises(StoreUnavailableError):
            topic.open.trim(EVERYTHING)
    assert [ledger.is_marked_for_deletion for ledger in recorded().in_order] == [True, True, True, False]
    assert topic.read() == topic.payloads[-2:]
    with pytest.raises(AttemptError, match="hot copy is gone"):
        topic.offloads.offload(topic.end(2, 4), begin=topic.end(2, 0))
    assert (
        topic.open.trim(RetentionPolicies(retentionTimeInMinutes=-1, retentionSizeInMB=-1)) == topic.ids[:3]
    )
    assert objects() == []


def test_objects_that_a_ledger_needs_are_not_deleted(topic, environment, objects):
    uuid = topic.offloads.offload(topic.end(1, 1))
    with pytest.raises(AttemptError, match="no ledger needs it"):
        environment.offloads.delete_cold_copy(NAME, segment_key(uuid), None)
    assert objects() == segment_keys([uuid])


@pytest.mark.parametrize("completes", [True, False])
def test_a_topic_is_deleted_with_its_segments_also_one_that_is_not_complete(
    topic, environment, hot, records, audit, completes, objects
):
    uuids = [
        topic.offloads.offload(topic.end(0, 1)),
        topic.offloads.offload(topic.end(1, 2)),
        topic.offloads.offload(topic.end(3, 1), completes=completes),
    ]
    topic.open.delete_hot_copies(0)
    assert delete_managed_ledger(environment, NAME)
    assert (records.read(NAME), objects(), hot.ledger_ids()) == (None, [], [])
    assert sorted(each.uuid for each in audit.deletions if each.copy == "cold") == sorted(uuids)


# --- the way back to ledger-based offload: an old version has all then ---------------------------

LAG_S = 3600


@pytest.fixture
def streamed(topic):
    """Two segments, which end inside the second ledger and with the third; and their uuids."""
    return topic, [
        str(topic.offloads.offload(topic.end(place, entry_id))) for place, entry_id in ((1, 0), (2, 4))
    ]


def plan(topic):
    return plan_rollback(topic.offloads.tier, {parse_topic("acme/cold/orders"): topic.offloads.info})


def roll_back(topic, audit):
    tier, records = topic.offloads.tier, topic.offloads.records
    judged = judge_tier(tier, lambda: release_recorded(records, [], dry_run=False).infos)
    delete_judged(tier, judged, audit, allowed=Allowed(recorded=False))
    return [each.verdict for each in judged]


def as_an_old_version(topic, cold, hot):
    """What a reader finds that knows hot and one-object copies only: a complete record means the latter."""
    found = []
    for ledger in topic.offloads.info.in_order:
        context = ledger.context
        if context is not None and context.complete:
            found += ColdLedger(cold, ledger).entries
        else:
            reader = hot.open(ledger.ledger_id)
            last = (ledger.info.entries or reader.status().entry_count) - 1
            found += [bytes(payload) for payload in reader.read(0, last)]
            reader.close()
    return found


def test_the_whole_way_back(streamed, hot, clock, tmp_path, audit, objects):
    topic, (first, second) = streamed
    assert as_an_old_version(topic, tmp_path / "cold", hot) == topic.payloads, "from the hot copies"
    assert [ledger.ledger_id for ledger in plan(topic).of(Need.RELEASE)] == topic.ids[:3]
    assert roll_back(topic, audit) == [Verdict.FREE, Verdict.FREE]
    assert plan(topic).loses_nothing
    assert as_an_old_version(topic, tmp_path / "cold", hot) == topic.payloads
    assert topic.read() == topic.payloads
    assert list(topic.offloads.tier.list_objects()) == []
    assert sorted(str(each.uuid) for each in audit.deletions) == sorted([first] * 2 + [second] * 2)
    topic.open.offload_prefix(END)
    clock.pass_s(LAG_S)
    assert topic.open.delete_hot_copies(LAG_S) == topic.ids[:3]
    assert plan(topic).loses_nothing
    assert as_an_old_version(topic, tmp_path / "cold", hot) == topic.payloads
    assert topic.read() == topic.payloads
    topic.open.close()
    with open_managed_ledger(topic.environment, NAME) as again:
        topic.open = again
        assert topic.read() == topic.payloads


def test_a_way_back_that_is_broken_off_can_be_gone_forth_again(streamed, clock, audit):
    topic, _ = streamed
    roll_back(topic, audit)
    topic.offloads.offload(EntryPosition(topic.ids[2], 4))
    assert topic.read() == topic.payloads
    assert len(plan(topic).of(Need.RELEASE)) == 3
    clock.pass_s(LAG_S)
    assert topic.open.delete_hot_copies(LAG_S) == topic.ids[:3]
    assert topic.read() == topic.payloads
