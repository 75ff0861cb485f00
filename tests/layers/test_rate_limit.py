from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layered import layer, stack

from offload_hooks import ByteRange, hookimpl
from offload_hooks.errors import OptionError
from offload_hooks.testing import MemoryDriver
from offload_hooks.testing.forks import in_forked_child
from offload_hooks.testing.threads import together
from offload_hooks.token_bucket import TokenBucket
from offload_layers.rate_limit import RateLimitLayer


class Time:
    """A clock that goes on when somebody sleeps, and not else."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def driver():
    driver = MemoryDriver()
    driver.write_index("k", bytes(1000), "text/plain", {}, False)
    return driver


@pytest.fixture
def limited(driver, time):
    def make(*above, **options):
        class Timed(RateLimitLayer):
            clock = staticmethod(lambda: time.now)
            sleep = staticmethod(time.sleep)

        return stack(driver, *above, layer(Timed, **options))

    return make


# --- the bucket --------------------------------------------------------------------------------


def test_a_full_bucket_goes_at_once_and_then_drips():
    now = [50.0]
    bucket = TokenBucket(10, 2, lambda: now[0])
    assert [bucket.take(5) for _ in range(4)] == [0, 0, 0, 0]
    assert bucket.take(1) == pytest.approx(0.1)
    assert bucket.take(1) == pytest.approx(0.2)
    now[0] += 0.2
    assert bucket.take(1) == pytest.approx(0.1)


def test_unused_tokens_beyond_the_burst_are_lost():
    now = [0.0]
    bucket = TokenBucket(10, 2, lambda: now[0])
    bucket.take(20)
    now[0] += 1000
    assert bucket.take(20) == 0
    assert bucket.take(1) > 0


def test_more_than_the_bucket_holds_waits_for_all_of_it():
    bucket = TokenBucket(10, 2, lambda: 0.0)
    assert bucket.take(100) == pytest.approx(8)


@given(
    steps=st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 50)), min_size=1, max_size=60),
    rate=st.floats(1, 100),
    burst_s=st.floats(0, 3),
)
def test_no_span_of_time_lets_more_through_than_promised(steps, rate, burst_s):
    now = [0.0]
    bucket = TokenBucket(rate, burst_s, lambda: now[0])
    passed = []
    for pause_s, amount in steps:
        now[0] += pause_s
        passed.append((now[0] + bucket.take(amount), amount))
    assert [at for at, _ in passed] == sorted(at for at, _ in passed)  # first come, first served
    largest = max(amount for _, amount in passed)
    for first in range(len(passed)):
        for last in range(first, len(passed)):
            through = sum(amount for _, amount in passed[first : last + 1])
            span_s = passed[last][0] - passed[first][0]
            assert through <= rate * (span_s + burst_s) + largest + 1e-6


def test_many_threads_take_no_more_than_there_is():
    bucket = TokenBucket(1000, 0, lambda: 0.0)
    waits, lock = [], threading.Lock()

    def work():
        for _ in range(200):
            wait_s = bucket.take(1)
            with lock:
                waits.append(wait_s)

    together([work] * 8, 30)
    assert max(waits) == pytest.approx(1.6)
    assert len({round(wait_s, 6) for wait_s in waits}) == 1600


# --- what counts -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"requests_per_second": "", "bytes_per_second": ""}])
def test_without_a_limit_nothing_waits(limited, time, options):
    tier = limited(**options)
    for _ in range(100):
        tier.read_range("k", 0, 1000)
    assert time.slept == []


def test_requests_are_spread(limited, time):
    tier = limited(requests_per_second="4", burst_s="0.5")
    for _ in range(6):
        tier.stat("k")
    assert time.slept == pytest.approx([0.25] * 4)


def test_every_hook_is_one_request(limited, time):
    tier = limited(requests_per_second=1, burst_s=0)
    upload = tier.begin_data("d")
    receipts = [tier.write_block(upload, 1, 0, b"abc")]
    tier.commit_data(upload, receipts)
    tier.abort_data(upload)
    tier.write_index("i", b"x")
    tier.read_range("d", 0, 3)
    tier.read_object("d", 100)
    tier.stat("d")
    list(tier.list_objects())
    list(tier.list_uploads())
    assert time.slept == [1] * 10
    assert tier.describe().name == "memory"
    assert len(time.slept) == 10


def test_many_ranges_and_keys_are_a_request_each(limited, time):
    tier = limited(requests_per_second=1, burst_s=0)
    tier.read_ranges([ByteRange(key="k", offset=0, length=1)] * 3)
    tier.delete(["a", "b"])
    assert time.slept == [3, 2]


def test_ranges_that_the_driver_cannot_read_at_once_count_once(driver, limited, time):
    class OneByOne(MemoryDriver):
        read_ranges = None

    class Timed(RateLimitLayer):
        clock = staticmethod(lambda: 0.0)
        sleep = staticmethod(time.sleep)

    with stack(OneByOne(driver.tier), layer(Timed, requests_per_second=1, burst_s=0)) as tier:
        tier.read_ranges([ByteRange(key="k", offset=0, length=1)] * 3)
    assert sorted(time.slept) == [1, 2, 3]


def test_bytes_are_those_read_and_written(limited, time):
    tier = limited(bytes_per_second=100, burst_s=0)
    tier.read_range("k", 0, 50)
    tier.read_ranges([ByteRange(key="k", offset=0, length=25)] * 2)
    upload = tier.begin_data("d")
    tier.write_block(upload, 1, 0, memoryview(bytes(200)))
    tier.write_index("i", bytes(10))
    tier.stat("k")
    assert time.slept == pytest.approx([0.5, 0.5, 2, 0.1])


def test_the_bytes_of_a_whole_object_delay_the_next_call(limited, time):
    tier = limited(bytes_per_second=100, burst_s=0)
    size = tier.read_object("k", 1000).stat.size_bytes
    assert time.slept == []
    tier.read_range("k", 0, 10)
    assert time.slept == pytest.approx([(size + 10) / 100])


def test_the_longer_wait_of_both_limits_counts(limited, time):
    tier = limited(requests_per_second=10, bytes_per_second=100, burst_s=0)
    tier.read_range("k", 0, 1)
    tier.read_range("k", 0, 100)
    assert time.slept == pytest.approx([0.1, 1])


def test_a_listing_is_a_request_for_every_thousand_objects(limited, driver, time):
    for number in range(2500):
        driver.write_index(f"p/{number:04}", b"", "x", {}, False)
    tier = limited(requests_per_second=1, burst_s=0)
    listing = tier.list_objects("p/")
    assert time.slept == [1]
    for _ in range(1000):
        next(listing)
    assert time.slept == [1]
    assert len(list(listing)) == 1500
    assert time.slept == [1, 1, 1]


def test_below_a_retrying_layer_each_attempt_counts(limited, time):
    class Twice:
        def __init__(self, rest):
            self._rest = rest

        @hookimpl
        def stat(self, key):
            self._rest.stat(key=key)
            return self._rest.stat(key=key)

    limited(layer(Twice), requests_per_second=1, burst_s=0).stat("k")
    assert time.slept == [1, 1]


def test_a_forked_child_has_a_limit_of_its_own(limited, time):
    tier = limited(requests_per_second=1, burst_s=2)
    for _ in range(4):
        tier.stat("k")
    assert time.slept == [1, 1]

    def child():
        time.slept.clear()
        for _ in range(3):
            tier.stat("k")
        assert time.slept == [1]

    in_forked_child(child, 30)


@pytest.mark.parametrize(
    "options",
    [{"requests_per_second": 0}, {"bytes_per_second": "0"}, {"requests_per_second": "x"}, {"burst_s": -1}],
)
def test_options_that_make_no_sense_are_refused(limited, options):
    with pytest.raises(OptionError, match=next(iter(options))):
        limited(**options)
