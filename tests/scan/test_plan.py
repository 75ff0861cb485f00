"""From positions to tasks: what is asked for is read, once, in order, by tasks that can travel."""

import pickle
from dataclasses import replace
from typing import Any

import pytest
from effort import effort
from entries import LedgerPart, WrittenObject, batch_entry, entry, marker, pip17_object, streaming_object
from hypothesis import given
from hypothesis import strategies as st
from tiers import TOPIC, in_memory, uuid_of

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position, ScanExtent, ScanLedger, ScanTask, parse_position, read_task
from offload_core.reading.scan.plan import Bounds, plan_tasks
from offload_hooks.errors import OptionError
from pulsar_offload import scan

NAME = TopicName(TOPIC)


def some_entries(ledger_id, first, stop):
    """Every third a batch of three, every seventh a marker, the others single messages."""
    made = []
    for i in range(first, stop):
        text = b"%d:%d" % (ledger_id, i)
        if i % 7 == 6:
            made.append(marker())
        elif i % 3 == 1:
            made.append(batch_entry([text + b":%d" % j for j in range(3)]))
        else:
            made.append(entry(text))
    return made


def part(ledger_id, first, *stops):
    """A ledger's part from `first` on, a block up to each of `stops`."""
    starts = [first, *stops[:-1]]
    blocks = [some_entries(ledger_id, start, stop) for start, stop in zip(starts, stops, strict=True)]
    return LedgerPart(ledger_id=ledger_id, blocks=blocks, first_entry_id=first)


OBJECTS: tuple[WrittenObject, ...] = (
    pip17_object(some_entries(3, 0, 17), ledger_id=3, max_block_bytes=500),
    streaming_object([part(5, 0, 2, 6)]),  # of ledger 5 entry 5 is in two segments; each ends with a batch
    streaming_object([part(5, 5, 6, 8)]),
    streaming_object([part(6, 0, 3), part(5, 8, 10, 12), part(8, 0, 1, 4)]),
    pip17_object(some_entries(9, 0, 5), ledger_id=9),
)
LEDGERS = {3: 17, 5: 12, 6: 3, 8: 4, 9: 5}
TIER = in_memory(*OBJECTS)
(ORDERS,) = TIER.catalogue().topics
FULL: dict[str, list[dict[str, Any]]] = {
    level: scan(TIER, level=level).to_table().to_pylist() for level in ("messages", "entries")
}


def place(row):
    return Position(row["__ledgerId"], row["__entryId"], max(row.get("__batchIndex", 0), 0))


def test_a_full_scan_reads_every_entry_once_and_in_order():
    expected = [(ledger_id, i) for ledger_id, entries in LEDGERS.items() for i in range(entries)]
    assert [(row["__ledgerId"], row["__entryId"]) for row in FULL["entries"]] == expected
    payloads = {
        (ledger_id, entry_id): payload for each in OBJECTS for ledger_id, entry_id, payload in each.entries
    }
    assert [row["value"] for row in FULL["entries"]] == [payloads[at] for at in expected]
    assert {row["__topic"] for row in FULL["entries"]} == {TOPIC}


def test_a_full_scan_reads_every_message_once_and_in_order():
    expected = []
    for ledger_id, entries in LEDGERS.items():
        for i in range(entries):
            batched = i % 3 == 1 and i % 7 != 6
            if i % 7 != 6:
                expected += (
                    [b"%d:%d:%d" % (ledger_id, i, j) for j in range(3)]
                    if batched
                    else [b"%d:%d" % (ledger_id, i)]
                )
    assert [row["value"] for row in FULL["messages"]] == expected


def test_the_topic_that_is_planned_has_what_the_tests_are_about():
    assert [len(ledger.extents) for ledger in ORDERS.ledgers] == [1, 3, 1, 1, 1]
    assert [[len(extent.ledger.blocks) for extent in ledger.extents] for ledger in ORDERS.ledgers] == [
        [3],
        [2, 2, 2],
        [1],
        [2],
        [1],
    ]


# --- bounds ------------------------------------------------------------------------------------

_ledgers = st.sampled_from(sorted(LEDGERS))
_starts = st.one_of(
    st.sampled_from(["earliest", "latest"]),
    st.builds(Position, _ledgers, st.integers(0, 18), st.integers(0, 4)),
)
_stops = st.one_of(
    st.sampled_from(["earliest", "latest"]),
    st.builds(Position, _ledgers, st.integers(0, 18), st.integers(0, 4)),
    st.builds(
        Position, st.integers(0, 10), st.just(0)
    ),  # inside a ledger that is not there it would be data loss
)


def within(row, level, start, stop):
    """Start inclusive, stop exclusive; at level `entries` an entry counts if any of its messages does."""
    at = place(row)
    if start == "latest" or stop == "earliest":
        return False
    if isinstance(start, Position) and isinstance(stop, Position) and start >= stop:
        return False
    if isinstance(start, Position):
        first = start if level == "messages" else Position(start.ledger_id, start.entry_id)
        if at < first:
            return False
    return not isinstance(stop, Position) or at < stop


@effort(2)
@given(
    level=st.sampled_from(["messages", "entries"]),
    start=_starts,
    stop=_stops,
    min_partitions=st.integers(1, 20),
)
def test_bounds_give_the_rows_between_them(level, start, stop, min_partitions):
    bounds = Bounds(start={NAME: start}, stop={NAME: stop})
    reading = scan(TIER, level=level, start=bounds.start, stop=bounds.stop, min_partitions=min_partitions)
    assert reading.to_table().to_pylist() == [row for row in FULL[level] if within(row, level, start, stop)]


@pytest.mark.parametrize(
    ("start", "stop", "values"),
    [
        ("3:1:1", "3:1:2", [b"3:1:1"]),
        ("3:1:2", "3:3", [b"3:1:2", b"3:2"]),
        ("3:1:3", "3:2", []),
        ("3:0", "3:1:1", [b"3:0", b"3:1:0"]),
        ("3:2:1", "3:4:1", [b"3:3", b"3:4:0"]),
        ("3:15", "5:1", [b"3:15", b"3:16:0", b"3:16:1", b"3:16:2", b"5:0"]),
        ("3:17", "5:1", [b"5:0"]),
        ("5:4", "5:8:1", [b"5:4:0", b"5:4:1", b"5:4:2", b"5:5", b"5:7:0", b"5:7:1", b"5:7:2", b"5:8"]),
        ("3:2", "3:2", []),
        ("3:5", "3:2", []),
        ("5:0", "3:5", []),
    ],
)
def test_a_start_is_inclusive_and_a_stop_is_exclusive(start, stop, values):
    bounds = {"start": {NAME: parse_position(start)}, "stop": {NAME: parse_position(stop)}}
    assert scan(TIER, columns=["value"], **bounds).to_table()["value"].to_pylist() == values


@pytest.mark.parametrize("option", ["start", "stop"])
def test_bounds_of_a_topic_that_is_not_read_are_refused(option):
    other = TopicName("persistent://acme/cold/other")
    with pytest.raises(OptionError, match=f"{option} names a topic that is not read") as caught:
        scan(TIER, **{option: {other: Position(3, 0)}})
    assert caught.value.found == "persistent://acme/cold/other"


def test_blocks_that_are_not_asked_for_are_not_fetched():
    reading = scan(TIER, start={NAME: Position(5, 7)}, stop={NAME: Position(5, 10)})
    (task,) = reading.planned
    fetched = [(run.data_key[-1], [block.first_entry_id for block in run.blocks]) for run in task.extents]
    assert fetched == [("2", [6]), ("3", [8])]
    assert reading.data_bytes == task.data_bytes == 1024


# --- tasks -------------------------------------------------------------------------------------


def blocks_of(tasks):
    return [(run.data_key, block.offset) for task in tasks for run in task.extents for block in run.blocks]


@given(min_partitions=st.integers(-1, 40), task_bytes=st.integers(1, 20_000))
def test_tasks_cover_each_block_once_and_in_order(min_partitions, task_bytes):
    whole = plan_tasks(TIER.store, [ORDERS], Bounds())
    tasks = plan_tasks(TIER.store, [ORDERS], Bounds(), min_partitions=min_partitions, task_bytes=task_bytes)
    assert len(whole) == 1
    assert blocks_of(tasks) == blocks_of(whole)
    assert len(set(blocks_of(tasks))) == 13
    assert all(task.extents and all(run.blocks for run in task.extents) for task in tasks)
    for task in tasks:
        assert task.data_bytes <= task_bytes or sum(len(run.blocks) for run in task.extents) == 1
    assert len(tasks) >= min(min_partitions, 9)


def test_a_large_ledger_is_split_between_its_blocks():
    blocks = [[entry(b"x" * 100)] * 2] * 20
    tier = in_memory(streaming_object([LedgerPart(ledger_id=7, blocks=blocks)]))
    reading = scan(tier, min_partitions=4)
    assert [sum(len(run.blocks) for run in task.extents) for task in reading.planned] == [5, 5, 5, 5]
    assert [task.extents[0].next_entry_id for task in reading.planned] == [10, 20, 30, None]
    assert all(run.payload_bytes is None for task in reading.planned for run in task.extents)


def test_small_ledgers_share_a_task():
    tier = in_memory(*(pip17_object([entry(b"x")], ledger_id=i) for i in range(6)))
    (task,) = scan(tier).planned
    assert [run.ledger_id for run in task.extents] == [0, 1, 2, 3, 4, 5]
    assert [len(task.extents) for task in scan(tier, min_partitions=3).planned] == [2, 2, 2]


def test_a_scan_of_nothing_has_no_tasks_and_an_empty_table_with_all_columns():
    reading = scan(TIER, start="latest")
    assert (reading.planned, reading.data_bytes) == ((), 0)
    assert reading.to_table().num_rows == 0
    assert reading.to_table().schema == scan(TIER).schema


def test_tasks_survive_pickling_and_are_read_alike():
    reading = scan(TIER, min_partitions=5, start={NAME: Position(3, 1, 1)}, stop={NAME: Position(9, 4, 2)})
    tasks: tuple[ScanTask, ...]
    tasks, options = pickle.loads(pickle.dumps((reading.planned, reading.options)))
    assert (tasks, options) == (reading.planned, reading.options)
    rows = [
        row for task in tasks for batch in read_task(TIER.store, task, options) for row in batch.to_pylist()
    ]
    assert rows == reading.to_table().to_pylist() != []


def test_a_task_is_small_on_its_way():
    assert max(len(pickle.dumps(task)) for task in scan(TIER, min_partitions=20).planned) < 2500


def reads_of(tier):
    reads: list[tuple[str, int, int]] = tier.store._chain._plugins[0].reads
    return reads


def keys_read(tier):
    return [key for key, _, _ in reads_of(tier)]


STREAMING_INDEXES = [f"{uuid_of(i)}-index" for i in (1, 2, 3)]


def test_planning_reads_only_the_indexes_that_say_which_ledgers_there_are():
    tier = in_memory(*OBJECTS)
    reading = scan(tier)
    assert sorted(keys_read(tier)) == STREAMING_INDEXES
    assert [type(run) for task in reading.planned for run in task.extents] == [
        ScanLedger,
        *[ScanExtent] * 5,
        ScanLedger,
    ]


@pytest.mark.parametrize(
    ("cut", "read"),
    [
        ({"start": {NAME: Position(3, 2)}}, [3]),
        ({"stop": {NAME: Position(9, 2)}}, [9]),
        ({"start": {NAME: Position(3, 0)}}, []),
        ({"task_bytes": 400}, [3, 9]),
        ({"min_partitions": 5}, [3]),
    ],
)
def test_planning_reads_the_indexes_of_ledgers_that_it_cuts(cut, read):
    tier = in_memory(*OBJECTS)
    scan(tier, **cut)
    whole = sorted(set(keys_read(tier)) - set(STREAMING_INDEXES))
    assert whole == [f"{uuid_of({3: 0, 9: 4}[each])}-ledger-{each}-index" for each in read]


def test_planning_reads_the_indexes_of_all_copies_of_a_ledger_that_has_several():
    one, two, other = (pip17_object([entry(b"x")] * n, ledger_id=i) for i, n in ((3, 2), (3, 2), (4, 1)))
    tier = in_memory(one, two, other)
    reading = scan(tier)
    assert sorted(keys_read(tier)) == [f"{uuid_of(0)}-ledger-3-index", f"{uuid_of(1)}-ledger-3-index"]
    assert reading.to_table().num_rows == 3


@pytest.mark.parametrize("ranges_ahead", [0, 1, 4])
def test_tasks_read_the_indexes_that_planning_left(ranges_ahead):
    written = [pip17_object(some_entries(i, 0, 5), ledger_id=i) for i in range(40)]
    tier = in_memory(*written, ranges_ahead=ranges_ahead)
    reading = scan(tier, columns=["__ledgerId", "__entryId"])
    assert reads_of(tier) == []
    rows = reading.to_table().to_pylist()
    assert sorted({row["__ledgerId"] for row in rows}) == list(range(40))
    assert rows == sorted(rows, key=lambda row: (row["__ledgerId"], row["__entryId"]))


def test_a_task_of_many_small_ledgers_is_small_on_its_way():
    tier = in_memory(*(pip17_object([entry(b"x")], ledger_id=i) for i in range(100)))
    (task,) = scan(tier).planned
    assert len(pickle.dumps(task)) < 100 * 600


def test_the_partition_and_topic_of_a_run_are_those_of_its_topic():
    for ledger_id in (3, 6):
        (run,) = scan(TIER, ledger=ledger_id).planned[0].extents
        assert (run.topic, run.partition, run.ledger_id) == (TOPIC, -1, ledger_id)


def test_neighbours_are_those_of_the_whole_topic_though_a_part_of_it_is_planned():
    """As a stream plans: what is new, in the midst of what was read before."""
    planned = replace(ORDERS, ledgers=tuple(each for each in ORDERS.ledgers if each.ledger_id > 8))
    tasks = plan_tasks(TIER.store, [planned], Bounds(), neighbour_bytes=1 << 40, around=[ORDERS])
    (task,) = tasks
    assert [each.ledger_id for each in task.extents] == [9]
    assert [each.ledger_id for each in task.neighbours[TOPIC].before] == [3, 5, 6, 8]
