"""When calls are made again, and how long is waited between."""

from __future__ import annotations

import logging
from contextlib import suppress
from types import SimpleNamespace

import pytest
import stamina
from layered import layer, stack

from offload_hooks import ByteRange, hookimpl
from offload_hooks.errors import (
    AccessDeniedError,
    ObjectNotFoundError,
    OptionError,
    StoreTimeoutError,
    StoreUnavailableError,
    StoreUnreachableError,
)
from offload_hooks.testing import FaultLayer, FaultPlan, MemoryDriver
from offload_layers.retry import RetryLayer

AT_ONCE = {"first_wait_s": 0, "jitter_s": 0}


@pytest.fixture
def waits(monkeypatch):
    """The waits, which are not waited."""
    seen: list[float] = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=seen.append))
    return seen


@pytest.fixture
def driver():
    driver = MemoryDriver()
    driver.write_index("k", b"0123456789", "text/plain", {}, False)
    return driver


class Stats:
    """Below it no stat is asked: each takes the next of these outcomes."""

    def __init__(self, *outcomes):
        self.left = list(outcomes)
        self.calls = 0

    @hookimpl
    def stat(self):
        self.calls += 1
        outcome = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def retried(driver, below, **options):
    return stack(driver, layer(RetryLayer, **options), layer(lambda _: below))


def busy(retry_after_s=None):
    return StoreUnavailableError("slow down", retry_after_s=retry_after_s)


# --- which errors ------------------------------------------------------------------------------


def test_a_call_is_made_again_until_it_succeeds(driver, waits):
    stats = Stats(busy(), StoreTimeoutError("?"), driver.stat("k"))
    assert retried(driver, stats).stat("k").size_bytes == 10
    assert stats.calls == 3
    assert len(waits) == 2


@pytest.mark.parametrize("error", [ObjectNotFoundError("no"), AccessDeniedError("no"), ValueError("no")])
def test_errors_that_stay_are_raised_at_once(driver, waits, error):
    stats = Stats(error)
    with pytest.raises(type(error)):
        retried(driver, stats).stat("k")
    assert stats.calls == 1
    assert waits == []


def test_an_error_that_becomes_lasting_ends_it(driver, waits):
    stats = Stats(busy(), AccessDeniedError("the token expired"))
    with pytest.raises(AccessDeniedError):
        retried(driver, stats).stat("k")
    assert stats.calls == 2


def test_a_store_that_was_never_reached_is_asked_once(driver, waits):
    below = Stats(StoreUnreachableError("nothing answers"))
    with pytest.raises(StoreUnreachableError):
        retried(driver, below).stat("k")
    assert (below.calls, waits) == (1, [])


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("answer", [AccessDeniedError("no"), ObjectNotFoundError("none"), None])
def test_one_that_was_reached_before_is_asked_again(driver, answer):
    below = Stats(answer or driver.stat("k"), StoreUnreachableError("nothing answers"), driver.stat("k"))
    tier = retried(driver, below)
    with suppress(AccessDeniedError, ObjectNotFoundError):
        tier.stat("k")
    assert tier.stat("k").size_bytes == 10
    assert below.calls == 3


@pytest.mark.usefixtures("waits")
def test_a_listing_that_has_not_begun_reaches_no_store(driver):
    listings = iter([StoreUnreachableError("nothing answers")])

    class Listings:
        @hookimpl
        def list_objects(self):
            raise next(listings)
            yield

    with pytest.raises(StoreUnreachableError):
        list(retried(driver, Listings()).list_objects())


@pytest.mark.parametrize("attempts", [1, "3"])
def test_the_last_error_is_raised_as_it_came(driver, waits, attempts):
    errors = [busy() for _ in range(int(attempts))]
    cause = errors[-1].__cause__ = ConnectionResetError("by peer")
    stats = Stats(*errors)
    with pytest.raises(StoreUnavailableError) as caught:
        retried(driver, stats, attempts=attempts).stat("k")
    assert caught.value is errors[-1]
    assert caught.value.__cause__ is cause
    assert stats.calls == len(errors)


def test_retries_can_be_switched_off_for_a_program(driver):
    stats = Stats(busy())
    stamina.set_active(False)
    try:
        with pytest.raises(StoreUnavailableError):
            retried(driver, stats).stat("k")
    finally:
        stamina.set_active(True)
    assert stats.calls == 1


# --- waits -------------------------------------------------------------------------------------


def test_waits_double_up_to_the_longest(driver, waits):
    options = {"attempts": 7, "budget_s": 0, "first_wait_s": "0.5", "longest_wait_s": "4", "jitter_s": "0"}
    with pytest.raises(StoreUnavailableError):
        retried(driver, Stats(busy()), **options).stat("k")
    assert waits == [0.5, 1, 2, 4, 4, 4]


def test_waits_are_jittered(driver, waits):
    options = {"attempts": 30, "budget_s": 0, "first_wait_s": 1, "longest_wait_s": 1e9, "jitter_s": 0.5}
    with pytest.raises(StoreUnavailableError):
        retried(driver, Stats(busy()), **options).stat("k")
    added = [wait - 2**i for i, wait in enumerate(waits)]
    assert all(0 <= more <= 0.5 for more in added)
    assert len(set(added)) > 10


def test_what_the_store_asks_to_wait_is_waited_at_least(driver, waits):
    stats = Stats(busy(7), busy(0.01), busy(), driver.stat("k"))
    tier = retried(driver, stats, first_wait_s=0.5, jitter_s=0.25)
    assert tier.stat("k").size_bytes == 10
    assert 7 <= waits[0] <= 7.25
    assert 1 <= waits[1] <= 1.25  # less than would be waited anyway
    assert 2 <= waits[2] <= 2.25


def test_clients_that_are_asked_to_wait_for_the_same_time_are_spread(driver, waits):
    options = {"attempts": 30, "budget_s": 0, "first_wait_s": 0, "jitter_s": 0.5}
    with pytest.raises(StoreUnavailableError):
        retried(driver, Stats(busy(7)), **options).stat("k")
    assert all(7 <= wait <= 7.5 for wait in waits)
    assert len(set(waits)) > 10


def test_a_wait_beyond_the_budget_is_not_begun(driver, waits):
    stats = Stats(busy(61))
    with pytest.raises(StoreUnavailableError):
        retried(driver, stats, budget_s="60").stat("k")
    assert (stats.calls, waits) == (1, [])
    stats = Stats(busy())
    with pytest.raises(StoreUnavailableError):
        retried(driver, stats, budget_s=10, first_wait_s=20, longest_wait_s=20).stat("k")
    assert (stats.calls, waits) == (1, [])


def test_no_attempt_begins_after_the_budget(driver, waits, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("offload_layers.retry.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(Stats):
        @hookimpl
        def stat(self):
            now[0] += 4
            return super().stat()

    stats = Slow(busy())
    with pytest.raises(StoreUnavailableError):
        retried(driver, stats, budget_s=10, first_wait_s=0.1).stat("k")
    assert stats.calls == 3


# --- hooks -------------------------------------------------------------------------------------


def whole(tier):
    """Every hook, and what it must answer."""
    assert tier.read_range("k", 2, 3) == b"234"
    pair = [ByteRange(key="k", offset=0, length=1), ByteRange(key="k", offset=9, length=1)]
    assert tier.read_ranges(pair) == [b"0", b"9"]
    assert tier.read_object("k", 100).data == b"0123456789"
    assert tier.stat("k").size_bytes == 10
    dropped = tier.begin_data("a/dropped")
    assert tier.abort_data(dropped) in (True, False)
    upload = tier.begin_data("a/data", user_metadata={"role": "data"})
    receipts = [tier.write_block(upload, 1, 0, b"abc"), tier.write_block(upload, 2, 3, b"de")]
    assert tier.commit_data(upload, receipts, create_only=True).user_metadata == {"role": "data"}
    assert tier.write_index("a/index", b"x", user_metadata={"n": "1"}, create_only=True).size_bytes == 1
    assert tier.write_index("a/index", b"yz", user_metadata={"n": "2"}).user_metadata == {"n": "2"}
    assert tier.read_range("a/data", 0, 5) == b"abcde"
    assert tier.stat("a/data").user_metadata == {"role": "data"}
    assert tier.read_object("a/data", 100).stat == tier.stat("a/data")
    assert [found.key for found in tier.list_objects()] == ["a/data", "a/index", "k"]
    assert not [stale for stale in tier.list_uploads() if stale.upload == upload]
    assert tier.delete(["a/data", "a/index"]) == 2
    assert [found.key for found in tier.list_objects()] == ["k"]


HOOKS = [
    "begin_data",
    "write_block",
    "commit_data",
    "abort_data",
    "write_index",
    "read_range",
    "read_ranges",
    "read_object",
    "stat",
    "list_objects",
    "delete",
    "list_uploads",
]


@pytest.mark.parametrize("kind", ["fail-before", "fail-after"])
@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_survives_a_lost_call_and_a_lost_answer(driver, hook, kind):
    plan = FaultPlan.parse(f"{kind} {hook} #1,2,4,7")
    whole(stack(driver, layer(RetryLayer, **AT_ONCE), layer(FaultLayer, plan=plan)))
    assert plan.done


@pytest.mark.parametrize("seed", range(20))
def test_every_hook_survives_many_faults(driver, seed):
    plan = FaultPlan.parse("fail-before any 25%; fail-after any 25%", seed=seed)
    whole(stack(driver, layer(RetryLayer, attempts=50, **AT_ONCE), layer(FaultLayer, plan=plan)))
    assert plan.done


def test_a_begin_whose_answer_was_lost_leaves_a_stale_upload(driver):
    plan = FaultPlan.parse("fail-after begin_data #1")
    tier = stack(driver, layer(RetryLayer, **AT_ONCE), layer(FaultLayer, plan=plan))
    upload = tier.begin_data("d")
    assert len({stale.upload for stale in tier.list_uploads()} - {upload}) == 1


# --- log and options ---------------------------------------------------------------------------


def test_each_retry_is_logged_without_arguments(driver, waits, caplog):
    with caplog.at_level(logging.INFO, "offload_layers.retry"):
        plan = FaultPlan.parse("fail-before write_index #1,2")
        tier = stack(driver, layer(RetryLayer), layer(FaultLayer, plan=plan))
        tier.write_index("a/key", b"secret data", user_metadata={"x": "secret value"})
    records = [record for record in caplog.records if record.name == "offload_layers.retry"]
    assert [record.getMessage() for record in records] == [
        "write_index of 'a/key': attempt 2, after StoreUnavailableError",
        "write_index of 'a/key': attempt 3, after StoreUnavailableError",
    ]
    assert [(record.hook, record.key, record.attempt) for record in records] == [
        ("write_index", "a/key", 2),
        ("write_index", "a/key", 3),
    ]
    assert all(record.levelno == logging.WARNING for record in records)
    assert not [record for record in caplog.records if "secret" in str(vars(record))]


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": "many"},
        {"budget_s": -1},
        {"first_wait_s": "soon"},
        {"longest_wait_s": "inf"},
        {"jitter_s": "nan"},
        {"mark_commits": "perhaps"},
    ],
)
def test_options_that_make_no_sense_are_refused(driver, options):
    with pytest.raises(OptionError, match=next(iter(options))):
        stack(driver, layer(RetryLayer, **options))
