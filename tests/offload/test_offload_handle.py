"""A segment from offers to objects: bytes as of the reference implementation, read back; what is refused, and why."""

import asyncio
import tempfile
from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes.offered import (
    NAMES,
    UUID_1,
    LimitedDriver,
    Part,
    begin_of,
    offer,
    offloader_of,
    parts_of_segments,
    plain_object,
    read_back,
    stored,
)

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.records import EntryPosition
from offload_core.storage.tier import MemoryBudget, Tier
from offload_core.writing.offload import OfferResult, OffloadedSegment, SegmentOffloader
from offload_hooks.errors import OptionError, UploadError
from offload_hooks.ledger_stores import EntryBatch
from pulsar_offload import scan

SOON_S = 60
ENDED = LedgerInfo(ledger_id=3, entries=4, size=8, timestamp_ms=1)
ACCEPTED, CLOSED, NEXT = (OfferResult.ACCEPTED, OfferResult.SEGMENT_CLOSED, OfferResult.NOT_CONSECUTIVE)


@given(
    parts=parts_of_segments(),
    max_block_bytes=st.integers(144, 900),
    min_block_bytes=st.integers(1, 900),
    cuts=st.lists(st.integers(1, 11), max_size=4),
    ordered=st.booleans(),
)
def test_objects_are_those_of_the_reference_and_are_read_back_however_they_were_offered(
    parts, max_block_bytes, min_block_bytes, cuts, ordered
):
    min_block_bytes = min(min_block_bytes, max_block_bytes)
    with tempfile.TemporaryDirectory() as folder:
        driver = LimitedDriver(Path(folder), min_block_bytes=min_block_bytes, ordered_parts=ordered)
        tier = Tier(driver)
        with offloader_of(tier, max_block_bytes=max_block_bytes) as offloader:
            handle = offloader.open_segment(UUID_1, begin_of(parts), NAMES)
            for part in parts:
                offer(handle, part, cuts)
            handle.close()
            done = handle.result().result(SOON_S)
        data, index = stored(tier, UUID_1)
        assert (data, index) == plain_object(
            parts, max_block_bytes=max_block_bytes, min_block_bytes=min_block_bytes
        )
        with_entries = [part for part in parts if part.payloads]
        for part in with_entries:
            assert read_back(tier, UUID_1, part) == part.payloads
        last = with_entries[-1]
        assert done == OffloadedSegment(
            uuid=UUID_1,
            begin=begin_of(with_entries),
            end=EntryPosition(last.ledger_id, last.stop_entry_id - 1),
            end_entry_ids={part.ledger_id: part.stop_entry_id - 1 for part in with_entries},
            entries=sum(len(part.payloads) for part in parts),
            payload_bytes=sum(len(payload) for part in parts for payload in part.payloads),
            data_bytes=len(data),
            blocks=done.blocks,
        )
        assert handle.last_offered() == done.end


@pytest.fixture
def offloader(cold):
    with offloader_of(cold.store, max_block_bytes=1 << 16) as made:
        yield made


@pytest.fixture
def handle(offloader):
    """A segment from entry 4 of ledger 3 on; it is aborted if the test leaves it open."""
    made = offloader.open_segment(UUID_1, EntryPosition(3, 4), NAMES)
    yield made
    made.abort()
    made.result().exception(SOON_S)


def test_what_was_offered_is_listed_by_its_topic_and_scanned(cold, offloader):
    handle = offloader.open_segment(UUID_1, EntryPosition(3, 0), NAMES)
    offer(handle, Part(ledger_id=3, payloads=[b"%d" % i * 99 for i in range(900)]))
    offer(handle, Part(ledger_id=9, payloads=[b"last"], ended=False))
    handle.close()
    assert handle.result().result(SOON_S).blocks > 3
    table = scan(
        cold, "persistent://acme/cold/orders", level="entries", columns=["__ledgerId", "__entryId", "value"]
    ).to_table()
    assert table["value"].to_pylist() == [b"%d" % i * 99 for i in range(900)] + [b"last"]
    assert table["__entryId"].to_pylist() == [*range(900), 0]
    for key, role in ((str(UUID_1), "data"), (f"{UUID_1}-index", "index")):
        about = cold.store.stat(key).user_metadata
        assert about["role"] == role
        assert about["s3managedledgeroffloaderformatversion"] == "1"
        assert about["s3managedledgeroffloadersoftwareversion"].startswith("pulsar-offload ")


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(3, 3), (3, 5), (3, 0), (4, 0), (4, 4), (2, 4)])
def test_only_the_first_entry_of_the_segment_comes_first(handle, ledger_id, entry_id):
    assert handle.offer_entry(ledger_id, entry_id, b"x") is NEXT
    assert handle.last_offered() is None
    assert handle.offer_entry(3, 4, b"x") is ACCEPTED


def test_only_the_next_entry_of_the_same_ledger_follows_an_entry(handle):
    assert handle.offer_entries(3, EntryBatch.of(4, [b"x", b"y"])) == (2, ACCEPTED)
    for ledger_id, entry_id in ((3, 4), (3, 5), (3, 7), (4, 0), (4, 6), (2, 6)):
        assert handle.offer_entries(ledger_id, EntryBatch.of(entry_id, [b"no", b"no"])) == (0, NEXT)
    assert handle.offer_entry(3, 6, b"z") is ACCEPTED
    assert handle.last_offered() == EntryPosition(3, 6)
    assert handle.payload_bytes == 3


def test_only_the_first_entry_of_a_later_ledger_follows_the_end_of_one(handle):
    assert handle.end_ledger(replace(ENDED, entries=5)) is NEXT
    assert handle.end_ledger(replace(ENDED, ledger_id=2)) is NEXT
    assert handle.end_ledger(replace(ENDED, ledger_id=4, entries=0)) is NEXT
    assert handle.end_ledger(ENDED) is ACCEPTED
    for ledger_id, entry_id in ((3, 4), (3, 0), (2, 0), (4, 1)):
        assert handle.offer_entry(ledger_id, entry_id, b"no") is NEXT
    assert handle.end_ledger(ENDED) is NEXT
    assert handle.end_ledger(replace(ENDED, ledger_id=5, entries=0)) is ACCEPTED  # one without entries
    assert handle.offer_entry(5, 0, b"no") is NEXT
    assert handle.offer_entry(6, 0, b"yes") is ACCEPTED
    handle.close()
    done = handle.result().result(SOON_S)
    assert done.begin == done.end == EntryPosition(6, 0)


@pytest.mark.parametrize(
    "info", [replace(ENDED, timestamp_ms=0), replace(ENDED, timestamp_ms=None), replace(ENDED, entries=None)]
)
def test_the_end_of_a_ledger_that_is_open_is_refused(handle, info):
    with pytest.raises(OptionError, match="ledger 3"):
        handle.end_ledger(info)


@pytest.mark.parametrize("offsets", [[], [-1, 1], [0, 4], [0, 2, 1], [5, 5]])
def test_a_batch_that_contradicts_itself_is_refused(handle, offsets):
    batch = EntryBatch(4, memoryview(b"abc"), memoryview(array("q", offsets)))
    with pytest.raises(OptionError, match="entry 4"):
        handle.offer_entries(3, batch)
    assert handle.offer_entries(3, EntryBatch.of(4, [])) == (0, ACCEPTED)
    assert handle.offer_entry(3, 4, b"x") is ACCEPTED


def test_a_batch_may_be_part_of_its_bytes(cold, handle):
    whole = EntryBatch.of(2, [b"a", b"bb", b"ccc", b"dddd"])
    assert handle.offer_entries(3, EntryBatch(4, whole.data, whole.offsets[2:4])) == (1, ACCEPTED)
    assert handle.offer_entries(3, EntryBatch(5, whole.data, whole.offsets[3:])) == (1, ACCEPTED)
    handle.close()
    assert handle.result().result(SOON_S).payload_bytes == 7
    assert read_back(cold.store, UUID_1, Part(ledger_id=3, first_entry_id=4, payloads=[b"", b""])) == [
        b"ccc",
        b"dddd",
    ]


def test_nothing_is_taken_after_the_end(handle):
    assert handle.can_offer(1)
    assert handle.offer_entry(3, 4, b"x") is ACCEPTED
    handle.close()
    handle.close()
    assert not handle.can_offer(1)
    assert handle.offer_entries(3, EntryBatch.of(5, [b"y"])) == (0, CLOSED)
    assert handle.end_ledger(replace(ENDED, entries=5)) is CLOSED
    assert handle.result().result(SOON_S).entries == 1
    handle.abort()
    assert handle.failure is None
    assert handle.result().result().entries == 1


def test_a_segment_closes_with_the_entry_that_makes_it_large_enough(offloader):
    handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES, max_segment_bytes=25)
    assert handle.offer_entry(1, 0, b"x" * 14) is ACCEPTED
    assert handle.offer_entries(1, EntryBatch.of(1, [b"", b"y" * 10, b"z", b"late"])) == (3, CLOSED)
    done = handle.result().result(SOON_S)
    assert (done.end, done.payload_bytes) == (EntryPosition(1, 3), 25)


def test_a_batch_that_makes_a_segment_just_large_enough_is_accepted(offloader):
    handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES, max_segment_bytes=10)
    assert handle.offer_entries(1, EntryBatch.of(0, [b"x" * 4, b"y" * 6])) == (2, ACCEPTED)
    assert handle.offer_entry(1, 2, b"") is CLOSED
    assert handle.result().result(SOON_S).payload_bytes == 10


def test_a_segment_closes_when_the_store_takes_no_more_blocks(tmp_path):
    tier = Tier(LimitedDriver(tmp_path, max_blocks=3))
    with offloader_of(tier, max_block_bytes=300) as offloader:
        handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES)
        assert handle.offer_entries(1, EntryBatch.of(0, [b"x" * 100] * 9)) == (3, CLOSED)
        assert handle.result().result(SOON_S).blocks == 3
    assert read_back(tier, UUID_1, Part(ledger_id=1, payloads=[b"x" * 100] * 3)) == [b"x" * 100] * 3


def test_an_entry_larger_than_a_block_has_one_of_its_own(tmp_path):
    part = Part(ledger_id=1, payloads=[b"a", b"b" * 5000, b"c", b"d" * 400, b"e"], ended=False)
    tier = Tier(LimitedDriver(tmp_path, min_block_bytes=200, max_block_bytes=10_000))
    with offloader_of(tier, max_block_bytes=400) as offloader:
        handle = offloader.open_segment(UUID_1, begin_of([part]), NAMES)
        offer(handle, part)
        for size in (10_000 - 144 + 1, 1 << 20):
            with pytest.raises(OptionError, match=r"ledger 1, entry 6.*9,856 bytes or less"):
                handle.offer_entries(1, EntryBatch.of(5, [b"", bytes(size)]))
        assert handle.last_offered() == EntryPosition(1, 4)
        handle.close()
        assert handle.result().result(SOON_S).blocks == 5
    assert stored(tier, UUID_1) == plain_object([part], max_block_bytes=400, min_block_bytes=200)


def test_a_segment_without_entries_writes_nothing(tmp_path, handle):
    handle.close()
    with pytest.raises(OptionError, match="without entries"):
        handle.result().result(SOON_S)
    assert not (tmp_path / "cold").exists()


def test_the_outcome_is_awaited_by_coroutines_and_threads_alike(handle):
    async def wait():
        gave_up = asyncio.ensure_future(handle.result())
        await asyncio.sleep(0)
        gave_up.cancel()
        waiting = asyncio.gather(handle.result(), handle.result())
        handle.offer_entry(3, 4, b"x")
        handle.close()
        one, two = await waiting
        assert one is two
        return one

    with ThreadPoolExecutor(1) as pool:
        by_thread = pool.submit(lambda: handle.result().result(SOON_S))
        assert asyncio.run(wait()) is by_thread.result()


def test_an_aborted_segment_says_so(handle):
    handle.offer_entry(3, 4, b"x")
    handle.abort()
    assert handle.offer_entry(3, 5, b"y") is CLOSED
    with pytest.raises(UploadError, match=f"aborted.*{UUID_1}"):
        handle.result().result(SOON_S)
    assert isinstance(handle.failure, UploadError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_block_bytes": 199}, "smaller than this store takes"),
        ({"max_block_bytes": 5001}, "larger than this store takes"),
        ({"max_block_bytes": 501, "budget": MemoryBudget(1001)}, "larger than the whole memory budget"),
        ({"max_block_bytes": 300, "parts_in_flight": 0}, "at least one part"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused(tmp_path, options, message):
    tier = Tier(LimitedDriver(tmp_path, min_block_bytes=200, max_block_bytes=5000))
    with ThreadPoolExecutor(1) as executor, pytest.raises(OptionError, match=message):
        SegmentOffloader(tier, executor=executor, **{"budget": MemoryBudget(), **options})


def test_a_segment_has_room_for_a_byte(offloader):
    with pytest.raises(OptionError, match="at least one byte"):
        offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES, max_segment_bytes=0)
