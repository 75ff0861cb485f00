"""Which bytes are asked of a store, how many are held, and what is left behind."""

import threading
import weakref
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from tiers import MemoryDriver, Names, in_memory, numbered

from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.streaming import pack_streaming_index
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, StoreError
from pulsar_offload import TierReader, scan

KEY = "00000000-0000-4000-8000-000000000000-ledger-7"
ORDERS = TopicName("persistent://acme/cold/orders")


def blocks_of_1000(count):
    """A ledger in blocks of 1000 bytes, two entries each (the last block is as long by chance of arithmetic)."""
    return pip17_object([b"x" * 424] * (2 * count), ledger_id=7, max_block_bytes=1000)


class Recorded:
    """A tier of one object, and what was asked of it after its index was read."""

    def __init__(self, written, **options):
        self.driver = MemoryDriver(numbered(written), metadata=Names().as_metadata("data"), **options)
        self.tier = TierReader(Tier(self.driver))

    def reads_of_data(self):
        return [(offset, length) for key, offset, length in self.driver.reads if not key.endswith("-index")]


def no_threads_but_these(before):
    return not {thread for thread in threading.enumerate() if thread.is_alive()} - before


# --- ranges ------------------------------------------------------------------------------------


def test_small_blocks_are_fetched_together_and_the_ranges_are_exact():
    before = set(threading.enumerate())
    recorded = Recorded(blocks_of_1000(7), range_bytes=3000)
    assert scan(recorded.tier, level="entries").to_table().num_rows == 14
    assert sorted(recorded.reads_of_data()) == [(0, 3000), (3000, 3000), (6000, 1000)]
    assert no_threads_but_these(before)


def test_blocks_that_do_not_adjoin_are_not_fetched_together():
    parts = [
        LedgerPart(ledger_id=7, blocks=[[b"a"]]),
        LedgerPart(ledger_id=8, blocks=[[b"b"]]),
        LedgerPart(ledger_id=9, blocks=[[b"c"], [b"d"]]),
    ]
    recorded = Recorded(streaming_object(parts))
    scan(recorded.tier, ledger=9, level="entries").to_table()
    scan(recorded.tier, ledger=7, level="entries").to_table()
    assert recorded.reads_of_data() == [(1024, 1024), (0, 512)]


def test_what_lies_between_two_blocks_of_a_ledger_is_not_fetched():
    """Ledger 7, then 8, then 7 again, in one object."""
    blocks = [
        LedgerPart(ledger_id=7, blocks=[[b"a"]]),
        LedgerPart(ledger_id=8, blocks=[[b"b"]]),
        LedgerPart(ledger_id=7, blocks=[[b"c"]], first_entry_id=1),
    ]
    written = streaming_object(blocks)
    entries = [BlockEntry(first_entry_id=i, part_number=1 + 2 * i, offset=1024 * i) for i in range(2)]
    other = [BlockEntry(first_entry_id=0, part_number=2, offset=512)]
    index = pack_streaming_index([(LedgerInfo(ledger_id=7), entries), (LedgerInfo(ledger_id=8), other)], 1536)
    recorded = Recorded(replace(written, index=index))
    table = scan(recorded.tier, ledger=7, level="entries", columns=["value"]).to_table()
    assert table["value"].to_pylist() == [b"a", b"c"]
    assert recorded.reads_of_data() == [(0, 512), (1024, 512)]


def test_only_the_blocks_of_the_asked_range_are_fetched():
    recorded = Recorded(blocks_of_1000(7))
    bounds = {"start": {ORDERS: Position(7, 5)}, "stop": {ORDERS: Position(7, 8)}}
    table = scan(recorded.tier, level="entries", **bounds).to_table()
    assert table["__entryId"].to_pylist() == [5, 6, 7]
    assert recorded.reads_of_data() == [(2000, 2000)]


def test_a_block_larger_than_a_range_is_fetched_in_parts_that_cover_it_exactly():
    payloads = [b"%03d" % i + b"y" * 421 for i in range(14)]
    recorded = Recorded(pip17_object(payloads, ledger_id=7, max_block_bytes=4000), range_bytes=900)
    values = scan(recorded.tier, level="entries", columns=["value"]).to_table()["value"].to_pylist()
    assert values == payloads
    assert sorted(recorded.reads_of_data()) == [
        (0, 900),
        (900, 900),
        (1800, 900),
        (2700, 900),
        (3600, 400),
        (4000, 900),
        (4900, 900),
        (5800, 900),
        (6700, 44),
    ]


def test_where_nothing_is_fetched_ahead_a_range_begins_with_the_entry_that_was_cut_off():
    payloads = [b"%03d" % i + b"y" * 421 for i in range(9)]
    written = pip17_object(payloads, ledger_id=7, max_block_bytes=4000)
    recorded = Recorded(written, range_bytes=900, ranges_ahead=0)
    values = scan(recorded.tier, level="entries", columns=["value"]).to_table()["value"].to_pylist()
    assert values == payloads
    assert recorded.reads_of_data() == [
        (0, 900),
        (564, 1236),
        (1436, 1264),
        (2308, 1292),
        (3180, 820),
        (4000, 564),
    ]


def test_an_entry_larger_than_several_ranges_is_read_whether_ahead_or_not():
    payloads = [b"a" * 100, b"b" * 5000, b"c" * 100, b"d" * 3000]
    for ranges_ahead in (0, 1, 4):
        written = pip17_object(payloads, ledger_id=7, max_block_bytes=1 << 16)
        recorded = Recorded(written, range_bytes=600, ranges_ahead=ranges_ahead)
        table = scan(recorded.tier, level="entries", columns=["value"]).to_table()
        assert table["value"].to_pylist() == payloads


@pytest.mark.parametrize(("range_bytes", "reads"), [(999, 2), (1000, 1), (1001, 1)])
def test_a_block_of_exactly_range_bytes_is_one_range(range_bytes, reads):
    recorded = Recorded(blocks_of_1000(1), range_bytes=range_bytes)
    scan(recorded.tier, level="entries").to_table()
    assert len(recorded.reads_of_data()) == reads


# --- memory and threads ------------------------------------------------------------------------


MIB = 1 << 20


@pytest.mark.parametrize("level", ["entries", "messages"])
@pytest.mark.parametrize(
    ("block_bytes", "reads"),
    [
        (16 * MIB, [(0, MIB), (MIB, 4 * MIB), (5 * MIB, 4 * MIB)]),  # a large block, whose rest is cut
        (3 * MIB, [(0, MIB), (MIB, 2 * MIB), (3 * MIB, 3 * MIB)]),  # the rest of a small one
        (MIB // 2, [(0, MIB // 2), (MIB // 2, 4 * MIB), (9 * MIB // 2, 4 * MIB)]),
    ],
)
def test_a_head_takes_one_small_range_and_the_rest_is_fetched_when_it_is_asked_for(level, block_bytes, reads):
    payloads = [entry(b"z" * (127 << 10)) for _ in range(80)]
    written = pip17_object(payloads, ledger_id=7, max_block_bytes=block_bytes)
    for count, expected in ((1, reads[:1]), (44, reads)):  # the 44th is in the third range of each
        recorded = Recorded(written, range_bytes=4 * MIB, ranges_ahead=2)
        assert scan(recorded.tier, level=level).head(count).num_rows == count
        assert sorted(recorded.reads_of_data())[: len(reads)] == expected
    assert scan(Recorded(written, ranges_ahead=2).tier, level=level).to_table().num_rows == len(payloads)


def test_what_is_no_larger_than_a_head_takes_one_range():
    recorded = Recorded(blocks_of_1000(7), ranges_ahead=2)
    assert scan(recorded.tier, level="entries").head(1).num_rows == 1
    assert recorded.reads_of_data() == [(0, 7000)]


class Watched:
    """Hands out arrays, and notes how many of the earlier ones are still alive."""

    def __init__(self):
        self.alive: list[weakref.ref[np.ndarray]] = []
        self.most = 0

    def __call__(self, data):
        array = np.frombuffer(data, dtype=np.uint8).copy()
        self.alive = [ref for ref in self.alive if ref() is not None] + [weakref.ref(array)]
        self.most = max(self.most, len(self.alive))
        return memoryview(array)


@pytest.mark.parametrize("level", ["entries", "messages"])
def test_no_more_than_three_units_are_held_however_large_the_ledger(level):
    watched = Watched()
    written = pip17_object([entry(b"x" * 300)] * 80, ledger_id=7, max_block_bytes=1000)
    recorded = Recorded(written, make=watched, range_bytes=1000, ranges_ahead=1)
    batches = list(scan(recorded.tier, level=level))
    assert sum(batch.num_rows for batch in batches) == 80
    assert len(recorded.reads_of_data()) == 40
    # one that is read, one that has come, and while the first is let go one that is asked for
    assert 1 <= watched.most <= 3


@pytest.mark.parametrize("ranges_ahead", [0, 1, 3])
def test_as_many_ranges_are_under_way_as_the_driver_asks_for(ranges_ahead):
    before = set(threading.enumerate())
    recorded = Recorded(blocks_of_1000(10), range_bytes=1000, ranges_ahead=ranges_ahead)
    batches = iter(scan(recorded.tier, level="entries"))
    next(batches)
    assert no_threads_but_these(before) == (ranges_ahead == 0)
    batches.close()
    reads = recorded.reads_of_data()  # those ahead may have been called off before they began
    assert [(1000 * i, 1000) for i in range(1 + ranges_ahead)][: len(reads)] == sorted(reads) != []
    assert no_threads_but_these(before)


def test_batches_of_small_ledgers_take_little_memory():
    tier = in_memory(*(pip17_object([b"small"], ledger_id=i) for i in range(20)))
    table = scan(tier, level="entries").to_table()
    assert table.num_rows == 20
    assert sum(batch.get_total_buffer_size() for batch in table.to_batches()) < 20 * 150_000


def test_a_read_that_finds_bad_bytes_leaves_no_thread_behind_while_its_error_is_kept():
    """Left to the garbage collector, the pool would be shut down in whatever thread that runs in, and could hang it."""
    before = set(threading.enumerate())
    written = blocks_of_1000(10)
    damaged = replace(written, data=written.data[:2000] + b"\xff" + written.data[2001:])
    recorded = Recorded(damaged, range_bytes=1000, ranges_ahead=3)
    with pytest.raises(FormatError) as caught:
        scan(recorded.tier, level="entries").to_table()
    assert no_threads_but_these(before)
    assert caught.value.key == KEY


# --- errors ------------------------------------------------------------------------------------


def test_an_error_of_the_store_comes_through_after_what_could_be_read():
    before = set(threading.enumerate())
    recorded = Recorded(blocks_of_1000(5), fail_at=2500, range_bytes=1000, ranges_ahead=1)
    batches: list[pa.RecordBatch] = []
    with pytest.raises(StoreError, match="the store broke") as caught:
        batches.extend(scan(recorded.tier, level="entries"))
    assert sum(batch.num_rows for batch in batches) == 4
    assert (caught.value.key, caught.value.offset) == (KEY, 2000)
    assert no_threads_but_these(before)
