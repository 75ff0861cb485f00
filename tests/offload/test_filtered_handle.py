"""A segment whose entries go through a filter: what is left of them, what is told of it, and how it is read."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import segment
from scenes.filters import PlainFilter
from scenes.offered import (
    NAMES,
    UUID_1,
    LimitedDriver,
    Part,
    begin_of,
    offer,
    offloader_of,
    parts_of_segments,
)

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_marks import FILTERED_KEY, FILTERED_MODE_KEY, ObjectMarks
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.records import EntryPosition, LedgerRecord, OffloadContext
from offload_core.metadata.records.filter_record import (
    RECORD_KEY,
    DroppedEntries,
    FilterMode,
    parse_filter_record,
)
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.storage.tier import MemoryBudget, Tier
from offload_core.writing.offload import OfferResult
from offload_core.writing.offload.hot_copy_check import check_cold_copies
from offload_core.writing.offload.segment_offloader import SegmentFilter, segment_key
from offload_core.writing.offload_filters import FilterRun
from offload_hooks.errors import EntryOrderError
from offload_hooks.ledger_stores import EntryBatch

SOON_S = 60
ACCEPTED, NEXT, FULL = (OfferResult.ACCEPTED, OfferResult.NOT_CONSECUTIVE, OfferResult.BUFFER_FULL)


def segment_filter(filter_, stop=None):
    return SegmentFilter(FilterRun("odd", FilterMode.GAP, filter_), stop)


def is_odd(payload):
    """By their first byte, so that it is the same for an entry every time."""
    return payload[0] % 2 if payload else 0


def record_of(tier, part, filtered=None):
    share = segment(UUID_1, part.stop_entry_id - 1, driver=tier_record(tier))
    share = share.with_filter_record(None if filtered is None else filtered.pack(short=True))
    return LedgerRecord(info=part.info, context=OffloadContext.of_segments([share], complete=True))


def read_sparsely(tier, part, max_bytes=700):
    """What a segment has of a ledger, by a read handle."""
    reader = ColdReaders(KnownTiers(tier), memory=ReadMemory(), read_buffer_bytes=1000).open(
        record_of(tier, part)
    )
    found = {}
    begin, last = part.first_entry_id, part.stop_entry_id - 1
    while begin <= last:
        read = reader.read_sparse(begin, last, max_bytes)
        for batch in read.runs():
            found |= {i: bytes(each) for i, each in enumerate(batch, batch.first_entry_id)}
        assert read.stop_entry_id > begin
        begin = read.stop_entry_id
    return found


def left_of(part, drops):
    numbered = enumerate(part.payloads, part.first_entry_id)
    return {i: payload for i, payload in numbered if payload not in drops}


def counted(payloads):
    return DroppedEntries(entries=len(payloads), payload_bytes=sum(map(len, payloads)))


@given(
    parts=parts_of_segments(),
    max_block_bytes=st.integers(144, 900),
    min_block_bytes=st.integers(1, 900),
    cuts=st.lists(st.integers(1, 11), max_size=4),
    data=st.data(),
)
def test_what_a_filter_leaves_is_read_back_and_what_it_took_is_told(
    parts, max_block_bytes, min_block_bytes, cuts, data
):
    min_block_bytes = min(min_block_bytes, max_block_bytes)
    drops = data.draw(
        st.lists(st.sampled_from([each for part in parts for each in part.payloads]), unique=True)
    )
    filter_ = segment_filter(PlainFilter(lambda payload: payload in drops))
    with tempfile.TemporaryDirectory() as folder:
        tier = Tier(LimitedDriver(Path(folder), min_block_bytes=min_block_bytes))
        with offloader_of(tier, max_block_bytes=max_block_bytes) as offloader:
            handle = offloader.open_segment(UUID_1, begin_of(parts), NAMES, segment_filter=filter_)
            for part in parts:
                offer(handle, part, cuts)
            handle.close()
            done = handle.result().result(SOON_S)
        with_entries = [part for part in parts if part.payloads]
        last = with_entries[-1]
        assert done.begin == begin_of(with_entries)
        assert done.end == EntryPosition(last.ledger_id, last.stop_entry_id - 1)
        assert done.end_entry_ids == {part.ledger_id: part.stop_entry_id - 1 for part in with_entries}
        kept = [payload for part in parts for payload in part.payloads if payload not in drops]
        assert (done.entries, done.payload_bytes) == (len(kept), sum(map(len, kept)))
        key = segment_key(UUID_1)
        index = read_index(
            tier, key, index_bytes=tier.stat(key.index_key).size_bytes, data_bytes=done.data_bytes
        )
        assert [each.ledger_id for each in index.ledgers] == [part.ledger_id for part in with_entries]
        for part, found in zip(with_entries, index.ledgers, strict=True):
            assert read_sparsely(tier, part) == left_of(part, drops)
            record = done.filter_records[part.ledger_id]
            assert record.kept == counted(list(left_of(part, drops).values()))
            taken = [payload for payload in part.payloads if payload in drops]
            assert record.dropped == ({"unwanted": counted(taken)} if taken else {})
            assert isinstance(found.metadata, LedgerInfo)
            assert parse_filter_record(dict(found.metadata.properties)[RECORD_KEY]) == record
            assert replace(found.metadata, properties=()) == (
                part.info if part.ended else LedgerInfo(ledger_id=part.ledger_id, entries=part.stop_entry_id)
            )
            if part.ended and not part.first_entry_id:
                assert check_cold_copies(
                    KnownTiers(tier), "acme/cold/persistent/orders", record_of(tier, part, record)
                ) == (record,)
        about = tier.stat(str(UUID_1)).user_metadata
        assert (about[FILTERED_KEY], about[FILTERED_MODE_KEY]) == ("odd", "gap")
        assert ObjectMarks.of(about).has_gaps


@pytest.fixture
def handle(cold):
    """A segment from entry 4 of ledger 3 on, whose odd entries are dropped."""
    odd = segment_filter(PlainFilter(is_odd))
    with offloader_of(cold.store, max_block_bytes=300) as offloader:
        made = offloader.open_segment(
            UUID_1, EntryPosition(3, 4), NAMES, max_segment_bytes=250, segment_filter=odd
        )
        yield made
        made.abort()
        made.result().exception(SOON_S)


def payload(number, size=100):
    return bytes([number]) * size


def test_entries_are_offered_one_after_another_whatever_is_dropped(handle):
    assert handle.offer_entries(3, EntryBatch.of(4, [payload(1), payload(1)])) == (2, ACCEPTED)
    for entry_id in (4, 5, 7):
        assert handle.offer_entry(3, entry_id, payload(1)) is NEXT
    assert handle.offer_entry(3, 6, payload(2)) is ACCEPTED
    assert handle.last_offered() == EntryPosition(3, 6)
    assert handle.payload_bytes == 100


def test_a_segment_is_as_large_as_what_is_written_of_it(handle):
    batch = EntryBatch.of(4, [payload(i % 2) for i in range(20)])
    offered = handle.offer_entries(3, batch)
    assert offered == (5, OfferResult.SEGMENT_CLOSED)
    done = handle.result().result(SOON_S)
    assert (done.entries, done.payload_bytes, done.end) == (3, 300, EntryPosition(3, 8))
    assert done.filter_records[3].total_dropped == DroppedEntries(entries=2, payload_bytes=200)


def test_only_what_was_accepted_is_counted(tmp_path):
    tier, budget = Tier(LimitedDriver(tmp_path)), MemoryBudget(60_000)
    with offloader_of(tier, budget, max_block_bytes=30_000) as offloader:
        filter_ = segment_filter(PlainFilter(is_odd))
        made = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES, segment_filter=filter_)
        budget.take(50_000)
        payloads = [payload(1 + i % 2, 3000) for i in range(12)]
        accepted, result = made.offer_entries(1, EntryBatch.of(0, payloads))
        assert 0 < accepted < 12
        assert result is FULL
        counts = filter_.records()[1]
        assert counts.kept.entries + counts.total_dropped.entries == accepted
        assert made.offer_entries(1, EntryBatch.of(accepted, payloads[accepted:])).result is FULL
        budget.give_back(50_000)
        assert made.offer_entries(1, EntryBatch.of(accepted, payloads[accepted:])).result is ACCEPTED
        made.close()
        record = made.result().result(SOON_S).filter_records[1]
        assert (record.kept.entries, record.total_dropped.entries) == (6, 6)
    assert read_sparsely(tier, Part(ledger_id=1, payloads=payloads), 1 << 20) == dict(
        list(enumerate(payloads))[1::2]
    )


def test_a_ledger_of_which_nothing_is_left_waits_for_memory_as_others_do(tmp_path):
    tier, budget = Tier(LimitedDriver(tmp_path, min_block_bytes=20_000)), MemoryBudget(60_000)
    parts = [Part(ledger_id=i, payloads=[payload(1), payload(1)]) for i in (1, 2, 5)]
    with offloader_of(tier, budget, max_block_bytes=30_000) as offloader:
        made = offloader.open_segment(
            UUID_1, EntryPosition(1, 0), NAMES, segment_filter=segment_filter(PlainFilter(is_odd))
        )
        offer(made, parts[0])
        budget.take(50_000)
        batch = EntryBatch.of(0, parts[1].payloads)
        assert made.offer_entries(2, batch) == (0, FULL)
        budget.give_back(50_000)
        offer(made, parts[1])
        offer(made, parts[2])
        made.close()
        done = made.result().result(SOON_S)
    assert (done.entries, done.blocks, done.data_bytes) == (0, 3, 2 * 20_000 + 128 + 4)
    for part in parts:
        assert read_sparsely(tier, part) == {}
        check_cold_copies(
            KnownTiers(tier),
            "acme/cold/persistent/orders",
            record_of(tier, part, done.filter_records[part.ledger_id]),
        )


def test_nothing_is_taken_that_the_filter_does_not_decide_of(cold):
    filter_ = PlainFilter(is_odd, stop=(1, 3))
    with offloader_of(cold.store, max_block_bytes=300) as offloader:
        run = segment_filter(filter_, EntryPosition(1, 3))
        made = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES, segment_filter=run)
        payloads = [payload(i) for i in range(5)]
        with pytest.raises(EntryOrderError, match="before it is settled"):
            made.offer_entries(1, EntryBatch.of(0, payloads))
        assert made.last_offered() is None
        assert made.offer_entries(1, EntryBatch.of(0, payloads[:3])) == (3, ACCEPTED)
        filter_.stop = None
        run.go_on(FilterRun("odd", FilterMode.GAP, filter_), None)
        assert made.offer_entries(1, EntryBatch.of(3, payloads[3:])) == (2, ACCEPTED)
        made.close()
        record = made.result().result(SOON_S).filter_records[1]
        assert (record.kept.entries, record.total_dropped.entries, record.stop) == (3, 2, None)


def test_a_segment_of_which_nothing_is_left_needs_no_memory_to_end(tmp_path):
    tier, budget = Tier(LimitedDriver(tmp_path)), MemoryBudget(60_000)
    with offloader_of(tier, budget, max_block_bytes=30_000) as offloader:
        filter_ = segment_filter(PlainFilter(is_odd))
        made = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES, segment_filter=filter_)
        assert made.offer_entry(1, 0, payload(1)) is ACCEPTED
        rest = budget.limit_bytes - budget.taken_bytes
        budget.take(rest)
        made.close()
        assert made.result().result(SOON_S).data_bytes == 132
        budget.give_back(rest)
