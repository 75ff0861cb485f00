"""Pulsar's classes write, we read; and where ours write the same, the bytes are the same."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

from effort import effort
from entries import pip17_object, read_object
from hypothesis import given
from hypothesis import strategies as st
from scenes.judged import (
    FRAME_ROOM,
    LEAST_PART_BYTES,
    contents,
    entries_of,
    new_attempt,
    new_ledger_id,
    payload_lists,
    scanned,
)
from stores import Store

from offload_core.format.codec.object_format import ObjectKey


def block_setting(block_bytes):
    return {"managedLedgerOffloadMaxBlockSizeInBytes": block_bytes}


@given(data=st.data())
@effort(0.4)
def test_a_pip17_object_of_pulsars_is_ours_byte_for_byte_and_is_read(oracle, data):
    block_bytes = data.draw(st.integers(FRAME_ROOM, 5000))
    payloads = data.draw(payload_lists(block_bytes, block_bytes - FRAME_ROOM))
    ledger_id, attempt = new_ledger_id(), new_attempt()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(name="local", url=folder)
        oracle.offload(store, attempt, ledger_id, payloads, **block_setting(block_bytes))
        key = ObjectKey(folder="", uuid=attempt, ledger_id=ledger_id, is_index=False)
        stored = (Path(folder, key.data_key).read_bytes(), Path(folder, key.index_key).read_bytes())
        ours = pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=block_bytes)
        assert stored == (ours.data, ours.index)
        assert read_object(*stored, key) == entries_of(ledger_id, payloads)
        assert scanned(store, ledger_id) == entries_of(ledger_id, payloads)


@given(data=st.data())
@effort(0.1)
def test_streaming_objects_of_pulsars_are_read(oracle, data):
    """Several ledgers in a segment, and a ledger in several; none with more than a block (see test_faults)."""
    block_bytes = data.draw(st.integers(1000, 6000))
    ledgers = {}
    for _ in range(data.draw(st.integers(1, 4))):
        payloads, room = [], block_bytes - FRAME_ROOM
        for payload in data.draw(payload_lists(block_bytes, block_bytes // 2)):
            room -= len(payload) + 12
            if room >= 0:
                payloads.append(payload)
        ledgers[new_ledger_id()] = payloads
    entries = [entry for ledger_id, payloads in ledgers.items() for entry in entries_of(ledger_id, payloads)]
    cuts = data.draw(st.lists(st.integers(1, len(entries)), max_size=3))
    known = {
        ledger_id: {"entries": len(payloads), "size": sum(map(len, payloads)), "timestamp_ms": 1}
        for ledger_id, payloads in ledgers.items()
        if data.draw(st.booleans())
    }
    setting = {"managedLedgerOffloadMinBlockSizeInBytes": block_bytes}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(name="local", url=folder)
        for first, last in pairwise(sorted({0, *cuts, len(entries)})):
            oracle.stream(store, new_attempt(), entries[first:last], closed=known, **setting)
        for ledger_id, payloads in ledgers.items():
            assert scanned(store, ledger_id) == entries_of(ledger_id, payloads)


def test_a_pip17_object_of_pulsars_on_s3_is_read(oracle, bucket):
    ledger_id, attempt = new_ledger_id(), new_attempt()
    payloads = contents([0, 4 << 20, 3 << 20, 1, LEAST_PART_BYTES - FRAME_ROOM, 70_000], seed=1)
    oracle.offload(bucket, attempt, ledger_id, payloads, **block_setting(LEAST_PART_BYTES))
    ours = pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=LEAST_PART_BYTES)
    key = ObjectKey(folder="", uuid=attempt, ledger_id=ledger_id, is_index=False)
    with bucket.open() as tier:
        assert tier.read_range(key.data_key, 0, len(ours.data)) == ours.data
        assert tier.stat(key.data_key).size_bytes == len(ours.data)
        assert tier.read_range(key.index_key, 0, len(ours.index)) == ours.index
    assert scanned(bucket, ledger_id) == entries_of(ledger_id, payloads)


def test_streaming_objects_of_pulsars_on_s3_are_read(oracle, bucket):
    one, two = new_ledger_id(), new_ledger_id()
    payloads = contents([0, 1 << 20, 2 << 20, 7], seed=2)
    entries = entries_of(one, payloads) + entries_of(two, payloads)
    oracle.stream(bucket, new_attempt(), entries[:6])
    oracle.stream(bucket, new_attempt(), entries[6:])
    assert scanned(bucket, one) == entries_of(one, payloads)
    assert scanned(bucket, two) == entries_of(two, payloads)
