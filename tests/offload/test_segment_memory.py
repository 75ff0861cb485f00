"""The memory of open segments: it grows with their entries, all keep to one budget, and all is given back."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes.offered import NAMES, UUID_1, LimitedDriver, Part, offer_on, offloader_of, read_back, stored

from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.records import EntryPosition
from offload_core.storage.tier import MemoryBudget, Tier
from offload_core.writing.offload import OfferResult
from offload_hooks import hookimpl
from offload_hooks.ledger_stores import EntryBatch

pytestmark = pytest.mark.long

SOON_S = 60
MIB = 1 << 20
ACCEPTED, FULL = OfferResult.ACCEPTED, OfferResult.BUFFER_FULL


class SlowDriver(LimitedDriver):
    """A local tier whose blocks wait for `opened`, and that notes how many of them do at once."""

    def __init__(self, root, **limits):
        super().__init__(root, **limits)
        self.opened = threading.Event()
        self.in_flight, self.most_in_flight = 0, 0
        self.arrived = threading.Condition()

    def wait_for(self, count):
        with self.arrived:
            assert self.arrived.wait_for(lambda: self.in_flight >= count, SOON_S)

    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        with self.arrived:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self.arrived.notify_all()
        try:
            assert self.opened.wait(SOON_S)
            return super().write_block(upload, part_number, offset, data)
        finally:
            with self.arrived:
                self.in_flight -= 1


def test_segments_with_a_trickle_take_little_each(cold):
    budget = MemoryBudget()
    with offloader_of(cold.store, budget) as offloader:
        handles = [offloader.open_segment(UUID(int=i), EntryPosition(1, 0), NAMES) for i in range(1000)]
        assert budget.taken_bytes == 0
        for handle in handles:
            assert handle.offer_entry(1, 0, b"x" * 1000) is ACCEPTED
        assert budget.taken_bytes == 1000 * 4096
        for handle in handles:
            handle.abort()


def test_memory_is_doubled_as_a_block_grows_and_ends_with_the_block(cold):
    budget, seen = MemoryBudget(), []
    with offloader_of(cold.store, budget, max_block_bytes=20_000) as offloader:
        handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES)
        for entry_id in range(19):
            assert handle.offer_entry(1, entry_id, b"x" * 988) is ACCEPTED
            if budget.taken_bytes not in seen:
                seen.append(budget.taken_bytes)
        assert seen == [4096, 8192, 16384, 20_000]
        handle.close()
        handle.result().result(SOON_S)


def test_a_full_budget_refuses_entries_until_the_store_has_taken_some(tmp_path):
    driver, budget = SlowDriver(tmp_path), MemoryBudget(64_000)
    tier = Tier(driver)
    payloads = [bytes([i % 251]) * 988 for i in range(300)]
    with offloader_of(tier, budget, max_block_bytes=8192, parts_in_flight=3) as offloader:
        handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES)
        accepted, result = handle.offer_entries(1, EntryBatch.of(0, payloads))
        assert result is FULL
        assert 30 < accepted < 64
        assert handle.offer_entry(1, accepted, payloads[accepted]) is FULL
        assert not handle.can_offer(988)
        assert handle.last_offered() == EntryPosition(1, accepted - 1)
        driver.wait_for(3)
        driver.opened.set()
        assert offer_on(handle, 1, EntryBatch.of(accepted, payloads[accepted:])) is ACCEPTED
        handle.close()
        handle.result().result(SOON_S)
        assert driver.most_in_flight == 3
    assert read_back(tier, UUID_1, Part(ledger_id=1, payloads=payloads)) == payloads


def test_blocks_that_must_come_in_order_go_one_by_one(tmp_path):
    driver = SlowDriver(tmp_path, ordered_parts=True)
    driver.opened.set()
    with offloader_of(Tier(driver), max_block_bytes=1000) as offloader:
        handles = [offloader.open_segment(UUID(int=i), EntryPosition(1, 0), NAMES) for i in range(3)]
        for handle in handles:
            handle.offer_entries(1, EntryBatch.of(0, [b"x" * 500] * 20))
            handle.close()
        assert [handle.result().result(SOON_S).blocks for handle in handles] == [20] * 3
        assert driver.most_in_flight <= 3


def test_where_memory_is_short_a_block_goes_before_it_is_full_if_it_is_large(tmp_path):
    driver, budget = SlowDriver(tmp_path), MemoryBudget(32 * MIB)
    tier = Tier(driver)
    with offloader_of(tier, budget, max_block_bytes=16 * MIB) as offloader:
        large, small = (offloader.open_segment(UUID(int=i), EntryPosition(1, 0), NAMES) for i in (1, 2))
        assert large.offer_entries(1, EntryBatch.of(0, [bytes(MIB)] * 7)).result is ACCEPTED
        assert small.offer_entries(1, EntryBatch.of(0, [bytes(MIB)] * 3)).result is ACCEPTED
        budget.take(32 * MIB - budget.taken_bytes)
        kept = 32 * MIB - 8 * MIB - 4 * MIB
        assert small.offer_entry(1, 3, bytes(MIB)) is FULL
        assert large.offer_entry(1, 7, bytes(MIB)) is FULL
        driver.wait_for(1)
        driver.opened.set()
        assert offer_on(large, 1, EntryBatch.of(7, [bytes(MIB)])) is ACCEPTED
        budget.give_back(kept)
        assert small.offer_entry(1, 3, bytes(MIB)) is ACCEPTED
        for handle in (large, small):
            handle.close()
        assert [each.result().result(SOON_S).blocks for each in (large, small)] == [2, 1]


def test_padding_that_finds_no_memory_is_a_full_buffer(tmp_path):
    tier, budget = Tier(LimitedDriver(tmp_path, min_block_bytes=20_000)), MemoryBudget(60_000)
    with offloader_of(tier, budget, max_block_bytes=30_000) as offloader:
        handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES)
        assert handle.offer_entry(1, 0, b"x") is ACCEPTED
        part = Part(ledger_id=1, payloads=[b"x"])
        handle.end_ledger(part.info)
        budget.take(50_000)
        assert handle.offer_entry(2, 0, b"y") is FULL
        budget.give_back(50_000)
        assert offer_on(handle, 2, EntryBatch.of(0, [b"y"])) is ACCEPTED
        handle.close()
        assert handle.result().result(SOON_S).data_bytes == 20_000 + 128 + 12 + 1 + 4
    assert read_back(tier, UUID_1, part) == [b"x"]


@given(
    sizes=st.lists(st.lists(st.integers(0, 3000), min_size=1, max_size=30), min_size=1, max_size=4),
    limit=st.integers(8192, 60_000),
    min_block_bytes=st.sampled_from([1, 1000, 4096]),
)
def test_however_short_memory_is_segments_offered_at_once_come_to_their_end_and_are_right(
    tmp_path_factory, sizes, limit, min_block_bytes
):
    """Each gives what it could not offer to a further segment, as their owner would when nothing else helps."""
    folder = tmp_path_factory.mktemp("short")
    tier, budget = Tier(LimitedDriver(folder, min_block_bytes=min_block_bytes)), MemoryBudget(limit)
    numbers, deadline = count(1), time.monotonic() + SOON_S  # however often memory is asked for meanwhile

    def offload(sizes):
        payloads, found, begin = [bytes([i % 251]) * size for i, size in enumerate(sizes)], [], 0
        while begin < len(payloads):
            assert time.monotonic() < deadline
            uuid = UUID(int=next(numbers))
            handle = offloader.open_segment(uuid, EntryPosition(1, begin), NAMES)
            accepted = handle.offer_entries(1, EntryBatch.of(begin, payloads[begin:])).accepted
            assert budget.taken_bytes <= limit
            handle.close()
            if accepted:
                part = Part(ledger_id=1, payloads=[b""] * accepted, first_entry_id=begin)
                assert handle.result().result(SOON_S).entries == accepted
                found += read_back(tier, uuid, part)
            begin += accepted
        return found

    with (
        offloader_of(tier, budget, max_block_bytes=4096) as offloader,
        ThreadPoolExecutor(len(sizes)) as pool,
    ):
        for given_sizes, found in zip(sizes, pool.map(offload, sizes), strict=True):
            assert list(map(len, found)) == given_sizes
            assert found == [bytes([i % 251]) * size for i, size in enumerate(given_sizes)]


def test_blocks_under_pressure_are_indexed_as_they_lie(tmp_path):
    tier, budget = Tier(LimitedDriver(tmp_path)), MemoryBudget(24 * MIB)
    with offloader_of(tier, budget, max_block_bytes=12 * MIB) as offloader:
        handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES)
        payloads = [bytes([i % 251]) * 100_000 for i in range(500)]
        assert offer_on(handle, 1, EntryBatch.of(0, payloads)) is ACCEPTED
        handle.close()
        done = handle.result().result(SOON_S)
    data, index = stored(tier, UUID_1)
    key = ObjectKey(folder="", uuid=UUID_1, ledger_id=None, is_index=False)
    (ledger,) = parse_index(index, key).ledgers
    assert len(ledger.blocks) == done.blocks
    assert [block.length > 5 * MIB for block in ledger.blocks[:-1]] == [True] * (done.blocks - 1)
    assert len(data) == done.data_bytes
    assert read_back(tier, UUID_1, Part(ledger_id=1, payloads=payloads)) == payloads
