"""Topics with transactions that a filter went through while they were offloaded: consumers see the same of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes.drawn import DrawnTopic, FilteredLedger
from scenes.transactions import ONE, OTHER, PLAIN, Event, abort, commit, events, of, simulate
from tiers import TOPIC

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position as ScanPosition
from offload_core.reading.scan import read_task
from offload_core.reading.transaction_buffers import BufferSnapshot, TransactionBuffer
from offload_core.storage.tier import Tier
from offload_hooks.ledger_stores import EntryBatch
from pulsar_offload import TierReader, scan

COLUMNS = ("__ledgerId", "__entryId", "__batchIndex")
TOMBSTONE = Event(kind="tombstone")


def marked(name, mode):
    return {"pulsaroffloadfiltered": name, "pulsaroffloadfilteredmode": mode}


def copy_of(ledgers, dropped, name, mode):
    """A copy of these ledgers; of those that `dropped` names a filter has taken out entries."""
    made, number = [], 0
    for ledger_id, happened in ledgers.items():
        out = dropped.get(ledger_id, set())
        packed = [
            (TOMBSTONE if i in out and mode == "tombstone" else event).pack(number + i)
            for i, event in enumerate(happened)
        ]
        number += len(happened)
        made.append(
            FilteredLedger(
                ledger_id=ledger_id,
                layout="pip17" if ledger_id % 2 else "streaming",
                payloads=packed,
                kept=frozenset(i for i in range(len(packed)) if mode == "tombstone" or i not in out),
                blocks=[[*range(0, len(packed), 3)]],
                mark=marked(name, mode) if ledger_id in dropped else {},
            )
        )
    return DrawnTopic(ledgers=made)


def tier_of(topic):
    return TierReader(Tier(topic.driver()))


def rows_of(planned):
    """Of the scan itself, and the same of its tasks."""
    found = [tuple(row[name] for name in COLUMNS) for batch in planned for row in batch.to_pylist()]
    batches = [batch for task in planned.tasks for batch in read_task(planned.tier, task, planned.options)]
    assert [tuple(row[name] for name in COLUMNS) for batch in batches for row in batch.to_pylist()] == found
    return found


def positioned(ledgers):
    """What happened in all ledgers, in order, and where."""
    return [((each, i), event) for each, of_ledger in ledgers.items() for i, event in enumerate(of_ledger)]


def settled(happened):
    """The stable position at the end of a topic, and what knows of its transactions."""
    buffer = TransactionBuffer.restore(BufferSnapshot(stable_position=None))
    for number, ((ledger_id, entry_id), event) in enumerate(happened):
        buffer.add(ledger_id, EntryBatch.of(entry_id, [event.pack(number)]))
    stable = buffer.stable_position
    return None if stable is None else (stable.ledger_id, stable.entry_id), buffer


@st.composite
def histories(draw):
    """Ledgers in which transactions happen, from 5 on; nothing comes to one after its abort."""
    happened = draw(events(late=False))
    borders = sorted({0, *draw(st.sets(st.integers(0, len(happened) - 1), max_size=3))})
    return {
        5 + number: list(happened[begin:end])
        for number, (begin, end) in enumerate(zip(borders, [*borders[1:], len(happened)], strict=True))
    }


@given(ledgers=histories(), mode=st.sampled_from(["gap", "tombstone"]), data=st.data())
def test_committed_is_the_same_of_a_copy_without_what_was_aborted(ledgers, mode, data):
    """From the first ledger on, each that is settled by now, or some of them; the others are as they were."""
    in_order = positioned(ledgers)
    stable, buffer = settled(in_order)
    dropped = {}
    for ledger_id, happened in ledgers.items():
        if stable is None or (ledger_id, len(happened) - 1) > stable or data.draw(st.integers(0, 4)) == 0:
            break
        dropped[ledger_id] = {
            i
            for i, event in enumerate(happened)
            if event.kind in ("commit", "abort")
            or (event.transaction is not None and buffer.is_aborted(event.transaction))
        }
    seen = simulate(in_order, (0, 0), (99, 0))
    tier = tier_of(copy_of(ledgers, dropped, "transactions", mode))
    for options in ({}, {"task_bytes": 1}, {"records": copy_of(ledgers, dropped, "x", mode).records()}):
        assert rows_of(scan(tier, TOPIC, columns=COLUMNS, **options)) == seen.committed
    everything = rows_of(scan(tier, TOPIC, columns=COLUMNS, isolation="uncommitted"))
    assert everything == [row[:3] for row in seen.uncommitted if row[1] not in dropped.get(row[0], set())], (
        "tombstones are no messages"
    )


@given(ledgers=histories(), mode=st.sampled_from(["gap", "tombstone"]), data=st.data())
def test_markers_that_a_filter_has_left_end_transactions_of_ledgers_that_it_did_not_see(ledgers, mode, data):
    """A filter is switched on and off, while transactions go on."""
    in_order = positioned(ledgers)
    stable, buffer = settled(in_order)
    dropped = {}
    for ledger_id, happened in ledgers.items():
        if stable is not None and (ledger_id, len(happened) - 1) <= stable and data.draw(st.booleans()):
            dropped[ledger_id] = {
                i
                for i, event in enumerate(happened)
                if event.kind == "messages"
                and event.transaction is not None
                and buffer.is_aborted(event.transaction)
            }
    seen = simulate(in_order, (0, 0), (99, 0))
    topic = copy_of(ledgers, dropped, "transactions", mode)
    for options in ({}, {"task_bytes": 1}):
        assert rows_of(scan(tier_of(topic), TOPIC, columns=COLUMNS, **options)) == seen.committed


@pytest.mark.parametrize("place", ["behind", "between"])
@pytest.mark.parametrize("end", [commit, abort])
def test_markers_that_a_filter_has_left_count_where_a_transaction_began_in_another_ledger(end, place):
    """Also for what came to it later, when the filter was off again."""
    late = [of(ONE)] if place == "between" else []
    ledgers = {5: [PLAIN, of(ONE)], 6: [PLAIN, end(ONE), PLAIN], 7: [PLAIN, *late, PLAIN]}
    if end is commit and late:
        return  # nothing comes to a transaction after its commit
    in_order = positioned(ledgers)
    seen = simulate(in_order, (0, 0), (99, 0))
    tier = tier_of(copy_of(ledgers, {6: set()}, "transactions", "tombstone"))
    assert rows_of(scan(tier, TOPIC, columns=COLUMNS)) == seen.committed
    assert len(seen.committed) >= 5
    only = {TopicName(TOPIC): ScanPosition(7, 0)}
    assert rows_of(scan(tier, TOPIC, columns=COLUMNS, start=only)) == [
        row for row in seen.committed if row[0] == 7
    ]


@pytest.mark.parametrize("mode", ["gap", "tombstone"])
def test_what_comes_to_a_transaction_after_its_abort_is_aborted_where_a_filter_has_left_the_marker(mode):
    ledgers = {5: [of(ONE), abort(ONE), PLAIN], 6: [of(ONE), PLAIN], 7: [PLAIN]}
    topic = copy_of(ledgers, {5: {0}, 7: set()}, "transactions", mode)
    name = TopicName(TOPIC)
    for start, expected in (((5, 0), [(5, 2, -1)]), ((6, 0), [])):
        planned = scan(tier_of(topic), TOPIC, columns=COLUMNS, start={name: ScanPosition(*start)})
        assert rows_of(planned) == [*expected, (6, 1, -1), (7, 0, -1)]


@pytest.mark.parametrize("mode", ["gap", "tombstone"])
def test_of_another_filter_transactions_are_looked_up_as_ever(mode):
    """What it kept may be aborted, or open."""
    ledgers = {
        1: [PLAIN, of(ONE), PLAIN, abort(ONE), of(OTHER), PLAIN, PLAIN],
        2: [commit(OTHER), PLAIN, of(ONE)],
    }
    tier = tier_of(copy_of(ledgers, {1: {0, 5}, 2: set()}, "by-property", mode))
    assert rows_of(scan(tier, TOPIC, columns=COLUMNS)) == [(1, 2, -1), (1, 4, -1), (1, 6, -1), (2, 1, -1)]


@pytest.mark.parametrize("mode", ["gap", "tombstone"])
def test_a_topic_that_was_filtered_is_not_looked_through(mode):
    ledgers = {1: [PLAIN, of(ONE), commit(ONE)], 2: [of(OTHER), abort(OTHER), PLAIN]}
    topic = copy_of(ledgers, {1: {2}, 2: {0, 1}}, "transactions", mode)
    driver = topic.driver()
    planned = scan(TierReader(Tier(driver)), TOPIC, columns=COLUMNS)
    driver.reads.clear()
    tasks = planned.tasks
    assert [key for key, *_ in driver.reads if not key.endswith("-index")] == []
    batches = [batch for task in tasks for batch in read_task(planned.tier, task, planned.options)]
    assert sum(batch.num_rows for batch in batches) == 3
    driver.reads.clear()
    assert sum(batch.num_rows for batch in scan(TierReader(Tier(driver)), TOPIC, columns=COLUMNS)) == 3
    data = [key for key, *_ in driver.reads if not key.endswith("-index")]
    assert len(data) == len(set(data)) == 2, "each object is fetched once"


def test_a_stop_inside_a_gap_is_one():
    ledgers = {1: [of(ONE), PLAIN, abort(ONE), PLAIN]}
    tier = tier_of(copy_of(ledgers, {1: {0, 2}}, "transactions", "gap"))
    name = TopicName(TOPIC)
    for start, stop, expected in ((0, 1, []), (2, 3, []), (0, 2, [(1, 1, -1)]), (2, 4, [(1, 3, -1)])):
        bounds = {"start": {name: ScanPosition(1, start)}, "stop": {name: ScanPosition(1, stop)}}
        assert rows_of(scan(tier, TOPIC, columns=COLUMNS, **bounds)) == expected
