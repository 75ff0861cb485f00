"""The transaction buffer: what is open, aborted and settled, of Pulsar's own topic and of drawn ones."""

from itertools import groupby

import pytest
from entries import entry, marker, read_object
from golden import sent_in_transactions, topic_objects
from hypothesis import given
from hypothesis import strategies as st
from scenes.transactions import ONE, OTHER, PLAIN, Event, abort, commit, events, of, simulate

from offload_core.format.messages.entry import TransactionId, split_entry
from offload_core.metadata.records import EntryPosition
from offload_core.reading.transaction_buffers import BufferSnapshot, BufferState, TransactionBuffer
from offload_hooks.errors import BadLengthError, ChecksumError, EntryOrderError
from offload_hooks.ledger_stores import EntryBatch

THIRD = (0, 3)
END = (1 << 40, 0)


def batches(entries, sizes=(1 << 30,)):
    """Ledger by ledger, in batches of these sizes in turn."""
    turn = 0
    for ledger_id, of_ledger in groupby(entries, key=lambda each: each[0]):
        left = [(entry_id, payload) for _, entry_id, payload in of_ledger]
        while left:
            size = sizes[turn % len(sizes)]
            turn += 1
            now, left = left[:size], left[size:]
            yield ledger_id, EntryBatch.of(now[0][0], [payload for _, payload in now])


def ready(snapshot=None):
    buffer = TransactionBuffer.restore(snapshot or BufferSnapshot(stable_position=None))
    buffer.become_ready()
    return buffer


def buffer_of(happened, ledger_id=7):
    buffer = ready()
    buffer.add(ledger_id, EntryBatch.of(0, [event.pack(i) for i, event in enumerate(happened)]))
    return buffer


# --- what is settled ---------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [commit, abort])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_the_stable_position_is_before_the_first_entry_of_an_open_transaction(ends, size):
    """The example of the proposal: entry by entry, and by batches."""
    happened = [of(ONE), of(OTHER), of(OTHER), commit(ONE), of(OTHER), of(THIRD), ends(OTHER), ends(THIRD)]
    expected = [-1, -1, -1, 0, 0, 0, 4, 7]
    buffer = ready()
    for first in range(0, len(happened), size):
        part = happened[first : first + size]
        buffer.add(3, EntryBatch.of(first, [event.pack(i) for i, event in enumerate(part)]))
        stable = expected[first + len(part) - 1]
        assert buffer.stable_position == (None if stable < 0 else EntryPosition(3, stable))
        assert buffer.last_position == EntryPosition(3, first + len(part) - 1)


def test_what_comes_to_an_aborted_transaction_is_aborted_and_holds_nothing_up():
    buffer = buffer_of([of(ONE), abort(ONE), of(ONE), PLAIN])
    assert buffer.stable_position == EntryPosition(7, 3)
    assert buffer.decide(EntryPosition(7, 2), TransactionId(*ONE)) == "aborted"
    assert buffer.is_aborted(TransactionId(*ONE))
    assert not buffer.is_open(TransactionId(*ONE))


def test_markers_of_no_transaction_and_those_of_a_commit_under_way_decide_nothing():
    buffer = ready()
    ids = {"txnid_most_bits": 0, "txnid_least_bits": 1}
    entries = [entry(**ids), marker(20, **ids), marker(22), marker(12, **ids), marker(10)]
    buffer.add(7, EntryBatch.of(0, entries))
    assert tuple(buffer.open_transactions) == ((0, 1),)
    assert buffer.aborted == {}
    assert buffer.stable_position is None


def test_a_tombstone_is_no_abort_of_the_first_transaction_of_the_first_coordinator():
    """It has no transaction's id, and so neither 0 nor 0 for one."""
    first, tombstone = (0, 0), Event(kind="tombstone")
    buffer = buffer_of([tombstone, of(first), tombstone, tombstone, PLAIN])
    assert tuple(buffer.open_transactions) == (first,)
    assert buffer.aborted == {}
    assert buffer.stable_position == EntryPosition(7, 0)
    buffer.add(7, EntryBatch.of(5, [commit(first).pack(5), tombstone.pack(6)]))
    assert buffer.decide(EntryPosition(7, 1), TransactionId(*first)) == "committed"
    assert buffer.stable_position == EntryPosition(7, 6)


def test_a_contradiction_keeps_what_it_is_about():
    """A coordinator ends a transaction once."""
    buffer = buffer_of([of(ONE), abort(ONE), commit(ONE)])
    assert buffer.decide(EntryPosition(7, 0), TransactionId(*ONE)) == "committed"


def test_a_buffer_that_is_not_ready_decides_nothing():
    buffer = TransactionBuffer()
    buffer.add(7, EntryBatch.of(0, [PLAIN.pack(0), of(ONE).pack(1), abort(ONE).pack(2)]))
    assert buffer.state is BufferState.NO_SNAPSHOT
    assert buffer.decide(EntryPosition(7, 0), None) == "undecided"
    again = TransactionBuffer.restore(buffer.snapshot())
    assert again.state is BufferState.INITIALIZING
    assert again.decide(EntryPosition(7, 1), TransactionId(*ONE)) == "undecided"
    again.become_ready()
    assert again.decide(EntryPosition(7, 1), TransactionId(*ONE)) == "aborted"


def test_aborted_transactions_are_forgotten_with_the_ledgers_that_have_their_last_entries():
    buffer = buffer_of([of(ONE), of(OTHER), of(THIRD), abort(ONE), abort(OTHER)])
    buffer.add(9, EntryBatch.of(0, [of(ONE).pack(0), abort(THIRD).pack(1)]))
    buffer.forget_before(9)
    assert set(buffer.aborted) == {ONE, THIRD}
    buffer.forget_before(10)
    assert buffer.aborted == {}


# --- drawn histories ---------------------------------------------------------------------------


def spread(happened, borders):
    """Events over ledgers that begin at these numbers."""
    begins = [0, *sorted(border for border in borders if border < len(happened))]
    places = [max(i for i, begin in enumerate(begins) if begin <= number) for number in range(len(happened))]
    return [
        ((5 + 3 * place, number - begins[place]), event)
        for number, (place, event) in enumerate(zip(places, happened, strict=True))
    ]


@given(
    happened=events(late=True),
    borders=st.sets(st.integers(1, 30), max_size=3),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    cut=st.integers(0, 40),
)
def test_it_decides_as_a_broker_that_keeps_the_topic(happened, borders, sizes, cut):
    """Whole, and restored from a snapshot of any moment and the entries behind its stable position."""
    history = spread(happened, sorted(borders))
    packed = [
        (ledger_id, entry_id, event.pack(i)) for i, ((ledger_id, entry_id), event) in enumerate(history)
    ]
    buffer = ready()
    for ledger_id, entries in batches(packed[:cut], sizes):
        buffer.add(ledger_id, entries)
    snapshot = buffer.snapshot()
    for ledger_id, entries in batches(packed[cut:], sizes):
        buffer.add(ledger_id, entries)
    restored = TransactionBuffer.restore(snapshot)
    stable = snapshot.stable_position
    behind = [each for each in packed if stable is None or EntryPosition(*each[:2]) > stable]
    for ledger_id, entries in batches(behind, sizes):
        restored.add(ledger_id, entries)
    restored.become_ready()
    assert restored.snapshot() == buffer.snapshot()
    assert restored.open_transactions == buffer.open_transactions

    seen = simulate(history, (0, 0), END)
    states = {place[:2]: state for *place, _, state in seen.uncommitted for place in [tuple(place)]}
    open_places = [place for place, state in states.items() if state == "open"]
    end = min(open_places, default=END)
    for place, event in history:
        transaction = None if event.transaction is None else TransactionId(*event.transaction)
        decided = buffer.decide(EntryPosition(*place), transaction)
        if place >= end:
            assert decided == "undecided"
        elif event.kind == "messages":
            assert decided == ("aborted" if states[place] == "aborted" else "committed")
    before = [place for place, _ in history if place < end]
    assert buffer.stable_position == (EntryPosition(*before[-1]) if before else None)


# --- Pulsar's topic ----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1 << 30,), (1, 7, 100)])
def test_of_pulsars_topic_it_knows_what_became_of_each_message(sizes):
    packed = [
        each for stored in topic_objects("txn") for each in read_object(stored.data, stored.index, stored.key)
    ]
    buffer = ready()
    for ledger_id, entries in batches(packed, sizes):
        buffer.add(ledger_id, entries)
    assert tuple(buffer.open_transactions) == ()
    assert buffer.stable_position == EntryPosition(*packed[-1][:2])
    transactions = {(ledger_id, entry_id): of_entry(payload) for ledger_id, entry_id, payload in packed}
    sent = sent_in_transactions()
    assert {row["state"] for row in sent} >= {"committed", "aborted"}
    for row in sent:
        place = row["ledger"], row["entry"]
        if row["txn_id"] is not None:
            assert transactions[place] == tuple(row["txn_id"])
            assert buffer.decide(EntryPosition(*place), transactions[place]) == row["state"]


def of_entry(payload):
    metadata = split_entry(payload).metadata
    if not metadata.HasField("txnid_most_bits"):
        return None
    return TransactionId(metadata.txnid_most_bits, metadata.txnid_least_bits)


# --- what is refused ---------------------------------------------------------------------------


def test_entries_that_are_not_behind_the_others_are_refused():
    buffer = buffer_of([PLAIN, PLAIN])
    for ledger_id, entry_id in ((7, 1), (7, 0), (6, 9)):
        with pytest.raises(EntryOrderError, match="after 7:1"):
            buffer.add(ledger_id, EntryBatch.of(entry_id, [PLAIN.pack(0)]))
    buffer.add(7, EntryBatch.of(5, [PLAIN.pack(0)]))
    buffer.add(7, EntryBatch.of(6, []))
    assert buffer.last_position == EntryPosition(7, 5)


def test_of_a_batch_with_a_damaged_entry_nothing_is_taken():
    buffer = buffer_of([PLAIN])
    damaged = bytearray(of(ONE).pack(3))
    damaged[3] ^= 1
    for entries, error in (
        ([of(OTHER).pack(1), b"not Pulsar's"], BadLengthError),
        ([damaged], ChecksumError),
    ):
        with pytest.raises(error) as raised:
            buffer.add(7, EntryBatch.of(1, entries))
        assert (raised.value.ledger_id, raised.value.entry_id) == (7, len(entries))
    assert buffer.last_position == EntryPosition(7, 0)
    assert tuple(buffer.open_transactions) == ()
