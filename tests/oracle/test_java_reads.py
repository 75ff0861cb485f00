"""We write, Pulsar's classes read."""

from __future__ import annotations

import tempfile

from effort import effort
from entries import LedgerPart, pip17_object
from hypothesis import given
from hypothesis import strategies as st
from scenes.judged import (
    FRAME_ROOM,
    LEAST_PART_BYTES,
    contents,
    entries_of,
    entries_of_parts,
    new_ledger_id,
    payload_lists,
    ranges,
    scanned,
    segments,
    store_object,
    store_segments,
)
from stores import Store


@given(data=st.data())
@effort(0.4)
def test_pip17_objects_of_ours_are_read_at_any_place(oracle, data):
    """Also entries larger than a block, which have one for themselves."""
    block_bytes = data.draw(st.integers(FRAME_ROOM, 4000))
    payloads = data.draw(payload_lists(block_bytes, 3 * block_bytes))
    wanted = data.draw(st.lists(ranges(len(payloads)), max_size=6))
    ledger_id = new_ledger_id()
    expected = entries_of(ledger_id, payloads)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(name="local", url=folder)
        attempt = store_object(
            store, pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=block_bytes)
        )
        read = oracle.read(store, attempt, ledger_id, [(0, len(payloads) - 1), *wanted])
    assert read.ended
    assert read.entries == expected + [entry for a, b in wanted for entry in expected[a : b + 1]]
    assert (read.last_add_confirmed, read.length) == (len(payloads) - 1, sum(map(len, payloads)))


@given(data=st.data())
@effort(0.2)
def test_streaming_objects_of_ours_are_read(oracle, data):
    """What comes before the entry asked for, and the order of segments, are faults of Pulsar's (test_faults)."""
    drawn = data.draw(segments())
    with tempfile.TemporaryDirectory() as folder:
        store = Store(name="local", url=folder)
        for ledger_id, context in store_segments(store, drawn).items():
            expected = entries_of_parts(drawn, ledger_id)
            first, last = data.draw(ranges(len(expected)))
            read = oracle.read(store, context, ledger_id, [(0, len(expected) - 1), (first, last)])
            assert (read.ended, read.counts[0]) == (True, len(expected))
            assert sorted(read.entries[: len(expected)]) == expected
            assert sorted(read.entries[len(expected) :])[first - last - 1 :] == expected[first : last + 1]


def test_a_pip17_object_of_ours_on_s3_is_read_also_with_an_entry_larger_than_a_block(oracle, bucket):
    ledger_id = new_ledger_id()
    payloads = contents([0, 4 << 20, 3 << 20, 12 << 20, 1, 70_000], seed=3)
    written = pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=LEAST_PART_BYTES)
    attempt = store_object(bucket, written)
    read = oracle.read(bucket, attempt, ledger_id, [(0, 5), (3, 4), (5, 5)])
    expected = entries_of(ledger_id, payloads)
    assert read.entries == [*expected, *expected[3:5], expected[5]]
    assert scanned(bucket, ledger_id) == expected


def test_streaming_objects_of_ours_on_s3_are_read(oracle, bucket):
    one, two = new_ledger_id(), new_ledger_id()
    a, b, c = contents([0, 1 << 20, 2 << 20], seed=4), contents([3] * 100, seed=5), contents([9], seed=6)
    drawn = [
        [LedgerPart(ledger_id=one, blocks=[a])],
        [LedgerPart(ledger_id=one, blocks=[b], first_entry_id=3), LedgerPart(ledger_id=two, blocks=[c, a])],
    ]
    contexts = store_segments(bucket, drawn, min_block_bytes=LEAST_PART_BYTES)
    assert sorted(oracle.read(bucket, contexts[one], one, [(0, 102)]).entries) == entries_of(one, a + b)
    assert oracle.read(bucket, contexts[two], two, [(0, 3)]).entries == entries_of(two, c + a)
