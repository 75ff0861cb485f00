"""The layer with planned faults: what it does to calls, and that a seed means the same faults again."""

from __future__ import annotations

import time
from functools import partial

import pytest

from offload_core.storage.tier import Tier, open_store
from offload_core.storage.tier.chain import Layer
from offload_hooks import ByteRange
from offload_hooks.errors import (
    BrokenPluginError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    StoreTimeoutError,
    StoreUnavailableError,
    UploadError,
)
from offload_hooks.testing import DoneFault, Fault, FaultLayer, FaultPlan, MemoryDriver
from offload_hooks.testing.threads import together


def tier_with(*faults, driver=None, seed=0, sleep=time.sleep):
    plan = FaultPlan(faults, seed=seed, sleep=sleep)
    layer = Layer(name="fault-plan", make=partial(FaultLayer, plan=plan))
    return Tier(driver or MemoryDriver(), [layer]), plan


def test_without_faults_nothing_is_different():
    tier, plan = tier_with()
    upload = tier.begin_data("a", user_metadata={"role": "data"})
    tier.commit_data(upload, [tier.write_block(upload, 1, 0, b"0123")], create_only=True)
    tier.write_index("b", b"45")
    assert tier.stat("a").user_metadata == {"role": "data"}
    assert tier.read_range("a", 1, 2) == b"12"
    assert tier.read_ranges([ByteRange(key="b", offset=1, length=1)]) == [b"5"]
    assert [found.key for found in tier.list_objects()] == ["a", "b"]
    kept, dropped = tier.begin_data("c"), tier.begin_data("c")
    assert [tier.abort_data(dropped), tier.abort_data(dropped)] == [True, False]
    assert [found.upload for found in tier.list_uploads()] == [kept]
    assert tier.delete(["a", "b"]) == 2
    assert plan.done == []


def test_a_failure_before_means_that_nothing_was_done():
    tier, plan = tier_with(Fault(kind="fail-before", hooks=("write_index",), calls=(2,)))
    tier.write_index("a", b"1")
    with pytest.raises(StoreUnavailableError) as caught:
        tier.write_index("a", b"2")
    assert caught.value.retryable
    assert not isinstance(caught.value, StoreTimeoutError)
    assert tier.read_range("a", 0, 1) == b"1"
    tier.write_index("a", b"3")
    assert tier.read_range("a", 0, 1) == b"3"
    assert plan.done == [DoneFault(kind="fail-before", hook="write_index", call=2, key="a")]


def test_a_failure_after_means_that_it_was_done_and_nobody_knows():
    tier, _ = tier_with(Fault(kind="fail-after", hooks=("commit_data",), calls=(1,)))
    upload = tier.begin_data("a")
    receipts = [tier.write_block(upload, 1, 0, b"x")]
    with pytest.raises(StoreTimeoutError):
        tier.commit_data(upload, receipts, create_only=True)
    assert tier.stat("a").size_bytes == 1
    with pytest.raises(UploadError):
        tier.commit_data(upload, receipts, create_only=True)


def test_an_error_of_the_store_is_not_replaced_by_a_failure_after():
    tier, plan = tier_with(Fault(kind="fail-after", probability=1))
    with pytest.raises(ObjectNotFoundError):
        tier.stat("nothing")
    assert plan.done == []


def test_truncated_reads_are_too_short():
    driver = MemoryDriver()
    Tier(driver).write_index("a", bytes(100))
    tier, plan = tier_with(Fault(kind="truncate", probability=1), driver=driver)
    with pytest.raises(BrokenPluginError, match="read_range"):
        tier.read_range("a", 0, 100)
    with pytest.raises(BrokenPluginError, match="read_ranges"):
        tier.read_ranges([ByteRange(key="a", offset=offset, length=10) for offset in range(5)])
    assert [done.hook for done in plan.done] == ["read_range", "read_ranges"]


def test_a_delay_comes_before_the_call():
    driver, slept = MemoryDriver(), []

    def sleep(seconds):
        slept.append((seconds, dict(driver.tier.objects)))

    tier, _ = tier_with(Fault(kind="delay", calls=(1,), delay_s=0.25), driver=driver, sleep=sleep)
    tier.write_index("a", b"x")
    tier.write_index("b", b"x")
    assert slept == [(0.25, {})]


def test_a_call_that_is_made_twice_gives_the_second_answer():
    tier, _ = tier_with(Fault(kind="duplicate", calls=(1,)))
    with pytest.raises(ObjectExistsError):
        tier.write_index("a", b"x", create_only=True)
    assert tier.stat("a").size_bytes == 1
    assert tier.delete(["a"]) == 1


def test_a_stale_listing_is_what_the_same_listing_gave_before():
    tier, plan = tier_with(Fault(kind="stale-list", calls=(1, 3)))
    tier.write_index("a", b"x")
    assert [found.key for found in tier.list_objects()] == ["a"]  # there is no older one
    tier.write_index("b", b"x")
    assert [found.key for found in tier.list_objects("b")] == ["b"]
    assert [found.key for found in tier.list_objects()] == ["a"]
    assert [found.key for found in tier.list_objects()] == ["a", "b"]
    assert [done.call for done in plan.done] == [3]


def test_a_listing_may_break_off():
    tier, _ = tier_with(Fault(kind="fail-after", hooks=("list_objects",), calls=(1,)))
    for key in "abc":
        tier.write_index(key, b"x")
    listing, seen = tier.list_objects(), []
    with pytest.raises(StoreTimeoutError):
        seen.extend(found.key for found in listing)
    assert next(tier.list_objects()).key == "a"


def test_faults_of_one_call_come_together():
    slept = []
    delay = Fault(kind="delay", probability=1)
    failure = Fault(kind="fail-before", hooks=("stat",), calls=(1,))
    tier, plan = tier_with(delay, failure, sleep=slept.append)
    with pytest.raises(StoreUnavailableError):
        tier.stat("a")
    assert [done.kind for done in plan.done] == ["delay", "fail-before"]
    assert slept == [0.01]


def reads(seed):
    driver = MemoryDriver()
    Tier(driver).write_index("a", bytes(10))
    fault = Fault(kind="fail-before", hooks=("read_range",), probability=0.3)
    tier, plan = tier_with(fault, driver=driver, seed=seed)

    def read():
        try:
            tier.read_range("a", 0, 1)
        except StoreUnavailableError:
            return False
        return True

    return tier, plan, read


@pytest.mark.long
def test_a_seed_means_the_same_faults_again_whatever_else_is_called():
    _, _, read = reads(7)
    first = [read() for _ in range(200)]
    tier, _, read = reads(7)
    again = []
    for i in range(200):
        again.append(read())
        if i % 3:
            tier.stat("a")
    assert first == again
    assert 30 < first.count(False) < 90
    assert first != [reads(8)[2]() for _ in range(200)]


def test_calls_from_many_threads_are_counted_once_each():
    _, plan, read = reads(7)
    together([lambda: [read() for _ in range(50)]] * 4, 60)
    hit = sorted(done.call for done in plan.done)
    _, alone, read = reads(7)
    for _ in range(200):
        read()
    assert hit == [done.call for done in alone.done]


def test_a_plan_can_be_text():
    text = "fail-before read_range,stat 10%; fail-after commit_data #1,3 timeout;delay any 0.5% 0.03 ; truncate any 1%"
    parsed = FaultPlan.parse(text, seed="x")
    plan = FaultPlan(
        [
            Fault(kind="fail-before", hooks=("read_range", "stat"), probability=0.1),
            Fault(kind="fail-after", hooks=("commit_data",), calls=(1, 3), error=StoreTimeoutError),
            Fault(kind="delay", probability=0.005, delay_s=0.03),
            Fault(kind="truncate", probability=0.01),
        ],
        seed="x",
    )
    assert parsed.faults == plan.faults


def test_the_layer_is_found_by_its_name_and_takes_its_plan_from_one_text(tmp_path):
    tmp_path.joinpath("a").write_bytes(b"x")
    text = "fault-plan:faults=fail-before stat+read_range #1+2 | fail-after list_objects #1 timeout,seed=7"
    with open_store(tmp_path, layers=[text]) as tier:
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                tier.stat("a")
        assert tier.stat("a").size_bytes == 1
        with pytest.raises(StoreTimeoutError):
            list(tier.list_objects())
        assert [found.key for found in tier.list_objects()] == ["a"]


@pytest.mark.parametrize(
    "text",
    [
        "fail",
        "fail-before read_range",
        "fail-now read_range 10%",
        "fail-before read_rnge 10%",
        "fail-before describe 10%",
        "truncate stat 10%",
        "stale-list stat 10%",
        "fail-before read_range 110%",
        "fail-before read_range often",
        "fail-before read_range #0",
        "fail-before read_range #x",
        "fail-before read_range 1% never",
        "delay any 1% long",
        "delay any 1% -1",
        "delay any 1% nan",
        "delay any 1% 1 2",
    ],
)
def test_a_text_that_is_no_plan_is_refused(text):
    with pytest.raises(OptionError):
        FaultLayer(None, faults=text)
