from __future__ import annotations

import threading

import pytest
from layered import Calls, Gate, layer, stack

from offload_hooks import ByteRange
from offload_hooks.errors import ObjectNotFoundError, OptionError, RangeError, StoreUnavailableError
from offload_hooks.testing import MemoryDriver
from offload_hooks.testing.forks import in_forked_child
from offload_hooks.testing.threads import together
from offload_layers.hedging import KNOWN_ENOUGH, HedgePolicy, HedgingLayer, RequestThreads

DATA = bytes(range(200))
SLOW_S = 0.02  # the delay of these tests


@pytest.fixture
def driver():
    driver = MemoryDriver()
    driver.write_index("k", DATA, "text/plain", {}, False)
    return driver


class Requests:
    """Decides about the n-th request for each range, counted from 1."""

    def __init__(self):
        self.gate = Gate()
        self.held: set[tuple[int, int]] = set()
        self.failing: dict[tuple[int, int], Exception] = {}
        self.fails_late: dict[tuple[int, int], Exception] = {}
        self.calls = Calls(self._before)
        self.batches = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._count: dict[int, int] = {}

    def _before(self, hook, arguments):
        if hook != "read_range":
            self.batches.release()
            return
        offset = arguments["offset"]
        with self._lock:
            number = self._count[offset] = self._count.get(offset, 0) + 1
        if (offset, number) in self.failing:
            raise self.failing[offset, number]
        if (offset, number) in self.held or (offset, number) in self.fails_late:
            self.gate.hold()
        if (offset, number) in self.fails_late:
            raise self.fails_late[offset, number]

    def of(self, offset):
        return self._count.get(offset, 0)


@pytest.fixture
def requests():
    requests = Requests()
    yield requests
    requests.gate.open()


@pytest.fixture
def hedged(driver, requests):
    tiers = []

    def make(**options):
        given = {"delay_s": SLOW_S, "budget_percent": 99, **options}
        tiers.append(stack(driver, layer(HedgingLayer, **given), requests.calls.layer()))
        return tiers[-1]

    yield make
    requests.gate.open()
    for tier in tiers:
        tier.close()


def save_up(tier, count=3):
    """Requests that pay for hedges; at 99 % each one pays for nearly one."""
    for _ in range(count):
        tier.read_range("k", 199, 1)


def ranges(*offsets, length=5):
    return [ByteRange(key="k", offset=offset, length=length) for offset in offsets]


# --- answers -----------------------------------------------------------------------------------


def test_a_fast_range_is_asked_for_once(hedged, requests):
    tier = hedged(delay_s=30)
    assert tier.read_range("k", 3, 4) == DATA[3:7]
    assert tier.read_ranges(ranges(0, 50, 100)) == [DATA[0:5], DATA[50:55], DATA[100:105]]
    assert [requests.of(offset) for offset in (3, 0, 50, 100)] == [1, 1, 1, 1]


def test_a_slow_range_is_asked_for_again_and_the_first_answer_counts(hedged, requests):
    tier = hedged()
    save_up(tier)
    requests.held.add((3, 1))
    assert tier.read_range("k", 3, 4) == DATA[3:7]
    assert requests.of(3) == 2


def test_of_many_ranges_only_the_slow_ones_are_asked_for_again(driver, requests):
    looks = []

    def now():
        # Time stands still until both fast ranges were asked for, and the caller has waited a few times more.
        if requests.of(0) and requests.of(100):
            looks.append(1)
        return 1000.0 if len(looks) > 10 else 0.0

    class Clocked(HedgingLayer):
        clock = staticmethod(now)

    requests.held |= {(50, 1), (150, 1)}
    wanted = ranges(0, 50, 100, 150)
    with stack(driver, layer(Clocked, delay_s=0.02, budget_percent=99), requests.calls.layer()) as tier:
        save_up(tier, 5)
        assert tier.read_ranges(wanted) == [DATA[each.offset : each.end] for each in wanted]
        assert [requests.of(offset) for offset in (0, 50, 100, 150)] == [1, 2, 1, 2]
        requests.gate.open()


def test_the_slow_request_may_still_be_the_first_to_answer(hedged, requests):
    tier = hedged()
    save_up(tier)
    requests.held |= {(3, 2)}
    # The first is held too, by a gate of its own that opens when the hedge is on its way.
    first, before = Gate(), requests.calls.before

    def act(hook, arguments):
        before(hook, arguments)
        if hook == "read_range" and arguments["offset"] == 3 and requests.of(3) == 1:
            first.hold()

    def watch():
        requests.gate.wait_for()
        first.open()

    requests.calls.before = act
    assert together([lambda: tier.read_range("k", 3, 4), watch], 30)[0] == DATA[3:7]
    assert requests.of(3) == 2


def test_a_range_is_hedged_once_at_most(hedged, requests):
    tier = hedged(delay_s=0.001)
    save_up(tier, 20)
    requests.held |= {(3, 1), (3, 2)}

    def watch():
        requests.gate.wait_for(2)
        # Others are hedged meanwhile; this one is not any more.
        requests.held.add((9, 1))
        assert tier.read_range("k", 9, 1) == DATA[9:10]
        requests.gate.open()

    together([lambda: tier.read_range("k", 3, 4), watch], 30)
    assert requests.of(3) == 2


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "offset", "error"), [("nothing", 0, ObjectNotFoundError), ("k", 500, RangeError)]
)
def test_an_error_is_raised_at_once_and_nothing_is_asked_again(hedged, requests, key, offset, error):
    tier = hedged(delay_s=30)
    with pytest.raises(error):
        tier.read_range(key, offset, 1)
    with pytest.raises(error):
        tier.read_ranges([*ranges(0), ByteRange(key=key, offset=offset, length=1)])
    assert requests.of(500) in (0, 2)


def test_the_hedges_error_is_nothing_while_the_first_may_answer(hedged, requests):
    tier = hedged()
    save_up(tier)
    requests.held.add((3, 1))
    hedge_failed = threading.Event()
    before = requests.calls.before

    def act(hook, arguments):
        if hook == "read_range" and arguments["offset"] == 3 and requests.of(3) == 1:
            hedge_failed.set()
            requests.gate.open()
            raise StoreUnavailableError("the hedge")
        before(hook, arguments)

    requests.calls.before = act
    assert tier.read_range("k", 3, 4) == DATA[3:7]
    assert hedge_failed.is_set()


def test_the_firsts_error_is_nothing_while_the_hedge_may_answer(hedged, requests):
    tier = hedged()
    save_up(tier)
    requests.fails_late[3, 1] = StoreUnavailableError("the first")
    requests.held.add((3, 2))

    def watch():
        requests.gate.wait_for(2)
        requests.gate.open()

    assert together([lambda: tier.read_range("k", 3, 4), watch], 30)[0] == DATA[3:7]


def test_when_all_failed_it_is_an_error(hedged, requests):
    tier = hedged()
    save_up(tier)
    requests.fails_late[3, 1] = StoreUnavailableError("the first")
    requests.failing[3, 2] = StoreUnavailableError("the hedge")

    def watch():
        requests.gate.wait_for()
        requests.gate.open()

    def read():
        with pytest.raises(StoreUnavailableError):
            tier.read_ranges(ranges(3, 50))

    together([read, watch], 30)


# --- how many ----------------------------------------------------------------------------------


def test_hedges_keep_to_their_share():
    policy = HedgePolicy(0.0, 0.0, 0.05)
    hedges = 0
    for requests in range(1, 2000):
        policy.requested(1)
        while policy.may_hedge():
            hedges += 1
        assert hedges <= requests * 0.05 + 1e-9
    assert hedges == 99


def test_a_quiet_time_saves_up_for_a_few_hedges_only():
    policy = HedgePolicy(0.0, 0.0, 0.05)
    policy.requested(1_000_000)
    assert sum(policy.may_hedge() for _ in range(100)) == 10


def test_without_a_budget_nothing_is_asked_again(hedged, requests, monkeypatch):
    decide = HedgePolicy.may_hedge

    def may_hedge(policy):
        requests.gate.open()  # the slow request answers now, and not before this was asked
        return decide(policy)

    monkeypatch.setattr(HedgePolicy, "may_hedge", may_hedge)
    tier = hedged(budget_percent="0", delay_s="0")
    requests.held.add((50, 1))
    tier.read_ranges(ranges(*range(0, 100, 5)))
    assert {requests.of(offset) for offset in range(0, 100, 5)} == {1}


def test_when_no_thread_is_left_the_caller_reads_by_itself(hedged, requests):
    tier = hedged(threads="2", delay_s=30)
    requests.held |= {(0, 1), (5, 1)}

    def watch():
        requests.gate.wait_for(2)
        assert requests.batches.acquire(timeout=30)
        assert tier.read_range("k", 50, 4) == DATA[50:54]
        assert tier.read_ranges(ranges(60, 70)) == [DATA[60:65], DATA[70:75]]
        requests.gate.open()

    answers, _ = together([lambda: tier.read_ranges(ranges(0, 5, 10, 15)), watch], 30)
    assert answers == [DATA[offset : offset + 5] for offset in (0, 5, 10, 15)]
    by_caller = [[each.offset for each in call["ranges"]] for call in requests.calls.of("read_ranges")]
    assert sorted(by_caller) == [[10, 15], [60, 70]]


def test_threads_are_bounded_and_closing_waits_for_them(driver, requests, monkeypatch):
    monkeypatch.setattr("offload_layers.hedging.CLOSE_S", 30)
    tier = stack(
        driver, layer(HedgingLayer, delay_s=0.001, budget_percent=99, threads=6), requests.calls.layer()
    )
    save_up(tier, 20)
    requests.held |= {(offset, 1) for offset in range(0, 15, 5)}
    for offset in range(0, 15, 5):
        assert tier.read_range("k", offset, 5) == DATA[offset : offset + 5]
    running = [thread for thread in threading.enumerate() if thread.name == "offload-hedging"]
    assert len(running) == 3
    assert all(thread.daemon for thread in running)
    requests.gate.open()
    tier.close()
    assert not any(thread.is_alive() for thread in running)
    assert tier.read_range("k", 100, 5) == DATA[100:105]
    tier.close()


def test_requests_that_hang_are_waited_for_together_and_not_one_by_one(monkeypatch):
    threads, gate, asked = RequestThreads(4), Gate(), []
    answers = [threads.start(gate.hold) for _ in range(4)]
    gate.wait_for(4)
    now = iter(range(100, 200, 2))  # each look at the clock is two seconds later
    with monkeypatch.context() as patch:
        patch.setattr(threads, "clock", lambda: next(now))
        patch.setattr(threading.Thread, "join", lambda _, timeout: asked.append(timeout))
        threads.wait(5.0)
    assert asked == [3.0, 1.0, 0.0, 0.0]
    gate.open()
    threads.wait(30)
    assert all(answer.done() for answer in answers)


def test_a_forked_child_has_threads_of_its_own(hedged, requests):
    tier = hedged(threads=1, delay_s=30)
    requests.held.add((0, 1))

    def child():
        assert tier.read_range("k", 50, 5) == DATA[50:55]
        assert not requests.calls.of("read_ranges")
        tier.close()

    def watch():
        requests.gate.wait_for()
        in_forked_child(child, 30)  # while the parent's only thread is taken
        requests.gate.open()

    together([lambda: tier.read_range("k", 0, 5), watch], 60)


# --- the delay ---------------------------------------------------------------------------------


def test_the_delay_is_what_few_recent_reads_exceeded():
    policy = HedgePolicy(None, 0.001, 0.05)
    assert policy.delay_s(1000) is None
    for number in range(1, 101):
        policy.took(1000, number / 100)
    assert policy.delay_s(1000) == pytest.approx(0.96)
    for _ in range(200):
        policy.took(1000, 0.5)
    assert policy.delay_s(1000) == 0.5


def test_it_has_a_floor():
    policy = HedgePolicy(None, 0.05, 0.05)
    for _ in range(KNOWN_ENOUGH):
        policy.took(1000, 0.001)
    assert policy.delay_s(1000) == 0.05


def test_reads_of_other_lengths_say_nothing():
    policy = HedgePolicy(None, 0.0, 0.05)
    for _ in range(KNOWN_ENOUGH):
        policy.took(8 << 20, 2.0)
    assert policy.delay_s(64 << 10) is None
    assert policy.delay_s(8 << 20) == 2.0


def test_nothing_is_hedged_before_enough_is_known(hedged, requests):
    tier = hedged(delay_s="", least_delay_s="0")
    for _ in range(KNOWN_ENOUGH - 1):
        tier.read_range("k", 7, 5)
    assert requests.of(7) == KNOWN_ENOUGH - 1
    tier.read_range("k", 7, 5)
    requests.held.add((3, 1))
    assert tier.read_range("k", 3, 5) == DATA[3:8]
    assert requests.of(3) == 2


@pytest.mark.parametrize(
    "options", [{"delay_s": -1}, {"least_delay_s": "x"}, {"budget_percent": 100}, {"threads": 0}]
)
def test_options_that_make_no_sense_are_refused(driver, options):
    with pytest.raises(OptionError, match=next(iter(options))):
        stack(driver, layer(HedgingLayer, **options))
