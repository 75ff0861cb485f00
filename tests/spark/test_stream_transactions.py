"""Streams and transactions: a query sees what a consumer does that waits, also when it is started anew."""

import logging
import tempfile
from pathlib import Path

import pytest
from effort import effort
from hypothesis import given
from hypothesis import strategies as st
from scenes.transactions import ONE, OTHER, PLAIN, abort, commit, histories, ledger, of, simulate
from streams import PLACE, Query
from tiers import MemoryDriver, Names, numbered, put_object, uuid_of

from offload_core.reading.scan import ScanOptions, Selection, select_catalogue
from offload_core.reading.scan.following import BatchLimit, SettledAdvance, TopicFollower
from offload_core.reading.scan.transactions import TailReader
from offload_core.storage.tier import Tier
from offload_hooks.errors import UnresolvedTransactionError
from pulsar_offload import TierReader, open_tier

pytestmark = pytest.mark.long

STATED = (*PLACE, "__txnState")


def add(root, number, each, topic="orders"):
    """An object comes to the tier, the `number`th."""
    with open_tier(root) as tier:
        names = Names(managed_ledger=f"acme/cold/persistent/{topic}")
        put_object(tier.store, each, uuid_of(number), names=names)


def offset(entry, topic="orders"):
    return {f"persistent://acme/cold/{topic}": {"-1": entry}}


# --- drawn -------------------------------------------------------------------------------------


def arrivals(history):
    """The objects one after another, each with all that is in the tier since it came."""
    found = []
    there = 0
    for objects in history.objects.values():
        for each in objects:
            there += len(each.entries)
            found.append((each, history.in_order[:there]))
    return found


LIMITS = st.lists(st.tuples(st.sampled_from([1, 2, 5, 1000]), st.booleans()), max_size=2)


@effort(0.4)
@given(histories(late=True), st.data())
def test_a_growing_topic_is_read_as_a_broker_serves_it(history, data):
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), isolation="committed")
        for number, (each, there) in enumerate(arrivals(history)):
            add(Path(folder), number, each)
            for limit, restarts in data.draw(LIMITS):
                if restarts:
                    query.restart(maxOffsetsPerTrigger=limit)
                before, count = query.offset, len(query.rows)
                if query.trigger():
                    again = Query(Path(folder))
                    start = again.next_offset()[0] if before is None else before
                    assert again.read(start, query.offset) == query.rows[count:]
            query.run()
            assert query.rows == simulate(there, (0, 0), (99, 0)).committed


@effort(0.2)
@given(histories(late=True))
def test_uncommitted_everything_is_read_at_once_with_what_is_known_then(history):
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), isolation="uncommitted", columns=STATED)
        expected: list[tuple[object, ...]] = []
        for number, (each, there) in enumerate(arrivals(history)):
            add(Path(folder), number, each)
            query.run()
            expected += simulate(there, (0, 0), (99, 0)).uncommitted[len(expected) :]
            assert query.rows == expected


# --- by example --------------------------------------------------------------------------------


def test_a_query_waits_for_a_marker_in_a_later_ledger(tmp_path, caplog):
    add(tmp_path, 1, ledger(1, PLAIN, of(ONE, 2), PLAIN, of(OTHER)))
    query = Query(tmp_path)
    with caplog.at_level(logging.INFO):
        assert query.run() == [(1, 0, -1)]
        assert query.offset == offset("1:1:0")
        assert not query.trigger()
    assert [message for message in caplog.messages if "waits" in message] == [
        "persistent://acme/cold/orders: the stream waits at 1:1 for the outcome of 2 transactions: (0,1) at 1:1, "
        "(0,2) at 1:3"
    ]
    add(tmp_path, 2, ledger(2, PLAIN))
    assert query.run() == []
    add(tmp_path, 3, ledger(3, commit(ONE), PLAIN))
    assert query.run() == [(1, 1, 0), (1, 1, 1), (1, 2, -1)]
    assert query.offset == offset("1:3:0")
    query.restart()
    add(tmp_path, 4, ledger(4, abort(OTHER)))
    assert query.run() == [(2, 0, -1), (3, 1, -1)]
    assert query.offset == offset("5:0:0")


def test_a_topic_that_waits_does_not_hold_up_others(tmp_path):
    add(tmp_path, 1, ledger(1, of(ONE), *[PLAIN] * 5), topic="first")
    add(tmp_path, 2, ledger(2, *[PLAIN] * 3), topic="second")
    query = Query(tmp_path, columns=("__ledgerId", "__entryId"), maxOffsetsPerTrigger=1)
    for entry_id in range(3):
        assert query.trigger()
        assert query.rows[-1] == (2, entry_id)
    assert not query.trigger()
    add(tmp_path, 3, ledger(3, abort(ONE)), topic="first")
    assert query.run() == [(1, entry_id) for entry_id in range(1, 6)]


def test_what_comes_to_an_aborted_transaction_later_does_not_hold_up_the_query(tmp_path):
    add(tmp_path, 1, ledger(1, of(ONE), abort(ONE)))
    query = Query(tmp_path)
    assert query.run() == []
    query.restart()
    add(tmp_path, 2, ledger(2, of(ONE), PLAIN))
    assert query.run() == [(2, 1, -1)]


def test_a_query_may_begin_in_a_transaction(tmp_path):
    add(tmp_path, 1, ledger(1, of(ONE), of(OTHER), of(ONE, 3), abort(OTHER), commit(ONE), PLAIN))
    query = Query(tmp_path, startingOffsets='{"acme/cold/orders": {"-1": "1:2:1"}}')
    assert query.run() == [(1, 2, 1), (1, 2, 2), (1, 5, -1)]


def test_available_now_ends_where_a_transaction_is_open(tmp_path):
    add(tmp_path, 1, ledger(1, PLAIN, of(ONE), PLAIN))
    query = Query(tmp_path)
    query.reader.prepareForTriggerAvailableNow()
    add(tmp_path, 2, ledger(2, commit(ONE)))
    assert query.run() == [(1, 0, -1)]
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert query.run() == [(1, 1, -1), (1, 2, -1)]


def test_a_marker_that_is_gone_when_a_batch_is_planned_again_is_an_error(tmp_path):
    add(tmp_path, 1, ledger(1, PLAIN, of(ONE)))
    add(tmp_path, 2, ledger(2, commit(ONE)))
    query = Query(tmp_path, maxOffsetsPerTrigger=2)
    start, end = query.next_offset()
    assert query.read(start, end) == [(1, 0, -1), (1, 1, -1)]
    for path in tmp_path.glob("*ledger-2*"):
        path.unlink()
    query.restart()
    with pytest.raises(
        UnresolvedTransactionError, match=r"does not end near its entries .*ledger 1, entry 1"
    ):
        query.read(start, end)
    query.restart(isolation="uncommitted")
    assert query.read(start, end) == [(1, 0, -1), (1, 1, -1)]


def test_nothing_is_looked_through_twice(tmp_path):
    objects = [ledger(1, of(ONE), *[PLAIN] * 30), ledger(2, *[PLAIN] * 30), ledger(3, commit(ONE))]
    driver = MemoryDriver(numbered(*objects[:2]), metadata=Names().as_metadata("data"))
    tier = TierReader(Tier(driver))
    follower = TopicFollower(
        lambda known: select_catalogue(tier, Selection(), ScanOptions(), known=known),
        Selection(),
        interval_s=0,
        clock=lambda: 0,
    )
    settled = SettledAdvance(TailReader(tier=tier.store, asked=ScanOptions()))

    def reads():
        """Where the stream waits, and how many requests that took."""
        before = len(driver.reads)
        reached = settled(follower.topics(), {}, BatchLimit(), fail_on_data_loss=True)
        return [str(position) for position in reached.values()], len(driver.reads) - before

    blocks = 2 * 8
    assert reads()[0] == []
    assert len([key for key, _, _ in driver.reads if not key.endswith("-index")]) <= 2 * blocks
    assert reads() == ([], 0)
    driver.objects |= numbered(*objects)
    reached, count = reads()
    assert (reached, count < 6) == (["4:0:0"], True)
