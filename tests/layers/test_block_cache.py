"""What the block cache answers, and what it asks of the store."""

from __future__ import annotations

import random
import threading
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from layered import CHUNK, Cached, EagerCache, Gate, put
from waiting import wait_for

from offload_hooks import ByteRange, hookimpl
from offload_hooks.errors import (
    BrokenPluginError,
    ObjectNotFoundError,
    OptionError,
    RangeError,
    StoreUnavailableError,
)
from offload_hooks.testing import MemoryDriver
from offload_hooks.testing.threads import outcomes, together
from offload_layers.block_cache import BlockCacheLayer
from offload_layers.block_cache.chunk_cache import CacheStatistics

DATA = random.Random(1).randbytes(1050)


@pytest.fixture
def driver():
    driver = MemoryDriver()
    put(driver, "k", DATA)
    return driver


@pytest.fixture
def cached(driver):
    return Cached(driver)


def ranges(*places, key="k"):
    return [ByteRange(key=key, offset=offset, length=length) for offset, length in places]


# --- chunks ------------------------------------------------------------------------------------


def test_a_read_is_widened_to_chunks_and_its_neighbours_are_hits(cached):
    assert cached.read("k", 130, 5) == DATA[130:135]
    assert cached.fetched() == [("k", 100, 100)]
    assert cached.read("k", 100, 100) == DATA[100:200]
    assert cached.read("k", 199, 1) == DATA[199:200]
    assert cached.fetched() == []
    assert cached.statistics == CacheStatistics(misses=1, memory_hits=2, memory_bytes=100)


def test_the_last_chunk_ends_where_the_object_does(cached):
    assert cached.read("k", 1049, 1) == DATA[1049:]
    assert cached.fetched() == [("k", 1000, 50)]


def test_only_the_chunks_that_miss_are_fetched_by_one_call_and_joined_where_they_adjoin(cached):
    cached.read("k", 300, 1)
    cached.fetched()
    assert cached.read("k", 90, 700) == DATA[90:790]
    assert cached.calls.of("read_ranges") == [{"ranges": ranges((0, 300), (400, 400))}]
    assert cached.fetched() == [("k", 0, 300), ("k", 400, 400)]


def test_many_ranges_are_one_call(driver, cached):
    put(driver, "l", DATA[::-1])
    wanted = [*ranges((950, 100), (0, 1), (10, 100), (0, 1)), *ranges((5, 10), key="l")]
    expected = [DATA[950:1050], DATA[:1], DATA[10:110], DATA[:1], DATA[::-1][5:15]]
    for _ in range(2):
        assert cached.tier.read_ranges(wanted) == expected
    assert len(cached.calls.of("read_ranges")) == 1
    assert sorted(cached.fetched()) == [("k", 0, 200), ("k", 900, 150), ("l", 0, 100)]


@pytest.mark.parametrize("memory_bytes", [0, 150, 1000, 10_000])
@pytest.mark.parametrize("chunk_bytes", [37, 100, 5000])
def test_whatever_is_read_is_right(driver, tmp_path, memory_bytes, chunk_bytes):
    cached = Cached(
        driver, memory_bytes=memory_bytes, chunk_bytes=chunk_bytes, directory=str(tmp_path), disk_bytes=20_000
    )
    dice = random.Random(7)
    for _ in range(60):
        places = []
        for _ in range(dice.randint(1, 4)):
            offset = dice.randrange(len(DATA))
            places.append((offset, dice.randint(1, len(DATA) - offset)))
        found = cached.tier.read_ranges(ranges(*places))
        assert found == [DATA[offset : offset + length] for offset, length in places]
        assert cached.statistics.memory_bytes <= memory_bytes


def test_memory_keeps_what_was_used_last(driver):
    cached = Cached(driver, memory_bytes="250")
    for offset in (0, 100, 0, 200):
        cached.read("k", offset, 1)
    cached.fetched()
    cached.read("k", 0, 1)
    assert cached.fetched() == []
    cached.read("k", 100, 1)
    assert cached.fetched() == [("k", 100, 100)]
    assert cached.statistics.memory_bytes == 200


# --- past the cache ----------------------------------------------------------------------------


def test_bulk_reads_go_past_and_leave_no_trace(driver):
    cached = Cached(driver, bulk_bytes="300")
    cached.read("k", 0, 1)
    assert cached.read("k", 0, 301) == DATA[:301]
    assert cached.tier.read_ranges(ranges((0, 200), (500, 101))) == [DATA[:200], DATA[500:601]]
    # Not more than is allowed, but more when it is widened.
    assert cached.read("k", 50, 300) == DATA[50:350]
    assert sorted(cached.fetched()) == [
        ("k", 0, 100),
        ("k", 0, 200),
        ("k", 0, 301),
        ("k", 50, 300),
        ("k", 500, 101),
    ]
    assert cached.statistics == CacheStatistics(misses=1, passed_by=3, memory_bytes=100)
    assert cached.read("k", 0, 300) == DATA[:300]
    assert cached.statistics.passed_by == 3


@pytest.mark.parametrize(("offset", "length"), [(-1, 5), (0, 0), (0, -1), (1050, 1), (0, 1051), (5000, 1)])
def test_a_range_that_the_object_does_not_have_is_the_stores_error(cached, offset, length):
    with pytest.raises(RangeError):
        cached.tier.read_range("k", offset, length)
    with pytest.raises(RangeError):
        cached.tier.read_ranges([*ranges((0, 10)), *ranges((offset, length))])


def test_no_ranges_are_no_bytes(cached):
    assert cached.tier.read_ranges([]) == []


def test_an_object_that_is_not_there_is_an_error_each_time(driver, cached):
    for _ in range(2):
        with pytest.raises(ObjectNotFoundError):
            cached.read("new", 0, 1)
    put(driver, "new", b"x")
    assert cached.read("new", 0, 1) == b"x"


def test_what_was_changed_a_moment_ago_is_not_kept(driver):
    class Then(BlockCacheLayer):
        wall_clock = staticmethod(lambda: now.timestamp())

    now = datetime.now(UTC)
    cached = Cached(driver, Then)
    for _ in range(2):
        assert cached.read("k", 0, 1) == DATA[:1]
    assert cached.fetched() == [("k", 0, 1)] * 2
    assert cached.stats() == 2
    now += timedelta(seconds=3)
    for _ in range(2):
        assert cached.read("k", 0, 1) == DATA[:1]
    assert cached.fetched() == [("k", 0, 100)]


# --- changes -----------------------------------------------------------------------------------


def test_stats_count_for_their_time(driver):
    now = [0.0]

    class Clocked(EagerCache):
        clock = staticmethod(lambda: now[0])

    cached = Cached(driver, Clocked, validate_s="60")
    for _ in range(3):
        cached.read("k", 0, 1)
    assert cached.stats() == 1
    put(driver, "k", b"new")
    now[0] = 59.9
    assert cached.read("k", 0, 1) == DATA[:1]
    now[0] = 60.1
    assert cached.read("k", 0, 3) == b"new"
    assert cached.stats() == 2


def test_without_such_a_time_every_read_asks(driver):
    cached = Cached(driver, validate_s=0)
    assert cached.read("k", 0, 1) == DATA[:1]
    put(driver, "k", b"new")
    assert cached.read("k", 0, 3) == b"new"
    driver.delete(["k"])
    with pytest.raises(ObjectNotFoundError):
        cached.read("k", 0, 1)


def test_a_stat_is_always_the_stores_and_saves_the_read_one(driver, cached):
    cached.tier.stat("k")
    cached.read("k", 0, 1)
    assert cached.stats() == 1
    put(driver, "k", b"new")
    assert cached.tier.stat("k").size_bytes == 3
    assert cached.read("k", 0, 3) == b"new"
    assert cached.stats() == 2


def change_by_index(tier):
    tier.write_index("k", DATA[::-1])


def change_by_commit(tier):
    upload = tier.begin_data("k")
    tier.commit_data(upload, [tier.write_block(upload, 1, 0, DATA[::-1])])


def change_by_delete(tier):
    tier.delete(["other", "k"])
    change_by_index(tier)


@pytest.mark.parametrize("change", [change_by_index, change_by_commit, change_by_delete])
def test_changes_through_the_tier_are_seen_at_once(cached, change):
    assert cached.read("k", 0, 10) == DATA[:10]
    change(cached.tier)
    assert cached.read("k", 0, 10) == DATA[::-1][:10]


def test_a_change_that_failed_may_have_happened(driver):
    class Unsure(MemoryDriver):
        @hookimpl
        def delete(self, keys):
            super().delete(keys)
            raise StoreUnavailableError("no answer")

    cached = Cached(Unsure(driver.tier))
    cached.read("k", 0, 1)
    with pytest.raises(StoreUnavailableError):
        cached.tier.delete(["k"])
    with pytest.raises(ObjectNotFoundError):
        cached.read("k", 0, 1)


def test_a_stat_that_a_change_overtook_is_not_remembered(driver):
    gate = Gate()

    class SlowStat(MemoryDriver):
        @hookimpl
        def stat(self, key):
            found = super().stat(key)
            if found.size_bytes == len(DATA):
                gate.hold()
            return found

    cached = Cached(SlowStat(driver.tier))

    def change():
        gate.wait_for()
        cached.tier.write_index("k", b"new")
        gate.open()

    together([lambda: cached.tier.stat("k"), change], 30)
    assert cached.read("k", 0, 3) == b"new"
    assert cached.stats() == 2


def test_an_object_that_shrank_beside_the_tier_is_read_as_it_is_now(driver, cached):
    cached.read("k", 0, 1)
    put(driver, "k", b"short")
    assert cached.read("k", 0, 1) == DATA[:1]  # still the old one, for its time
    with pytest.raises(RangeError):
        cached.read("k", 500, 1)  # of a chunk that was not read yet
    assert cached.read("k", 0, 5) == b"short"


def test_an_object_that_grew_beside_the_tier_is_found_out(driver, cached):
    cached.read("k", 0, 1)
    put(driver, "k", DATA * 2)
    assert cached.read("k", 1040, 20) == (DATA * 2)[1040:1060]


def test_a_driver_that_gives_too_little_is_named_and_nothing_is_kept(driver):
    class Short(MemoryDriver):
        @hookimpl
        def read_range(self, key, offset, length):
            return super().read_range(key, offset, length)[:-1]

        @hookimpl
        def read_ranges(self, ranges):
            return [self.read_range(each.key, each.offset, each.length) for each in ranges]

    with pytest.raises(BrokenPluginError, match="Short"):
        Cached(Short(driver.tier)).read("k", 0, 10)


# --- threads -----------------------------------------------------------------------------------


def test_threads_that_miss_the_same_chunk_fetch_it_once(driver):
    cached, gate = Cached(driver, memory_bytes=0), Gate()
    cached.calls.before = lambda hook, _: gate.hold() if hook == "read_ranges" else None
    cached.tier.stat("k")

    def watch():
        gate.wait_for()
        wait_for(lambda: cached.statistics.waited == 5)
        gate.open()

    offsets = range(0, 60, 10)
    *answers, _ = together([*(partial(cached.read, "k", offset, 10) for offset in offsets), watch], 30)
    assert answers == [DATA[offset : offset + 10] for offset in offsets]
    assert cached.fetched() == [("k", 0, CHUNK)]


def test_threads_that_want_each_others_chunks_do_not_block(driver):
    cached = Cached(driver, memory_bytes=0)
    wanted = [ranges((0, 250)), ranges((200, 250)), ranges((150, 10), (0, 10)), ranges((400, 1), (0, 300))]

    def work(mine):
        for _ in range(100):
            found = cached.tier.read_ranges(mine)
            assert found == [DATA[each.offset : each.end] for each in mine]

    together([lambda mine=mine: work(mine) for mine in wanted * 2], 60)


def test_who_waited_in_vain_asks_itself(driver):
    cached, gate = Cached(driver), Gate()
    failing = [StoreUnavailableError("the first")]
    lock = threading.Lock()

    def before(hook, arguments):
        if hook == "read_ranges":
            with lock:
                error = failing.pop() if failing else None
            if error:
                gate.hold()
                raise error

    cached.calls.before = before
    cached.tier.stat("k")

    def watch():
        gate.wait_for()
        wait_for(lambda: cached.statistics.waited == 2)
        gate.open()

    *ends, _ = outcomes([*[partial(cached.read, "k", 0, 10)] * 3, watch], 30)
    assert ends.count(DATA[:10]) == 2
    assert [end.what for end in ends if end != DATA[:10]] == ["the first"]
    assert cached.read("k", 0, 10) == DATA[:10]


def test_closing_gives_the_memory_back(cached):
    cached.read("k", 0, 500)
    assert cached.statistics.memory_bytes == 500
    cached.tier.close()
    assert cached.statistics.memory_bytes == 0
    assert cached.read("k", 0, 500) == DATA[:500]


@pytest.mark.parametrize(
    "options",
    [
        {"chunk_bytes": 0},
        {"memory_bytes": -1},
        {"disk_bytes": "lots"},
        {"bulk_bytes": 1.5},
        {"validate_s": "inf"},
    ],
)
def test_options_that_make_no_sense_are_refused(driver, options):
    with pytest.raises(OptionError, match=next(iter(options))):
        Cached(driver, **options)
