"""Ranges of publish times: the rows are exactly those of the range, and little else is read."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from entries import PUBLISH_TIME_MS, LedgerPart, batch_entry, entry, pip17_object, streaming_object
from hypothesis import given
from hypothesis import strategies as st
from mapfiles import FILESYSTEM_TOPICS, lay_out_golden
from tiers import TOPIC, in_memory, lay_out, lay_out_broker_objects

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position
from offload_core.reading.scan.pruning import PROBE_BYTES
from offload_hooks.errors import DataLossError, FormatError, OptionError
from pulsar_offload import open_tier, scan

NAME = TopicName(TOPIC)
T0 = PUBLISH_TIME_MS
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(time):
    return (time - EPOCH) // timedelta(milliseconds=1)


def at(ms, payload=b"x", **options):
    return entry(payload, publish_time=T0 + ms, **options)


def read(tier, begin, end, **options):
    table = scan(
        tier,
        columns=["__ledgerId", "__entryId"],
        start_time=None if begin is None else T0 + begin,
        stop_time=None if end is None else T0 + end,
        **options,
    ).to_table()
    return list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def reads_of(tier):
    reads: list[tuple[str, int, int]] = tier.store._chain._plugins[0].reads
    return reads


# --- rows --------------------------------------------------------------------------------------


@st.composite
def topics(draw):
    """Ledgers of several formats, with the times of their entries: each at most `slack` older than any before it."""
    slack = draw(st.integers(0, 30))
    rng = random.Random(draw(st.integers(0, 2**32)))
    clock, objects, facts = 0, [], []
    for ledger_id in range(draw(st.integers(1, 6))):
        times = []
        for _ in range(draw(st.integers(1, 25))):
            clock += rng.choice((0, 0, 1, 10, 40))
            times.append(clock - rng.randint(0, slack))
        facts += [(ledger_id, i, time) for i, time in enumerate(times)]
        payloads = [at(time, b"x" * rng.choice((1, 50, 300))) for time in times]
        if rng.random() < 0.5:
            objects.append(pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=600))
        else:
            cut = rng.randint(0, len(payloads) - 1)
            for first, part in ((0, payloads[:cut]), (cut, payloads[cut:])):
                if part:
                    blocks = [part[i : i + 3] for i in range(0, len(part), 3)]
                    objects.append(
                        streaming_object(
                            [LedgerPart(ledger_id=ledger_id, blocks=blocks, first_entry_id=first)]
                        )
                    )
    return objects, facts, slack


@given(
    topic=topics(),
    start=st.none() | st.integers(-50, 1500),
    length=st.none() | st.integers(0, 500),
    min_partitions=st.integers(1, 6),
    ranges_ahead=st.sampled_from([0, 3]),
)
def test_the_rows_are_those_of_the_range(topic, start, length, min_partitions, ranges_ahead):
    objects, facts, slack = topic
    stop = None if length is None else (start or 0) + length
    tier = in_memory(*objects, range_bytes=512, ranges_ahead=ranges_ahead)
    expected = [
        (ledger_id, entry_id)
        for ledger_id, entry_id, time in facts
        if (start is None or time >= start) and (stop is None or time < stop)
    ]
    assert read(tier, start, stop, time_slack_ms=slack, min_partitions=min_partitions) == expected


def ordered(ledgers, entries, **options):
    """A message each 10 ms, `entries` to a ledger, about 4 to a block."""
    return in_memory(
        *(
            pip17_object(
                [at(10 * (number * entries + i), b"x" * 100) for i in range(entries)],
                ledger_id=number,
                max_block_bytes=700,
            )
            for number in range(ledgers)
        ),
        **options,
    )


def test_a_start_is_inclusive_and_a_stop_is_exclusive():
    tier = ordered(3, 10)
    assert read(tier, 120, 150) == [(1, 2), (1, 3), (1, 4)]
    assert read(tier, 280, None) == [(2, 8), (2, 9)]
    assert read(tier, None, 10) == [(0, 0)]
    assert read(tier, 120, 120) == read(tier, 120, 100) == []


def test_times_and_positions_together_give_the_rows_that_are_in_both():
    tier = ordered(3, 10)
    first = read(tier, 50, 150, start={NAME: Position(0, 8)}, stop={NAME: Position(1, 2)})
    assert first == [(0, 8), (0, 9), (1, 0), (1, 1)]
    assert read(tier, 50, 150, start={NAME: Position(2, 0)}) == []


def test_times_with_a_zone_are_taken_as_they_are():
    tier = ordered(1, 10)
    zone = timezone(timedelta(hours=5))
    start = (EPOCH + timedelta(milliseconds=T0 + 70)).astimezone(zone)
    table = scan(tier, columns=["__entryId", "__publishTime"], start_time=start).to_table()
    assert table["__entryId"].to_pylist() == [7, 8, 9]
    assert [milliseconds(time) - T0 for time in table["__publishTime"].to_pylist()] == [70, 80, 90]
    later = start + timedelta(microseconds=1)
    assert scan(tier, columns=["__entryId"], start_time=later).to_table().num_rows == 2
    assert scan(tier, columns=["__entryId"], stop_time=later).to_table().num_rows == 8


def test_batches_are_chosen_by_their_entrys_time():
    payloads = [batch_entry([b"%d:%d" % (i, j) for j in range(3)], publish_time=T0 + i) for i in range(4)]
    tier = in_memory(pip17_object(payloads))
    table = scan(tier, columns=["value"], start_time=T0 + 1, stop_time=T0 + 2).to_table()
    assert table["value"].to_pylist() == [b"1:0", b"1:1", b"1:2"]


def test_a_message_older_than_those_before_it_is_found_within_the_slack():
    late = [at(10 * i, b"x" * 100) for i in range(40)]
    late[20] = at(20, b"x" * 100)  # 170 ms older than the one before it
    tier = in_memory(pip17_object(late, max_block_bytes=300))
    assert read(tier, 15, 25, time_slack_ms=170) == [(7, 2), (7, 20)]
    assert read(tier, 15, 25) == [(7, 2), (7, 20)]  # by default it is a minute
    assert read(tier, 15, 25, time_slack_ms=0) == [(7, 2)]


def test_one_message_of_a_wrong_clock_does_not_end_a_range():
    payloads = [at(10**9 if i == 3 else 10 * i) for i in range(10)]
    tier = in_memory(pip17_object(payloads))
    assert read(tier, None, 60, time_slack_ms=0) == [(7, i) for i in (0, 1, 2, 4, 5)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("stored", "topic"),
    [("s3", topic) for topic in ("batch", "nobatch", "txn", "comp-lz4")]
    + [("filesystem", topic) for topic in FILESYSTEM_TOPICS],
)
def test_golden_topics_give_the_rows_of_the_range(tmp_path, stored, topic):
    if stored == "s3":
        lay_out_broker_objects(tmp_path, topics=[topic])
    else:
        lay_out_golden(tmp_path)
    with open_tier(tmp_path) as tier:
        whole = scan(tier, f"acme/cold/{topic}", columns=["__messageId", "__publishTime"]).to_table()
        times = [milliseconds(time) for time in whole["__publishTime"].to_pylist()]
        start, stop = sorted(times)[len(times) // 3], sorted(times)[len(times) // 2] + 1
        found = scan(
            tier,
            f"acme/cold/{topic}",
            columns=["__messageId", "__publishTime"],
            start_time=start,
            stop_time=stop,
            time_slack_ms=0,
        ).to_table()
    assert found.num_rows > 0
    assert found.to_pylist() == [
        row for row, time in zip(whole.to_pylist(), times, strict=True) if start <= time < stop
    ]


# --- what is read ------------------------------------------------------------------------------


def test_planning_probes_a_number_of_blocks_that_grows_with_the_logarithm():
    probes = []
    for ledgers in (16, 256):
        tier = ordered(ledgers, 16)
        middle = 10 * 16 * ledgers // 2
        scan(tier, start_time=T0 + middle, stop_time=T0 + middle + 20, time_slack_ms=0)
        probes.append(sum(not key.endswith("-index") for key, _, _ in reads_of(tier)))
    assert probes[1] <= probes[0] + 2 * 4 + 2 <= 40


def test_blocks_that_cannot_hold_the_range_are_not_fetched():
    tier = ordered(100, 16)
    reading = scan(tier, columns=["__entryId"], start_time=T0 + 8000, stop_time=T0 + 8040, time_slack_ms=0)
    assert reading.data_bytes <= 3 * 700
    planned = len(reads_of(tier))
    assert reading.to_table()["__entryId"].to_pylist() == [0, 1, 2, 3]
    assert sum(length for _, _, length in reads_of(tier)[planned:]) <= 3 * 700


@pytest.mark.parametrize("ranges_ahead", [0, 8])
def test_a_block_in_which_the_range_ends_is_not_read_to_its_end(ranges_ahead):
    payloads = [at(10 * i, b"x" * 1000) for i in range(1000)]
    tier = in_memory(pip17_object(payloads), range_bytes=10_000, ranges_ahead=ranges_ahead)
    reading = scan(tier, columns=["__entryId"], stop_time=T0 + 1005, time_slack_ms=0)
    planned = len(reads_of(tier))
    assert reading.to_table()["__entryId"].to_pylist() == list(range(101))
    assert sum(length for _, _, length in reads_of(tier)[planned:]) < 150_000


def test_the_topics_of_a_task_end_each_by_its_own_time():
    one = [at(10 * i, b"x" * 100) for i in range(50)]
    tier = in_memory(*(pip17_object(one, ledger_id=i, max_block_bytes=700) for i in range(2)))
    assert [ledger for ledger, _ in read(tier, None, 20, time_slack_ms=0)] == [0, 0]


def test_a_first_entry_larger_than_a_probe_tells_its_time():
    large = b"x" * (PROBE_BYTES + 1)
    tier = in_memory(pip17_object([at(10 * i, large) for i in range(64)], max_block_bytes=2 * PROBE_BYTES))
    reading = scan(tier, columns=["__entryId"], start_time=T0 + 300, stop_time=T0 + 310, time_slack_ms=0)
    assert len(reading.planned[0].extents[0].blocks) <= 2
    assert {length for key, _, length in reads_of(tier) if not key.endswith("-index")} == {PROBE_BYTES}
    assert reading.to_table()["__entryId"].to_pylist() == [30]


def test_metadata_larger_than_a_probe_is_read_on():
    properties = [("key", "v" * PROBE_BYTES)]
    payloads = [at(10 * i, properties=properties) for i in range(32)]
    tier = in_memory(pip17_object(payloads, max_block_bytes=2 * PROBE_BYTES))
    reading = scan(tier, columns=["__entryId"], start_time=T0 + 160, stop_time=T0 + 170, time_slack_ms=0)
    assert len(reading.planned[0].extents[0].blocks) <= 2
    assert reading.to_table()["__entryId"].to_pylist() == [16]


# --- what does not tell, what is missing -------------------------------------------------------


def test_a_block_that_does_not_tell_its_time_cuts_nothing_off():
    payloads = [b"no entry of Pulsar's" if i % 4 == 0 else at(10 * i, b"x" * 150) for i in range(64)]
    tier = in_memory(pip17_object(payloads, max_block_bytes=700))
    reading = scan(tier, columns=["__entryId"], start_time=T0 + 300, stop_time=T0 + 310, time_slack_ms=0)
    with pytest.raises(FormatError):  # what is read is not right, and says so
        reading.to_table()


def test_damage_outside_the_range_is_not_looked_at():
    written = pip17_object([at(10 * i, b"x" * 150) for i in range(64)], max_block_bytes=700)
    damaged = bytearray(written.data)
    damaged[-20] ^= 1
    tier = in_memory(replace(written, data=bytes(damaged)))
    assert read(tier, 100, 120, time_slack_ms=0) == [(7, 10), (7, 11)]
    with pytest.raises(FormatError):
        read(tier, 100, None, time_slack_ms=0)


def with_a_lost_ledger(root):
    """Ten ledgers of ten messages, of which number 5 has no index."""
    for number in range(10):
        written = pip17_object([at(10 * (10 * number + i)) for i in range(10)], ledger_id=number)
        lay_out(root, written, attempt=number, parts=["data"] if number == 5 else ["data", "index"])
    return open_tier(root)


def test_a_lost_ledger_outside_the_range_is_no_loss(tmp_path):
    tier = with_a_lost_ledger(tmp_path)
    assert len(read(tier, 100, 200, time_slack_ms=0)) == 10
    assert len(read(tier, 700, 800, time_slack_ms=0)) == 10


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("start", "stop"), [(480, 520), (510, 520), (510, None), (None, 605)])
def test_a_lost_ledger_that_may_be_in_the_range_is_an_error(tmp_path, start, stop):
    with pytest.raises(DataLossError) as caught:
        read(with_a_lost_ledger(tmp_path), start, stop, time_slack_ms=0)
    assert caught.value.ledger_id == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_time": datetime(2024, 1, 1)}, "start_time has no zone"),
        ({"stop_time": "2024-01-01T00:00:00"}, "stop_time has no zone"),
        ({"start_time": "yesterday"}, "start_time is not a time"),
        ({"start_time": 1.5}, "start_time is not a time: .* found 1.5"),
        ({"stop_time": T0, "time_slack_ms": -1}, "the slack of times is negative"),
        ({"stop_time": T0, "level": "entries"}, "a range of times is for messages"),
    ],
)
def test_times_that_are_none_are_refused(options, message):
    with pytest.raises(OptionError, match=message):
        scan(ordered(1, 1), **options)
