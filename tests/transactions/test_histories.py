"""Drawn histories of transactions, over ledgers in all formats: what is read is what a simulated broker gives."""

import pickle

from hypothesis import given
from hypothesis import strategies as st
from scenes.transactions import History, histories, simulate
from tiers import TOPIC, in_memory

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position as ScanPosition
from offload_core.reading.scan import read_task
from pulsar_offload import scan

NAME = TopicName(TOPIC)
COLUMNS = ("__ledgerId", "__entryId", "__batchIndex")
FIRST, LAST = (0, 0), (99, 0)


def positions(history):
    return st.sampled_from([position for position, _ in history.in_order])


def tier_of(history):
    return in_memory(*(written for objects in history.objects.values() for written in objects))


def at(position):
    return {NAME: ScanPosition(*position)}


def rows_of(batches, columns):
    return [tuple(row[name] for name in columns) for batch in batches for row in batch.to_pylist()]


def assert_is_read(history, start, stop, **options):
    """Both isolations, from the scan itself and from its tasks elsewhere."""
    seen = simulate(history.in_order, start, stop)
    tier = tier_of(history)
    bounds = {
        "start": "earliest" if start == FIRST else at(start),
        "stop": "latest" if stop == LAST else at(stop),
    }
    for isolation, columns, expected in (
        ("committed", COLUMNS, seen.committed),
        ("uncommitted", (*COLUMNS, "__txnState"), seen.uncommitted),
    ):
        planned = scan(tier, TOPIC, columns=columns, isolation=isolation, task_bytes=700, **bounds, **options)
        assert rows_of(list(planned), columns) == expected
        tasks, read_options = pickle.loads(pickle.dumps((planned.tasks, planned.options)))
        batches = [batch for task in tasks for batch in read_task(tier.store, task, read_options)]
        assert rows_of(batches, columns) == expected


@given(histories(late=True))
def test_a_whole_topic_is_read_as_a_broker_serves_it(history):
    assert_is_read(history, FIRST, LAST)


@given(st.data())
def test_a_range_is_read_as_a_broker_serves_it(data):
    history = data.draw(histories(late=True))
    start, stop = data.draw(positions(history)), data.draw(positions(history))
    assert_is_read(history, start, stop)


@given(st.data())
def test_of_ledgers_that_are_missing_nothing_is_known(data):
    history = data.draw(histories())
    kept = data.draw(st.sets(st.sampled_from(sorted(history.events)), min_size=1))
    left = History(
        events={ledger_id: each for ledger_id, each in history.events.items() if ledger_id in kept},
        objects={ledger_id: each for ledger_id, each in history.objects.items() if ledger_id in kept},
    )
    assert_is_read(left, FIRST, LAST, fail_on_data_loss=False)
