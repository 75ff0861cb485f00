"""Which entries the filter of transactions drops, and for which cause; what it waits for is the topics' to test."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes.transactions import ONE, OTHER, PLAIN, Event, abort, commit, events, of

from offload_core.writing.transaction_filter import TransactionOffloadFilter
from offload_hooks.errors import ChecksumError, UnresolvedTransactionError
from offload_hooks.filters import SettledTransactions
from offload_hooks.ledger_stores import EntryBatch

TOMBSTONE, SNAPSHOT = Event(kind="tombstone"), Event(kind="snapshot")


def dropped(happened, aborted, sizes=(1000,)):
    """The cause of each entry, in batches of these sizes, by turns; empty for those that are kept."""
    settled = None
    if aborted is not None:
        settled = SettledTransactions(stop=(9, 1000), aborted=aborted, waits_for="")
    opened = TransactionOffloadFilter().open(SimpleNamespace(name="topic", settle=lambda: settled))
    payloads = [event.pack(i) for i, event in enumerate(happened)]
    causes = []
    turn = 0
    while len(causes) < len(payloads):
        batch = EntryBatch.of(len(causes), payloads[len(causes) :][: sizes[turn % len(sizes)]])
        numbers = memoryview(opened.look(9, batch)).cast("B").cast("i").tolist()
        causes += ["" if not number else opened.causes[number - 1] for number in numbers]
        turn += 1
    return causes


def test_entries_of_aborted_transactions_and_markers_go_and_all_else_stays():
    happened = [
        PLAIN,
        of(ONE),
        of(OTHER, 3),
        of(ONE),
        TOMBSTONE,
        SNAPSHOT,
        abort(ONE),
        commit(OTHER),
        of(ONE),
    ]
    assert dropped(happened, {ONE}) == [
        *("", f"aborted ({ONE[0]},{ONE[1]})", "", f"aborted ({ONE[0]},{ONE[1]})", "", ""),
        *("marker", "marker", f"aborted ({ONE[0]},{ONE[1]})"),
    ]
    assert dropped([of(ONE), of(ONE)], set()) == ["", ""]


@given(
    events(late=True),
    st.sets(st.sampled_from([(0, 0), (0, 1), (1, 0), (2, 7)])),
    st.lists(st.integers(1, 7), min_size=1, max_size=4).map(tuple),
)
def test_any_history_in_any_batches_is_as_the_events_say(happened, aborted, sizes):
    wrong = [
        place
        for place, event in enumerate(happened)
        if event.kind in ("commit", "abort") and (event.transaction in aborted) != (event.kind == "abort")
    ]
    if wrong:  # of a snapshot that does not have all of the topic
        with pytest.raises(UnresolvedTransactionError, match="not that of the topic's snapshot") as caught:
            dropped(happened, aborted, sizes)
        assert caught.value.entry_id == wrong[0]
        return
    expected = [
        "marker"
        if event.kind in ("commit", "abort")
        else f"aborted ({event.transaction[0]},{event.transaction[1]})"
        if event.kind == "messages" and event.transaction is not None and event.transaction in aborted
        else ""
        for event in happened
    ]
    assert dropped(happened, aborted, sizes) == expected


def test_without_a_snapshot_all_stays_and_what_is_of_a_transaction_is_refused():
    assert dropped([PLAIN, SNAPSHOT, TOMBSTONE, PLAIN], None, (2,)) == [""] * 4
    for event in (of(ONE), commit(ONE), abort(ONE)):
        with pytest.raises(UnresolvedTransactionError) as caught:
            dropped([PLAIN, event], None)
        assert (caught.value.ledger_id, caught.value.entry_id) == (9, 1)


def test_a_damaged_entry_is_not_dropped_but_refused():
    payload = bytearray(of(ONE).pack(1))
    payload[-1] ^= 1
    settled = SettledTransactions(stop=(9, 1000), aborted={ONE}, waits_for="")
    opened = TransactionOffloadFilter().open(SimpleNamespace(name="topic", settle=lambda: settled))
    with pytest.raises(ChecksumError) as caught:
        opened.look(9, EntryBatch.of(4, [PLAIN.pack(0), bytes(payload)]))
    assert (caught.value.ledger_id, caught.value.entry_id) == (9, 5)
