"""Scans of topics of which a filter left out entries: exactly those that are left, and no more requests than before."""

from typing import Any

import pytest
from effort import effort
from entries import PUBLISH_TIME_MS, batch_entry, entry, ledger_metadata, pip17_of_blocks, streaming_of_blocks
from hypothesis import given
from hypothesis import strategies as st
from scenes.drawn import MARKED, DrawnTopic, FilteredLedger, filtered_topics
from tiers import TOPIC, MemoryDriver, Names, numbered

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Condition, Operator, Position, read_task
from offload_core.storage.tier import Tier
from offload_hooks.errors import DataLossError, EntryOrderError, FormatError
from pulsar_offload import TierReader, scan

NAME = TopicName(TOPIC)
Places = list[tuple[int, int]]


def scan_of(tier, topic, *, with_records, **options):
    return scan(tier, TOPIC, records=topic.records() if with_records else None, **options)


def rows_of(planned, *names):
    """Of the scan itself, and the same of its tasks."""
    found = [tuple(row[name] for name in names) for batch in planned for row in batch.to_pylist()]
    batches = [batch for task in planned.tasks for batch in read_task(planned.tier, task, planned.options)]
    assert [tuple(row[name] for name in names) for batch in batches for row in batch.to_pylist()] == found
    return found


@st.composite
def places(draw, topic):
    """Any entry's place, also of one that was left out, or the end of a ledger."""
    ledger = draw(st.sampled_from(topic.ledgers))
    return Position(
        ledger.ledger_id, draw(st.integers(0, len(ledger.payloads))), draw(st.sampled_from([0, 0, 1]))
    )


@given(topic=filtered_topics(), data=st.data())
def test_a_scan_gives_the_entries_that_are_left(topic, data):
    with_records = data.draw(st.booleans())
    tier = topic.tier(
        range_bytes=data.draw(st.sampled_from([512, 8 << 20])),
        ranges_ahead=data.draw(st.sampled_from([0, 3])),
    )
    options = {"task_bytes": data.draw(st.sampled_from([1, 600, 1 << 20]))}
    planned = scan_of(tier, topic, with_records=with_records, level="entries", **options)
    found = rows_of(planned, "__ledgerId", "__entryId", "value")
    assert [row[:2] for row in found] == topic.kept
    assert {row[:2]: row[2] for row in found} == topic.values


@given(topic=filtered_topics(), data=st.data())
def test_a_range_gives_what_is_left_of_it_by_no_more_requests(topic, data):
    with_records = data.draw(st.booleans())
    start, stop = (data.draw(places(topic)) for _ in range(2))
    options: dict[str, Any] = {
        "start": {NAME: start},
        "stop": {NAME: stop},
        "columns": ["__ledgerId", "__entryId", "__batchIndex"],
        "task_bytes": data.draw(st.sampled_from([1, 600, 1 << 20])),
        "chunks": "raw",
    }
    driver, whole = topic.driver(), topic.driver(whole=True)
    found, everything = (
        [
            (row["__ledgerId"], row["__entryId"], max(row["__batchIndex"], 0))
            for batch in scan_of(TierReader(Tier(each)), topic, with_records=with_records, **options)
            for row in batch.to_pylist()
        ]
        for each in (driver, whole)
    )
    begin, end = ((at.ledger_id, at.entry_id, at.batch_index) for at in (start, stop))
    assert all(begin <= row < end for row in everything)
    assert found == [row for row in everything if row[:2] in set(topic.kept)]
    if options["task_bytes"] != 600:  # else tasks end elsewhere, where a range would have gone on
        begins_in_a_gap = begin[:2] not in topic.kept  # of which the block before it may have a part
        assert len(driver.reads) <= len(whole.reads) + begins_in_a_gap


@effort(0.4)
@given(topic=filtered_topics(), data=st.data())
def test_times_and_conditions_choose_from_what_is_left(topic, data):
    first, last = data.draw(st.integers(0, 40)), data.draw(st.integers(0, 40))
    low = data.draw(st.integers(0, 13))
    times = {"start_time": PUBLISH_TIME_MS + first, "stop_time": PUBLISH_TIME_MS + last, "time_slack_ms": 0}
    at_least = Condition(column="__entryId", operator=Operator.GREATER_OR_EQUAL, value=low)
    with_records = data.draw(st.booleans())
    for options in (times, {"conditions": [at_least]}, {**times, "conditions": [at_least]}):
        driver, whole = topic.driver(), topic.driver(whole=True)
        found, everything = (
            rows_of(
                scan_of(TierReader(Tier(each)), topic, with_records=with_records, task_bytes=1, **options),
                "__ledgerId",
                "__entryId",
            )
            for each in (driver, whole)
        )
        kept = set(topic.kept)
        wanted = [row for row in everything if row in kept]
        if "conditions" in options:  # what is read may be more; of whole objects as of others
            found, wanted = ([row for row in rows if row[1] >= low] for rows in (found, wanted))
        assert found == wanted


def test_a_stop_in_a_batch_that_was_left_out_cuts_no_other_batch():
    payloads = [batch_entry([b"first", b"second"]) for _ in range(4)]
    ledger = FilteredLedger(
        ledger_id=3, layout="pip17", payloads=payloads, kept=frozenset({0, 1, 3}), blocks=[[0]]
    )
    tier = DrawnTopic(ledgers=[ledger]).tier()
    everything = [(i, index) for i in sorted(ledger.kept) for index in (0, 1)]
    for start, stop in ((0, 2), (2, 2), (1, 3), (2, 3)):
        bounds = {"start": {NAME: Position(3, start, 1)}, "stop": {NAME: Position(3, stop, 1)}}
        rows = rows_of(scan(tier, TOPIC, **bounds), "__entryId", "__batchIndex")
        assert rows == [row for row in everything if (start, 1) <= row < (stop, 1)]


# --- what is damage all the same ---------------------------------------------------------------


def one_ledger(layout, kept, *blocks):
    payloads = [entry(b"value %d" % i) for i in range(8)]
    ledger = FilteredLedger(
        ledger_id=3, layout=layout, payloads=payloads, kept=frozenset(kept), blocks=blocks
    )
    return DrawnTopic(ledgers=[ledger])


@pytest.mark.parametrize("layout", ["pip17", "streaming"])
@pytest.mark.parametrize(
    "more", [{}, {"pulsaroffloadfiltered": "x", "pulsaroffloadfilteredmode": "tombstone"}]
)
@pytest.mark.parametrize("missing", [{0}, {1}, {3}, {4}, {7}, {4, 5, 6, 7}, set(range(8))])
def test_what_is_missing_of_an_object_without_gaps_is_damage(layout, more, missing):
    topic = one_ledger(layout, set(range(8)) - missing, [0, 4])
    driver = MemoryDriver(topic.driver().objects, metadata=Names().as_metadata("data") | more)
    with pytest.raises((DataLossError, FormatError)):
        list(scan(TierReader(Tier(driver)), TOPIC, level="entries", records=topic.records()))


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_segment_that_is_lost_is_not_taken_for_a_gap(lost):
    """By the record it is there. Without one nobody knows."""
    topic = one_ledger("streaming", {1, 4, 5}, [0, 1], [3, 4], [6])
    driver = topic.driver()
    data_key = sorted(key for key in driver.objects if not key.endswith("-index"))[lost]
    del driver.objects[data_key], driver.objects[f"{data_key}-index"]
    with pytest.raises(DataLossError):
        list(scan(TierReader(Tier(driver)), TOPIC, level="entries", records=topic.records()))
    left = scan(TierReader(Tier(driver)), TOPIC, level="entries")
    assert rows_of(left, "__entryId") == [(i,) for i in (1, 4, 5) if i // 3 != lost]


@pytest.mark.parametrize("kept", [{0, 1, 2, 4}, {1, 2, 3, 4}, {0, 1, 3, 7}, {2, 4}, {4}, {0}])
def test_beside_a_border_of_segments_entries_may_be_missing(kept):
    """Of either segment or both, also where the other one is whole."""
    topic = one_ledger("streaming", kept, [0], [3])
    for records in (None, topic.records()):
        planned = scan(topic.tier(), TOPIC, level="entries", records=records)
        assert rows_of(planned, "__entryId") == [(i,) for i in sorted(kept)]


def test_entries_of_an_index_that_lie_behind_the_ledgers_end_are_damage():
    topic = one_ledger("pip17", {1, 7}, [0])
    driver = topic.driver()
    (data_key,) = (key for key in driver.objects if not key.endswith("-index"))
    data = driver.objects[data_key]
    driver.objects[data_key] = data.replace((7).to_bytes(8, "big"), (8).to_bytes(8, "big"))
    with pytest.raises(EntryOrderError, match="a block does not end with the entry that its index says"):
        list(scan(TierReader(Tier(driver)), TOPIC, level="entries"))


def test_payloads_of_many_runs_of_entries_come_in_one_batch():
    """A gap costs nothing: entries beside it are decoded together."""
    payloads = [entry(b"value %d" % i) for i in range(3000)]
    kept = frozenset(i for i in range(3000) if i % 3)
    ledger = FilteredLedger(ledger_id=3, layout="pip17", payloads=payloads, kept=kept, blocks=[[0]])
    for level in ("entries", "messages"):
        batches = list(scan(DrawnTopic(ledgers=[ledger]).tier(), TOPIC, level=level))
        assert [batch.num_rows for batch in batches] == [2000]


def test_the_padding_of_a_block_of_which_nothing_is_left_is_not_searched_for_times():
    """A store's least block is of some MiB, also where a filter left nothing of it."""
    info = LedgerInfo(ledger_id=3, entries=6, timestamp_ms=1)
    blocks = [(0, {}), (5, {5: entry(b"x", publish_time=PUBLISH_TIME_MS)})]
    stored = numbered(streaming_of_blocks([(info, blocks)], min_block_bytes=200_000))
    driver = MemoryDriver(stored, metadata={**Names().as_metadata("data"), **MARKED}, range_bytes=1 << 20)
    planned = scan(TierReader(Tier(driver)), TOPIC, start_time=PUBLISH_TIME_MS - 100_000)
    assert len(driver.reads) <= 3, "the index, and a probe of each block"
    assert planned.to_table().num_rows == 1


@pytest.mark.parametrize("emptied", [{16}, {15, 16, 17}, {8, 16, 24}, set(range(14, 20))])
def test_blocks_of_which_nothing_is_left_do_not_hide_where_a_time_is(emptied):
    """By halving, as without them; one that tells nothing costs a request, not half of the ledger."""
    payloads = [entry(b"v" * 50, publish_time=PUBLISH_TIME_MS + i * 1_000_000) for i in range(64)]

    def requests(emptied, **times):
        parts = [
            (2 * i, {} if i in emptied else dict(enumerate(payloads[2 * i :][:2], 2 * i))) for i in range(32)
        ]
        written = pip17_of_blocks(parts, ledger_metadata(payloads), ledger_id=3)
        stored = {written.key.data_key: written.data, written.key.index_key: written.index}
        driver = MemoryDriver(stored, metadata={**Names().as_metadata("data"), **MARKED}, range_bytes=200)
        planned = scan(TierReader(Tier(driver)), TOPIC, isolation="uncommitted", **times)
        assert planned.to_table().num_rows == 2
        return len(driver.reads)

    for times in (
        {"start_time": PUBLISH_TIME_MS + 62_000_000},
        {"stop_time": PUBLISH_TIME_MS + 1_500_000},
        {"start_time": PUBLISH_TIME_MS + 40_000_000, "stop_time": PUBLISH_TIME_MS + 41_500_000},
    ):
        assert requests(emptied, **times) <= requests(set(), **times) + len(emptied) + 2
