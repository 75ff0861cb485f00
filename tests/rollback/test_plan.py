"""What a rollback would lose: each kind of ledger, by records and without, on objects of Pulsar's own as well."""

import pytest
from golden import STREAMING_CASES, load_case
from hypothesis import given
from hypothesis import strategies as st
from records import closed, failed, segment, still_open, streaming_record
from scenes.rollbacks import NAMELESS, ORDERS, in_one_object, in_segments, put_segment, put_whole, topic
from tiers import lay_out_broker_objects, lay_out_case, put, uuid_of

from offload_core.maintenance.rollback import Coverage, Need, plan_rollback
from offload_core.metadata.records import OffloadContext, release_segments
from offload_core.storage.tier import Tier, open_store
from offload_hooks.errors import AttemptError
from offload_hooks.testing import MemoryDriver


@pytest.fixture
def tier():
    return Tier(MemoryDriver())


def planned(tier, records):
    plan = plan_rollback(tier, records)
    return plan, [ledger for each in plan.topics for ledger in each.streamed]


def test_a_cluster_without_segments_loses_nothing(tier):
    put_whole(tier, 1, 5, 3)
    records = topic(in_one_object(5, 3, 1), closed(6, 4), still_open(7))
    plan, ledgers = planned(tier, records)
    assert (plan.loses_nothing, ledgers, plan.topics[0].ledger_count) == (True, [], 3)
    plan, ledgers = planned(tier, None)
    assert (plan.loses_nothing, ledgers, plan.knows_records) == (True, [], False)


def test_a_ledger_in_segments_only(tier):
    key = put_segment(tier, 1, (5, 0, 3), (6, 0, 4))
    plan, (five, six) = planned(tier, topic(in_segments(5, 3, (1, 2), gone=True), in_segments(6, 4, (1, 3))))
    assert (five.need, five.hot_copy, five.coverage) == (Need.ONLY_COPY, False, Coverage.COMPLETE)
    assert (five.entries, five.size_bytes, five.streamed_entries, five.unseen_entries) == (3, 300, 3, 3)
    assert (six.need, six.hot_copy, six.coverage) == (Need.RELEASE, True, Coverage.COMPLETE)
    assert (six.streamed_entries, six.unseen_entries) == (4, 4)  # old versions take it for one object
    assert five.streamed_bytes + six.streamed_bytes == tier.stat(key.data_key).size_bytes
    assert (five.problems, six.problems) == ((), ())
    assert not plan.loses_nothing
    assert (plan.of(Need.ONLY_COPY), plan.of(Need.FINISH)) == ((five,), ())


def test_a_ledger_that_is_partly_in_segments_is_read_from_bookkeeper_by_old_versions(tier):
    put_segment(tier, 1, (5, 0, 3))
    _, (five,) = planned(tier, topic(in_segments(5, 9, (1, 2), complete=False)))
    assert (five.need, five.coverage) == (Need.RELEASE, Coverage.PARTIAL)
    assert (five.streamed_entries, five.unseen_entries) == (3, 0)


def test_an_open_last_segment_and_an_open_ledger_are_waited_for(tier):
    put_segment(tier, 1, (4, 0, 3), (5, 0, 3))
    last = segment(uuid_of(2), None, complete=False)
    shares = OffloadContext.of_segments([segment(uuid_of(1), 2), last])
    _, ledgers = planned(tier, topic(closed(4, 9, shares), still_open(5, shares)))
    assert [(each.need, each.coverage, each.is_closed) for each in ledgers] == [
        (Need.FINISH, Coverage.PARTIAL, True),
        (Need.FINISH, Coverage.PARTIAL, False),
    ]
    assert [each.problems for each in ledgers] == [(), ()]  # a segment that is on its way is none
    done = OffloadContext.of_segments([segment(uuid_of(1), 2)])
    _, (five,) = planned(tier, topic(still_open(5, done)))
    assert (five.need, five.entries, five.streamed_entries) == (Need.FINISH, None, 3)
    broken = OffloadContext.of_segments([segment(uuid_of(1), 2), failed(last)])
    _, (four,) = planned(tier, topic(closed(4, 9, broken)))
    assert (four.need, four.streamed_entries) == (Need.RELEASE, 3)


def test_a_condemned_ledger_needs_nothing(tier):
    shares = [segment(uuid_of(1), 2, complete=False)]
    context = OffloadContext.of_segments(shares, bookkeeper_deleted=True)
    plan, (five,) = planned(tier, topic(closed(5, 3, context)))
    assert (five.need, five.coverage, five.unseen_entries) == (Need.NOTHING, Coverage.CONDEMNED, 0)
    assert plan.loses_nothing


def test_a_segment_that_the_tier_does_not_have_and_entries_in_no_copy_are_named(tier):
    put_segment(tier, 2, (5, 3, 3), parts=["data"])
    record = in_segments(5, 9, (1, 2), (2, 5), gone=True)
    _, (five,) = planned(tier, topic(record))
    missing, no_index, in_none = five.problems
    assert missing.startswith(f"{uuid_of(1)}: its record says that")
    assert no_index == f"{uuid_of(2)}: the data object has no index: an attempt that did not finish"
    assert in_none == "by its record entries from 6 on are in no copy"
    assert five.streamed_bytes == 0


def test_a_record_and_a_tier_that_disagree_on_the_format(tier):
    put_whole(tier, 1, 5, 3)
    _, (five,) = planned(tier, topic(in_segments(5, 3, (1, 2), gone=True)))
    (problem,) = five.problems
    assert problem.endswith("the formats differ: streaming by its record, pip17 by its key")
    assert (five.need, five.streamed_bytes) == (Need.ONLY_COPY, 0)


def test_without_records_what_is_hot_is_not_known(tier):
    put_segment(tier, 1, (5, 0, 3), (6, 0, 4))
    put_whole(tier, 2, 6, 4)
    put_whole(tier, 3, 7, 4)
    plan, (five, six) = planned(tier, None)
    assert (five.ledger_id, five.need, five.hot_copy, five.one_object) == (5, Need.UNKNOWN, None, False)
    assert (six.ledger_id, six.one_object, six.unseen_entries) == (6, True, None)
    assert (plan.topics[0].name, plan.topics[0].ledger_count) == (ORDERS, 3)
    assert (plan.loses_nothing, plan.unread) == (False, 0)


def test_without_records_an_object_whose_ledgers_are_not_known_is_counted(tier):
    put_segment(tier, 1, (5, 0, 3), parts=["data"])
    plan, ledgers = planned(tier, None)
    assert (ledgers, plan.unread, plan.loses_nothing) == ([], 1, False)


def test_pulsars_own_streaming_objects(tmp_path):
    for name in STREAMING_CASES:
        lay_out_case(tmp_path, "streaming", name)
    lay_out_broker_objects(tmp_path, ["json"])
    entries = [entry for name in STREAMING_CASES for entry in load_case("streaming", name).entries]
    with open_store(tmp_path) as store:
        _, ledgers = planned(store, {ORDERS: streaming_record()})
        bucket = plan_rollback(store)
    ids = {entry.ledger_id for entry in entries}
    assert {ledger.ledger_id for ledger in ledgers} == ids
    assert sum(ledger.streamed_entries or 0 for ledger in ledgers) == len(entries)
    assert {ledger.need for ledger in ledgers} == {Need.RELEASE}
    assert all(not ledger.problems and ledger.coverage is Coverage.COMPLETE for ledger in ledgers)
    by_bucket = {ledger.ledger_id: ledger for each in bucket.topics for ledger in each.streamed}
    assert set(by_bucket) == ids
    assert {by_bucket[each.ledger_id].streamed_bytes == each.streamed_bytes for each in ledgers} == {True}


def test_objects_that_only_look_like_streaming_ones_are_none(tier):
    for part in ("", "-index"):
        put(tier, f"{uuid_of(1)}{part}", b"something else", NAMELESS.as_metadata("data"))
    plan, ledgers = planned(tier, None)
    assert (ledgers, plan.unread, plan.loses_nothing) == ([], 0, True)


SHARES = st.lists(
    st.tuples(st.sampled_from(["offloaded", "assigned", "failed"]), st.booleans(), st.integers(1, 3)),
    max_size=3,
)


@st.composite
def recorded_ledgers(draw):
    """A ledger with segments in any state, closed or not, its hot copy there or not, in either layout's words."""
    shares, stop = [], 0
    for number, (status, deleted, count) in enumerate(draw(SHARES)):
        stop += count
        share = segment(uuid_of(number), stop - 1, complete=status == "offloaded", bookkeeper_deleted=deleted)
        shares.append(failed(share) if status == "failed" else share)
    entries = stop + draw(st.integers(0, 2))
    flags = {name: draw(st.booleans()) for name in ("complete", "bookkeeper_deleted")}
    context = OffloadContext.of_segments(shares, **flags) if shares else None
    return closed(5, entries, context) if draw(st.booleans()) else still_open(5, context)


@given(ledger=recorded_ledgers())
def test_what_is_to_be_released_can_be_and_nothing_else(ledger):
    records = topic(ledger)
    tier = Tier(MemoryDriver())
    _, ledgers = planned(tier, records)
    if not ledgers:
        assert ledger.context is None
    elif ledgers[0].need is Need.RELEASE:
        released = release_segments(records[ORDERS], 5)
        assert plan_rollback(tier, {ORDERS: released}).loses_nothing
    else:
        with pytest.raises(AttemptError):
            release_segments(records[ORDERS], 5)
