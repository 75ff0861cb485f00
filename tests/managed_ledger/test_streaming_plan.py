"""Where segments begin and end, and what the buffer gives, against plain reference implementations."""

import time
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
    OffloadSegment,
    segments_of,
    unfinished_segment,
)
from offload_core.storage.tier import MemoryBudget
from offload_core.writing.managed_ledger.streaming.feed import OffloadBuffer
from offload_core.writing.managed_ledger.streaming.segment_plan import planned_end
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=8), min_size=1, max_size=5),
    st.integers(0, 40),
    st.integers(1, 60),
    st.booleans(),
)
def test_the_end_of_history_is_the_first_entry_that_reaches_the_size(sizes, skipped, max_bytes, last_is_open):
    hot = MemoryLedgerStore(MemoryLedgers())
    records = []
    for lengths in sizes:
        writer = hot.create({})
        writer.append_batch([b"x" * length for length in lengths])
        info = LedgerInfo(ledger_id=writer.ledger_id, entries=len(lengths), size=sum(lengths), timestamp_ms=1)
        records.append(LedgerRecord(info=info))
    if last_is_open:
        records[-1] = LedgerRecord(info=LedgerInfo(ledger_id=records[-1].ledger_id))
    begin = EntryPosition(records[0].ledger_id, skipped % len(sizes[0]))
    positions = [
        (EntryPosition(record.ledger_id, i), length)
        for record, lengths in zip(records, sizes, strict=True)
        for i, length in enumerate(lengths)
        if record.info.is_closed
    ]
    reached, wanted = 0, None
    for position, length in positions:
        if position >= begin and reached < max_bytes:
            reached += length
            wanted = position if reached >= max_bytes else None
    assert planned_end(ManagedLedgerInfo(ledgers=tuple(records)), begin, max_bytes, hot) == wanted


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.randoms(use_true_random=False),
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1500)), max_size=12),
    st.integers(1, 6000),
)
def test_the_buffer_gives_what_follows_and_keeps_within_its_budget(counts, random, asked, limit):
    budget = MemoryBudget(limit)
    buffer = OffloadBuffer(budget)
    puts, entry_id = [], 0
    for count in counts:
        puts.append((entry_id, [b"%d" % (entry_id + i) * 20 for i in range(count)]))
        entry_id += count
    random.shuffle(puts)
    kept = {}
    for first, payloads in puts:
        if buffer.put(7, first, payloads):
            kept |= {first + i: payload for i, payload in enumerate(payloads)}
        assert budget.taken_bytes == buffer.used_bytes <= limit
    for first, max_bytes in sorted(asked):
        batch = buffer.get(7, first, entry_id, max_bytes)
        assert (batch is None) == (first not in kept)
        if batch is not None:
            assert batch.first_entry_id == first
            assert len(batch) >= 1
            assert [bytes(each) for each in batch] == [kept[first + i] for i in range(len(batch))]
    assert buffer.get(8, 0, 1, 10) is None
    assert budget.taken_bytes == 0
    buffer.close()
    assert not buffer.put(8, 0, [b"x"])
    assert budget.taken_bytes == 0


def test_the_end_of_history_is_found_at_once_over_many_small_ledgers():
    count = 4000
    info = ManagedLedgerInfo(
        ledgers=tuple(
            LedgerRecord(info=LedgerInfo(ledger_id=i, entries=1, size=10, timestamp_ms=1))
            for i in range(count)
        )
    )
    begun = time.process_time()
    assert planned_end(info, EntryPosition(0, 0), 1 << 30, MemoryLedgerStore(MemoryLedgers())) is None
    assert time.process_time() - begun < 1


def test_a_ledger_of_many_segments_takes_no_longer_for_each_of_them():
    driver = DriverMetadata(name="filesystem")
    shares = tuple(
        OffloadSegment(uuid=uuid4(), complete=True, end_entry_id=i, driver=driver).with_extent(
            EntryPosition(1, i), EntryPosition(1, i)
        )
        for i in range(6000)
    )
    ledger = LedgerRecord(
        info=LedgerInfo(ledger_id=1), context=OffloadContext(uuid=shares[0].uuid, segments=shares)
    )
    info = ManagedLedgerInfo(ledgers=(ledger,))
    begun = time.process_time()
    assert unfinished_segment(info) is None
    assert len(segments_of(info)) == len(shares)
    assert time.process_time() - begun < 2
