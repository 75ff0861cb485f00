"""What is read of a topic to find its open transactions, and what tasks read to settle theirs, in bytes."""

import pickle

import numpy as np
import pytest
from entries import LedgerPart, entry, marker, pip17_object, streaming_object
from hypothesis import given
from hypothesis import strategies as st
from scenes.transactions import ONE, OTHER, histories, simulate
from tiers import TOPIC, MemoryDriver, Names, in_memory, numbered

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position, read_task
from offload_core.reading.scan.extents import extents_around
from offload_core.reading.scan.transactions.outcomes import NO_RANGES
from offload_core.reading.scan.transactions.pieces import PieceReader
from offload_core.storage.tier import Tier
from offload_hooks.errors import UnresolvedTransactionError
from pulsar_offload import TierReader, scan

COLUMNS = ["__ledgerId", "__entryId"]
T0 = 1_700_000_000_000
MINUTE = 60_000
MIB = 1 << 20


class Topic:
    """A topic of a few megabytes: an entry of 1 KiB each second, in blocks of some size, a ledger each `per_ledger`.

    Args:
        transactions: number of an entry → its transaction, a pair of bits.
        markers: number of an entry that is a marker → its type and transaction.
    """

    def __init__(self, count, *, block_bytes=4 * MIB, per_ledger=None, transactions=None, markers=None):
        transactions, markers = transactions or {}, markers or {}
        self.payloads = []
        for number in range(count):
            fields = {"publish_time": T0 + 1_000 * number}
            kind, owner = markers.get(number, (0, transactions.get(number)))
            if owner is not None:
                fields |= {"txnid_most_bits": owner[0], "txnid_least_bits": owner[1]}
            made = marker(kind, **fields) if kind else entry(b"%d" % number + bytes(1_000), **fields)
            self.payloads.append(made)
        size = per_ledger or count
        objects = [
            pip17_object(self.payloads[i : i + size], ledger_id=1 + i // size, max_block_bytes=block_bytes)
            for i in range(0, count, size)
        ]
        self.data_bytes = sum(len(each.data) for each in objects)
        self.driver = MemoryDriver(numbered(*objects), metadata=Names().as_metadata("data"))
        self.tier = TierReader(Tier(self.driver))

    def scan(self, **options):
        return scan(self.tier, TOPIC, columns=COLUMNS, **options)

    def read_bytes(self):
        """The bytes that were read of data objects since this was asked last."""
        read = sum(length for key, _, length in self.driver.reads if not key.endswith("-index"))
        self.driver.reads.clear()
        return read


def rows_of(planned, tasks):
    return [
        tuple(row.values())
        for task in pickle.loads(pickle.dumps(tasks))
        for batch in read_task(planned.tier, task, planned.options)
        for row in batch.to_pylist()
    ]


def test_planning_reads_the_last_minutes_of_a_topic_without_transactions():
    """600 of 8,000 seconds, and those of the slack, in steps that double."""
    topic = Topic(8_000, per_ledger=4_000)
    planned = topic.scan(task_bytes=MIB)
    topic.read_bytes()
    tasks = planned.tasks
    assert 660 * 1_024 < topic.read_bytes() <= 2 * MIB
    assert len(rows_of(planned, tasks)) == 8_000
    assert topic.read_bytes() <= 1.02 * topic.data_bytes


def test_of_a_quiet_topic_planning_reads_one_small_range():
    topic = Topic(8_000)
    planned = topic.scan(transaction_timeout_ms=MINUTE)
    topic.read_bytes()
    assert len(planned.tasks) == 1
    assert topic.read_bytes() == 256 << 10


def test_planning_reads_no_more_than_it_may():
    topic = Topic(8_000)
    planned = topic.scan(transaction_search_bytes=MIB, transaction_timeout_ms=10**9)
    topic.read_bytes()
    assert len(planned.tasks) == 1
    assert topic.read_bytes() <= 2 * MIB


@pytest.mark.parametrize("block_bytes", [20_000, 4 * MIB])
@pytest.mark.parametrize("task_bytes", [MIB, 1 << 30])
def test_a_task_reads_little_more_than_its_own_for_transactions(block_bytes, task_bytes):
    """One entry of a hundred is of a transaction that ends ten entries later."""
    transactions = {i: (1, i) for i in range(0, 8_000, 100)}
    markers = {i + 10: (22 if i % 300 else 21, (1, i)) for i in transactions}
    topic = Topic(8_000, block_bytes=block_bytes, transactions=transactions, markers=markers)
    planned = topic.scan(task_bytes=task_bytes)
    tasks = planned.tasks
    topic.read_bytes()
    found = rows_of(planned, tasks)
    aborted = {i for i in transactions if i % 300}
    assert found == [(1, i) for i in range(8_000) if i not in markers and i not in aborted]
    assert topic.read_bytes() <= 1.10 * topic.data_bytes + (len(tasks) > 1) * MIB


def test_what_waits_for_its_end_is_fetched_twice_only_where_it_is_too_much_to_hold(monkeypatch):
    topic = Topic(8_000, transactions={10: ONE}, markers={7_900: (21, ONE)})
    planned = topic.scan(transaction_timeout_ms=10**9)
    (task,) = planned.tasks
    topic.read_bytes()
    assert len(rows_of(planned, [task])) == 7_999
    assert topic.read_bytes() == topic.data_bytes
    monkeypatch.setattr("offload_core.reading.scan.transactions.deciding.HELD_BYTES", MIB)
    assert len(rows_of(planned, [task])) == 7_999
    assert topic.data_bytes < topic.read_bytes() <= 2.01 * topic.data_bytes


def test_what_was_read_ahead_is_not_read_ahead_again(monkeypatch):
    """Transactions of 3 MiB, each of which begins before the last one ends; 1 MiB may be held."""
    monkeypatch.setattr("offload_core.reading.scan.transactions.deciding.HELD_BYTES", MIB)
    transactions = {i: (1, i) for i in range(0, 7_000, 500)}
    topic = Topic(
        8_000,
        transactions=transactions,
        markers={i + 3_001: (21, (1, i)) for i in transactions if i < 4_900}
        | {7_999 - i // 500: (21, (1, i)) for i in transactions if i >= 4_900},
    )
    planned = topic.scan(transaction_timeout_ms=10**9, task_bytes=1 << 30)
    (task,) = planned.tasks
    topic.read_bytes()
    assert len(rows_of(planned, [task])) == 8_000 - len(transactions)
    assert topic.read_bytes() <= 2.3 * topic.data_bytes


def test_an_open_transaction_ends_the_read_wherever_in_a_block_it_lies():
    topic = Topic(4_000, transactions={3_950: ONE, 3_960: OTHER}, markers={3_970: (21, OTHER)})
    planned = topic.scan(task_bytes=MIB)
    assert rows_of(planned, planned.tasks) == [(1, i) for i in range(3_950)]
    assert [tuple(row.values()) for row in planned.to_table().to_pylist()] == [(1, i) for i in range(3_950)]


def test_a_transaction_that_is_open_before_the_tail_is_an_error_that_names_it():
    topic = Topic(4_000, transactions={100: ONE})
    planned = topic.scan(task_bytes=MIB)
    with pytest.raises(UnresolvedTransactionError, match=r"\(0,1\) at 1:100") as caught:
        rows_of(planned, planned.tasks)
    assert (caught.value.ledger_id, caught.value.entry_id) == (1, 100)
    assert "transaction_search_bytes" in str(caught.value)
    farther = topic.scan(task_bytes=MIB, transaction_timeout_ms=10**9)
    assert rows_of(farther, farther.tasks) == [(1, i) for i in range(100)]
    before = topic.scan(stop={TopicName(TOPIC): Position(1, 100)})
    assert len(rows_of(before, before.tasks)) == 100


def test_a_scan_that_is_read_in_order_ends_before_it(caplog):
    topic = Topic(4_000, transactions={100: ONE})
    assert topic.scan(task_bytes=MIB).to_table().num_rows == 100
    assert "Nothing from 1:100 on is read" in caplog.text


def test_an_abort_before_a_task_counts_for_what_comes_after_it():
    topic = Topic(4_000, transactions={100: ONE, 2_500: ONE}, markers={120: (22, ONE)})
    planned = topic.scan(task_bytes=MIB)
    expected = [(1, i) for i in range(4_000) if i not in (100, 120, 2_500)]
    assert rows_of(planned, planned.tasks) == expected
    assert [tuple(row.values()) for row in planned.to_table().to_pylist()] == expected


# --- pieces ------------------------------------------------------------------------------------


def tables(pieces):
    """All ranges, apart, and all markers of some pieces."""
    ranges = np.concatenate([NO_RANGES, *(each.ranges for each in pieces)])
    entries = {
        (ledger_id, entry_id, *owner)
        for ledger_id, first, stop, *owner in ranges.tolist()
        for entry_id in range(first, stop)
    }
    markers = np.concatenate([NO_RANGES, *(each.markers for each in pieces)]).tolist()
    return entries, sorted(map(tuple, markers))


@given(histories(late=True), st.integers(1, 900))
def test_backwards_the_same_is_found_as_forwards(history, first_bytes):
    tier = in_memory(*(written for objects in history.objects.values() for written in objects))
    (topic,) = tier.catalogue().topics
    extents = [extent for each in topic.ledgers for extent in each.extents if extent.blocks]
    reader = PieceReader(tier=tier.store, verify_checksums=True)
    forwards = list(reader.forwards(extents))
    backwards = list(reader.backwards(reversed(extents), first_bytes=first_bytes))
    assert tables(backwards) == tables(forwards)
    firsts = [each.first for each in backwards]
    assert firsts == sorted(firsts, reverse=True)


def test_a_streaming_block_whose_end_is_not_known_is_read_backwards():
    payloads = [entry(b"%d" % i * 50, txnid_most_bits=1, txnid_least_bits=i // 7) for i in range(100)]
    tier = in_memory(streaming_object([LedgerPart(ledger_id=9, blocks=[payloads])]))
    (extent,) = tier.catalogue().topics[0].ledgers[0].extents
    reader = PieceReader(tier=tier.store, verify_checksums=True)
    pieces = list(reader.backwards([extent], first_bytes=400))
    assert len(pieces) > 5
    assert tables(pieces) == tables(reader.forwards([extent]))


@given(histories(late=True), st.integers(1, 2_000), st.integers(0, 30))
def test_whatever_the_limits_no_row_is_too_much_or_missing(history, search_bytes, timeout_ms):
    """Either the rows are those of a broker, or a transaction that has no end near it is named.

    Or they end before a message that came to its transaction after an abort that is farther away than the limits.
    """
    tier = in_memory(*(written for objects in history.objects.values() for written in objects))
    seen = simulate(history.in_order, (0, 0), (99, 0))
    limits = {
        "transaction_search_bytes": search_bytes,
        "transaction_timeout_ms": timeout_ms,
        "time_slack_ms": 0,
    }
    planned = scan(tier, TOPIC, columns=[*COLUMNS, "__batchIndex"], task_bytes=700, **limits)
    for read in (lambda: rows_of(planned, planned.tasks), lambda: planned.to_table().to_pylist()):
        try:
            found = [tuple(row.values()) if isinstance(row, dict) else row for row in read()]
        except UnresolvedTransactionError:
            continue
        missing = seen.committed[len(found) :]
        assert [*found, *missing] == seen.committed
        if missing:
            last = found[-1][:2] if found else (0, 0)
            assert any(last < place <= missing[0][:2] for place in sent_after_aborts(history.in_order))


def sent_after_aborts(in_order):
    """Where messages came to transactions that had been aborted, and of which no marker comes later."""
    aborted, sent = set(), {}
    for place, event in in_order:
        if event.kind == "abort":
            aborted.add(event.transaction)
        if event.kind == "messages" and event.transaction in aborted:
            sent.setdefault(event.transaction, []).append(place)
        elif event.transaction in sent:
            del sent[event.transaction]
    return [place for places in sent.values() for place in places]


@given(histories(late=True), st.integers(1, 2_000))
def test_aborts_that_are_near_are_found_wherever_they_lie(history, task_bytes):
    tier = in_memory(*(written for objects in history.objects.values() for written in objects))
    planned = scan(tier, TOPIC, columns=[*COLUMNS, "__batchIndex"], task_bytes=task_bytes)
    assert rows_of(planned, planned.tasks) == simulate(history.in_order, (0, 0), (99, 0)).committed


@pytest.mark.parametrize(("abort_at", "is_near"), [(1_800, True), (100, False)])
def test_aborts_are_searched_for_as_far_before_an_open_transaction_as_tails_are(abort_at, is_near):
    """The tail begins at entry 2,245, and has a message that came after an abort."""
    topic = Topic(4_000, transactions={50: ONE, 2_600: ONE}, markers={abort_at: (22, ONE)})
    planned = topic.scan(transaction_search_bytes=MIB, transaction_timeout_ms=10**9)
    topic.read_bytes()
    tasks = planned.tasks
    assert topic.read_bytes() <= 4 * MIB
    visible = range(4_000 if is_near else 2_600)
    assert rows_of(planned, tasks) == [(1, i) for i in visible if i not in (50, abort_at, 2_600)]


def test_nothing_of_a_later_ledger_comes_before_a_place_and_all_of_an_earlier_one_does():
    tier = in_memory(*(pip17_object([entry(b"%d" % i) for i in range(9)], ledger_id=each) for each in (1, 2)))
    unread = [each for task in scan(tier, TOPIC).planned for each in task.extents]
    read = [extent for each in unread for extent in extents_around(tier.store, each)]
    for first, second in (unread, read):
        assert (first.before((1, 0)), second.before((1, 5))) == (None, None)
        assert (first.before((2, 0)), second.before((2, 0))) == (first, None)
        assert second.before((3, 0)) == second
    assert (unread[1].before((2, 5)).asked.stop, read[1].before((2, 5)).stop_entry_id) == (5, 5)
