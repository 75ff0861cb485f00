"""Transactions and what is asked for of a topic: conditions, times, chunked messages that the first open one cuts."""

from datetime import UTC, datetime, timedelta

import pytest
from entries import entry, marker, pip17_object
from hypothesis import given
from hypothesis import strategies as st
from scenes.messages import SentMessage, interleaved
from scenes.transactions import ONE, PLAIN, commit, of
from tiers import TOPIC, in_memory

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Condition, Operator, Position, read_task
from pulsar_offload import scan

IN_ONE, COMMIT = of(ONE), commit(ONE)
T0 = 1_700_000_000_000


def tier_of(*ledgers):
    """Ledgers 1, 2, …, a few entries a block; entries are published a ms apart, from `T0` on."""
    objects, count = [], 0
    for ledger_id, events in enumerate(ledgers, start=1):
        payloads = [event.pack(count + i) for i, event in enumerate(events)]
        objects.append(pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=400))
        count += len(events)
    return in_memory(*objects)


def rows(planned):
    """Of the scan itself, and the same of its tasks."""
    found = [tuple(row.values()) for row in planned.to_table().to_pylist()]
    batches = [batch for task in planned.tasks for batch in read_task(planned.tier, task, planned.options)]
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == found
    return found


def places(tier, **options):
    return rows(scan(tier, TOPIC, columns=["__ledgerId", "__entryId"], **options))


def time_of(ms):
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


LEDGER_2 = Condition(column="__ledgerId", operator=Operator.EQUAL, value=2)


def test_a_condition_gives_no_rows_that_the_whole_topic_does_not_have():
    """A transaction is open in a ledger that the condition leaves out, and hides all behind it."""
    is_open, is_settled = [PLAIN, IN_ONE], [PLAIN, IN_ONE, COMMIT]
    assert places(tier_of(is_open, [PLAIN]), conditions=[LEDGER_2]) == []
    assert places(tier_of(is_settled, [PLAIN]), conditions=[LEDGER_2]) == [(2, 0)]
    assert places(tier_of(is_open, [PLAIN]), conditions=[LEDGER_2], isolation="uncommitted") == [(2, 0)]


def test_conditions_begin_where_the_range_does():
    tier = tier_of([PLAIN, IN_ONE, PLAIN], [PLAIN])
    start = {TopicName(TOPIC): Position(1, 2)}
    assert places(tier, start=start, conditions=[LEDGER_2]) == [(2, 0)]


@given(
    st.lists(st.sampled_from([PLAIN, PLAIN, IN_ONE, COMMIT]), min_size=1, max_size=30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.booleans(),
)
def test_conditions_and_times_choose_from_what_a_consumer_sees(events, first, last, by_option):
    half = len(events) // 2
    tier = tier_of(*(part for part in (events[:half], events[half:]) if part))
    columns = ["__ledgerId", "__entryId", "__publishTime"]
    whole = rows(scan(tier, TOPIC, columns=columns))
    wanted = [row for row in whole if time_of(T0 + first) <= row[2] < time_of(T0 + last)]
    if by_option:
        times = {"start_time": T0 + first, "stop_time": T0 + last, "time_slack_ms": 0}
        found = rows(scan(tier, TOPIC, columns=columns, **times))
        assert set(wanted) <= set(
            found
        )  # the range begins where the times do: a transaction before may be open
        return
    conditions = [
        Condition(column="__publishTime", operator=Operator.GREATER_OR_EQUAL, value=time_of(T0 + first)),
        Condition(column="__publishTime", operator=Operator.LESS, value=time_of(T0 + last)),
    ]
    found = rows(scan(tier, TOPIC, columns=columns, conditions=conditions, time_slack_ms=0))
    assert [row for row in found if row in wanted] == wanted
    assert set(found) <= set(whole)


# --- chunked messages --------------------------------------------------------------------------


def message(number=0, **fields):
    return SentMessage(
        producer=f"p{number}", number=number, value=b"value %d " % number * 5, chunks=4, **fields
    )


def values(entries, *, block_bytes=300, **options):
    tier = in_memory(pip17_object(entries, ledger_id=1, max_block_bytes=block_bytes))
    planned = scan(tier, TOPIC, columns=["value"], **options)
    return [value for (value,) in rows(planned)]


@pytest.mark.parametrize("tasks", [1, 30])
def test_a_message_whose_last_chunk_lies_behind_an_open_transaction_is_not_lost(tasks):
    """As for a consumer it has not come yet, however much there is behind."""
    chunks = [each.payload for each in interleaved([message()], ())]
    is_open = entry(b"x", txnid_most_bits=0, txnid_least_bits=1)
    others = [entry(b"%d" % i * 50) for i in range(40)]
    stored = [entry(b"first"), *chunks[:2], is_open, *chunks[2:], *others]
    options = {"min_partitions": tasks, "block_bytes": 1500}
    assert values(stored, chunk_look_back_bytes=400, **options) == [b"first"]
    settled = [*stored, marker(21, txnid_most_bits=0, txnid_least_bits=1)]
    found = values(settled, chunk_look_back_bytes=400, **options)
    assert found[:3] == [b"first", b"x", message().value]


@pytest.mark.parametrize(("outcome", "is_read"), [(21, True), (22, False)])
@pytest.mark.parametrize("tasks", [1, 30])
@pytest.mark.parametrize("start", range(4))
def test_a_range_may_begin_in_a_chunked_message_of_a_transaction(outcome, is_read, tasks, start):
    chunks = [each.payload for each in interleaved([message(transaction=ONE)], ())]
    stored = [*chunks, marker(outcome, txnid_most_bits=0, txnid_least_bits=1), entry(b"last")]
    found = values(stored, min_partitions=tasks, start={TopicName(TOPIC): Position(1, start)})
    assert found == ([message().value] if is_read else []) + [b"last"]


@pytest.mark.parametrize("tasks", [1, 30])
def test_a_chunked_message_is_of_the_time_of_its_last_chunk(tasks):
    """Its other chunks may lie outside of the range, and outside of the blocks that are read for it."""
    early = [message(i, published_at=T0 + i) for i in range(3)]
    stored = []
    for number, each in enumerate(early):
        first, *rest = (chunk.payload for chunk in interleaved([each], ()))
        later = [chunk.payload for chunk in interleaved([message(number, published_at=T0 + 5000)], ())][1:]
        stored += [first, *(rest if number == 0 else later)]
    times = {"time_slack_ms": 10_000, "min_partitions": tasks}
    assert values(stored, start_time=T0 + 1000, **times) == [early[1].value, early[2].value]
    assert values(stored, stop_time=T0 + 1000, **times) == [early[0].value]


@pytest.mark.parametrize("tasks", [1, 30])
def test_times_that_leave_out_the_first_chunks_blocks_give_the_message(tasks):
    first, *rest = (chunk.payload for chunk in interleaved([message(published_at=T0)], ()))
    last = [chunk.payload for chunk in interleaved([message(published_at=T0 + 90_000)], ())][3]
    between = [entry(b"x" * 50, publish_time=T0 + 1000 * i) for i in range(80)]
    stored = [first, *rest[:2], *between, last]
    found = values(stored, start_time=T0 + 85_000, time_slack_ms=0, min_partitions=tasks)
    assert found == [message().value]
