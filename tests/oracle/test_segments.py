"""Segments of our `OffloadHandle`, read by Pulsar's own reader wherever it can read one."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from effort import effort
from hypothesis import given
from hypothesis import strategies as st
from scenes.filters import PlainFilter
from scenes.judged import (
    LEAST_PART_BYTES,
    contents,
    entries_of,
    new_attempt,
    new_ledger_id,
    payload_lists,
    segmented,
)
from scenes.offered import NAMES, LimitedDriver, Part, begin_of, offer, offloader_of
from scenes.transactions import message
from stores import Store

from offload_core.metadata.records.filter_record import FilterMode
from offload_core.storage.tier import Tier
from offload_core.writing.offload.segment_offloader import SegmentFilter
from offload_core.writing.offload_filters import FilterRun

MIB = 1 << 20


def offloaded(tier, parts, *, max_block_bytes, segment_filter=None):
    """Offload a segment; the offload context of each ledger, serialised."""
    attempt = new_attempt()
    with offloader_of(tier, max_block_bytes=max_block_bytes) as offloader:
        handle = offloader.open_segment(attempt, begin_of(parts), NAMES, segment_filter=segment_filter)
        for part in parts:
            offer(handle, part)
        handle.close()
        ends = handle.result().result(60).end_entry_ids
    return {ledger_id: segmented((attempt, end)) for ledger_id, end in ends.items()}


@given(data=st.data())
@effort(0.4)
def test_whole_segments_of_one_ledger_or_several_are_read(oracle, data):
    """With a short last block, blocks padded or just full, and ledgers that are closed or still open."""
    block_bytes = data.draw(st.integers(200, 3000))
    least = data.draw(st.integers(1, block_bytes))
    drawn = data.draw(st.lists(payload_lists(block_bytes, 2 * block_bytes, most=12), min_size=1, max_size=3))
    ended = data.draw(st.booleans())
    parts = [
        Part(ledger_id=new_ledger_id(), payloads=payloads, ended=ended or i < len(drawn))
        for i, payloads in enumerate(drawn, 1)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(name="local", url=folder)
        tier = Tier(LimitedDriver(Path(folder), min_block_bytes=least))
        contexts = offloaded(tier, parts, max_block_bytes=block_bytes)
        for part in parts:
            whole = (0, len(part.payloads) - 1)
            read = oracle.read(store, contexts[part.ledger_id], part.ledger_id, [whole])
            assert read.ended
            assert read.entries == entries_of(part.ledger_id, part.payloads)
            assert read.last_add_confirmed == whole[1]


@pytest.mark.parametrize("begin", [1, 127])
def test_a_segment_that_begins_before_entry_128_of_its_ledger_is_read(oracle, folder, begin):
    part = Part(
        ledger_id=new_ledger_id(), first_entry_id=begin, payloads=contents([90] * 300, seed=1), ended=False
    )
    with folder.open() as tier:
        contexts = offloaded(tier, [part], max_block_bytes=3000)
    read = oracle.read(folder, contexts[part.ledger_id], part.ledger_id, [(begin, begin + 299)])
    assert read.entries == entries_of(part.ledger_id, part.payloads, begin)


def test_a_segment_on_s3_is_read_with_a_last_part_shorter_than_5_mib(oracle, bucket):
    parts = [
        Part(ledger_id=new_ledger_id(), payloads=contents([3, 4 * MIB, 2 * MIB, 9 * MIB, 0], seed=2)),
        Part(ledger_id=new_ledger_id(), payloads=contents([70_000] * 90, seed=3)),
        Part(ledger_id=new_ledger_id(), payloads=contents([9], seed=4), ended=False),
    ]
    with bucket.open() as tier:
        contexts = offloaded(tier, parts, max_block_bytes=LEAST_PART_BYTES)
    for part in parts:
        whole = (0, len(part.payloads) - 1)
        read = oracle.read(bucket, contexts[part.ledger_id], part.ledger_id, [whole])
        assert read.entries == entries_of(part.ledger_id, part.payloads)


def test_a_segment_with_tombstones_is_read_as_any_other(oracle, folder):
    """Its index has what the filter did, of which Pulsar's reader knows nothing."""
    parts = [
        Part(ledger_id=new_ledger_id(), payloads=[message() for _ in range(count)]) for count in (40, 3, 9)
    ]
    dropped = {*parts[0].payloads[::3], *parts[1].payloads}
    run = FilterRun("some", FilterMode.TOMBSTONE, PlainFilter(lambda payload: payload in dropped))
    with folder.open() as tier:
        contexts = offloaded(tier, parts, max_block_bytes=600, segment_filter=SegmentFilter(run, None))
    for part in parts:
        read = oracle.read(folder, contexts[part.ledger_id], part.ledger_id, [(0, len(part.payloads) - 1)])
        assert read.ended
        assert len(read.entries) == len(part.payloads)
        wanted = entries_of(part.ledger_id, part.payloads)
        for found, entry, payload in zip(read.entries, wanted, part.payloads, strict=True):
            assert (found == entry) == (payload not in dropped)
