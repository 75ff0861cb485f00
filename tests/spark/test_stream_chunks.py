"""Streams and chunked messages: each comes once, with its last chunk, wherever micro-batches and restarts cut it."""

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from effort import effort
from entries import CODECS, LedgerPart, entry, marker, pip17_object, streaming_object
from hypothesis import given
from hypothesis import strategies as st
from scenes.messages import SentMessage, StoredMessages, interleaved, readable
from streams import Query
from tiers import lay_out

from offload_hooks.errors import IncompleteMessageError

COLUMNS = ("__ledgerId", "__entryId", "value")
FIRST_LEDGER = 10


def put(root, ledger_id, entries):
    """A ledger, in small blocks."""
    lay_out(root, pip17_object(entries, ledger_id=ledger_id, max_block_bytes=300), attempt=ledger_id)


def put_segment(root, ledger_id, first, entries):
    """A segment of a streaming ledger."""
    part = LedgerPart(ledger_id=ledger_id, blocks=[entries], first_entry_id=first)
    lay_out(root, streaming_object([part]), attempt=1000 * ledger_id + first)


def message(number=0, producer="a", chunks=4, **fields):
    return SentMessage(
        producer=producer, number=number, value=b"value %d " % number * 5, chunks=chunks, **fields
    )


def entries_of(*messages):
    return [each.payload for each in interleaved(messages, ())]


# --- drawn -------------------------------------------------------------------------------------

MESSAGES = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(1, 5),
        st.sampled_from(sorted(CODECS)),
        st.one_of(st.just(frozenset[int]()), st.frozensets(st.integers(0, 4), max_size=2)),
    ),
    min_size=1,
    max_size=8,
)
LIMITS = st.lists(st.tuples(st.sampled_from([1, 2, 5, 1000]), st.booleans()), max_size=3)


@pytest.mark.long
@effort(0.4)
@given(MESSAGES, st.lists(st.integers(0, 2), max_size=40), st.booleans(), st.data())
def test_a_growing_topic_gives_each_complete_message_once(drawn, order, is_segmented, data):
    stored = interleaved(
        [
            message(number, producer, chunks, codec=codec, lost=frozenset(i for i in lost if i < chunks))
            for number, (producer, chunks, codec, lost) in enumerate(drawn)
        ],
        order,
    )
    places = list(range(1, len(stored)))
    cuts = sorted(data.draw(st.sets(st.sampled_from(places), max_size=4))) if places else []
    at: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        query = Query(Path(folder), columns=COLUMNS, mode="DROPMALFORMED")
        for number, (begin, end) in enumerate(pairwise([0, *cuts, len(stored)])):
            entries = [each.payload for each in stored[begin:end]]
            if not entries:
                continue
            ledger_id = FIRST_LEDGER if is_segmented else FIRST_LEDGER + number
            first = begin if is_segmented else 0
            if is_segmented:
                put_segment(Path(folder), ledger_id, first, entries)
            else:
                put(Path(folder), ledger_id, entries)
            at += [(ledger_id, first + i) for i in range(len(entries))]
            for limit, restarts in data.draw(LIMITS):
                if restarts:
                    query.restart(maxOffsetsPerTrigger=limit)
                query.trigger()
            query.run()
            assert query.rows == [(*at[place], value) for place, value in readable(stored[:end])]


# --- by example --------------------------------------------------------------------------------


def values(query):
    return [row[-1] for row in query.rows]


def test_a_message_is_read_when_its_last_chunk_has_come(tmp_path):
    one, other = message(), message(1, "b")
    stored = [each.payload for each in interleaved([one, other], [0, 1] * 4)]
    query = Query(tmp_path, columns=COLUMNS)
    put(tmp_path, 10, stored[:3])
    assert query.run() == []
    put(tmp_path, 11, stored[3:7])
    query.restart()
    assert query.run() == [(11, 3, one.value)]
    put(tmp_path, 12, stored[7:])
    query.restart(maxOffsetsPerTrigger=1)
    assert query.run() == [(12, 0, other.value)]


def test_a_query_may_begin_in_the_middle_of_a_message(tmp_path):
    put(tmp_path, 10, entries_of(message(), message(1)))
    starting = '{"acme/cold/orders": {"-1": "10:2"}}'
    query = Query(tmp_path, columns=COLUMNS, startingOffsets=starting, maxOffsetsPerTrigger=1)
    assert query.run() == [(10, 3, message().value), (10, 7, message(1).value)]


def test_a_chunk_that_is_sent_again_later_gives_nothing_again(tmp_path):
    chunks = entries_of(message())
    put(tmp_path, 10, chunks)
    query = Query(tmp_path, columns=COLUMNS)
    assert len(query.run()) == 1
    put(tmp_path, 11, [*chunks[2:], entry(b"last")])
    query.restart()
    assert query.run() == [(11, 2, b"last")]


def test_a_message_that_lost_a_chunk_is_by_mode(tmp_path):
    put(tmp_path, 10, entries_of(message(lost=frozenset({2}))))
    put(tmp_path, 11, entries_of(message(1)))
    query = Query(tmp_path, columns=COLUMNS, maxOffsetsPerTrigger=1)
    assert query.trigger()
    assert query.trigger()
    with pytest.raises(IncompleteMessageError, match="'a-0' by 'a'"):
        query.trigger()
    for mode in ("DROPMALFORMED", "PERMISSIVE"):
        query = Query(tmp_path, columns=COLUMNS, maxOffsetsPerTrigger=1, mode=mode)
        assert query.run() == [(11, 3, message(1).value)]


def test_a_message_that_its_producer_never_finished_is_noticed_once_enough_has_followed(tmp_path):
    put(tmp_path, 10, entries_of(message(lost=frozenset({3}))))
    query = Query(tmp_path, columns=COLUMNS, chunkLookBackBytes=500)
    assert query.run() == []  # the rest may be on its way
    put(tmp_path, 11, [entry(b"x" * 100) for _ in range(20)])
    assert len(query.run()) == 20
    whole = Query(tmp_path, columns=COLUMNS, chunkLookBackBytes=500)
    with pytest.raises(IncompleteMessageError, match="no more of it follows within 500 bytes"):
        whole.run()


def test_chunks_and_transactions_together(tmp_path):
    """A chunked message of a transaction that commits, one of another that aborts, and a plain one around both."""
    kept = message(0, "a", transaction=(0, 1))
    gone = message(1, "b", transaction=(0, 2))
    plain = message(2, "c")
    stored: list[StoredMessages] = interleaved([kept, gone, plain], [2, 1, 0] * 4)
    entries = [each.payload for each in stored]
    put(tmp_path, 10, entries[:5])
    query = Query(tmp_path, columns=COLUMNS, maxOffsetsPerTrigger=2)
    assert query.run() == []
    put(tmp_path, 11, [*entries[5:], marker(22, txnid_most_bits=0, txnid_least_bits=2)])
    assert query.run() == []
    query.restart()
    put(tmp_path, 12, [marker(21, txnid_most_bits=0, txnid_least_bits=1), entry(b"last")])
    query.run()
    assert sorted(values(query)) == sorted([kept.value, plain.value, b"last"])
    assert len(values(query)) == 3
