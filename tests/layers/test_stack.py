"""All layers together, in the recommended order: by name, pickled, forked, and over a store that fails."""

from __future__ import annotations

import pickle
import random
import threading

import pytest
from layered import Calls, EagerCache, layer
from tiers import lay_out_broker_objects

from offload_core.storage.tier import Tier, open_store
from offload_drivers.local import LocalDriver
from offload_hooks import ByteRange
from offload_hooks.errors import OffloadError, StoreUnavailableError
from offload_hooks.testing import FaultLayer, FaultPlan, MemoryDriver
from offload_hooks.testing.forks import in_forked_child
from offload_hooks.testing.threads import together
from offload_layers.hedging import HedgingLayer
from offload_layers.metrics import MetricsLayer
from offload_layers.rate_limit import RateLimitLayer
from offload_layers.retry import RetryLayer
from offload_layers.tracing import TracingLayer
from pulsar_offload import TierReader, scan

AT_ONCE = {"attempts": 50, "first_wait_s": 0, "jitter_s": 0}


def by_name(cache):
    """As a command line gives them: all text."""
    return [
        ("metrics", {"place": "outside"}),
        ("tracing", {}),
        ("block-cache", {"directory": str(cache), "memory_bytes": "1000000", "validate_s": "60"}),
        ("hedging", {"delay_s": "", "budget_percent": "5"}),
        ("retry", {"attempts": "5", "budget_s": "30", "mark_commits": "true"}),
        ("rate-limit", {"requests_per_second": "100000", "bytes_per_second": ""}),
    ]


def over(driver, cache, *below, chunk_bytes=1000):
    return Tier(
        driver,
        [
            layer(MetricsLayer),
            layer(TracingLayer),
            layer(
                EagerCache,
                directory=str(cache),
                chunk_bytes=chunk_bytes,
                disk_bytes=1000 * chunk_bytes,
                memory_bytes=10 * chunk_bytes,
            ),
            layer(HedgingLayer, delay_s=0.001, budget_percent=50),
            layer(RetryLayer, **AT_ONCE),
            layer(RateLimitLayer, requests_per_second=1e6),
            *below,
        ],
    )


def use(tier, name):
    """Write, read, list and delete objects that only `name` knows."""
    data = random.Random(name).randbytes(5000)
    upload = tier.begin_data(f"{name}/data", user_metadata={"who": name})
    receipts = [
        tier.write_block(upload, part, 1000 * (part - 1), data[1000 * (part - 1) : 1000 * part])
        for part in range(1, 6)
    ]
    assert tier.commit_data(upload, receipts, create_only=True).size_bytes == 5000
    assert tier.write_index(f"{name}/index", data[:10], create_only=True).size_bytes == 10
    for _ in range(3):
        assert tier.read_range(f"{name}/data", 990, 20) == data[990:1010]
        wanted = [ByteRange(key=f"{name}/data", offset=at, length=700) for at in (0, 4300, 1500)]
        assert tier.read_ranges(wanted) == [data[each.offset : each.end] for each in wanted]
        assert tier.read_range(f"{name}/index", 0, 10) == data[:10]
    assert tier.stat(f"{name}/data").user_metadata == {"who": name}
    assert [found.key for found in tier.list_objects(f"{name}/")] == [f"{name}/data", f"{name}/index"]
    assert tier.delete([f"{name}/data", f"{name}/index"]) == 2
    with pytest.raises(OffloadError):
        tier.read_range(f"{name}/index", 0, 10)


# --- by name -----------------------------------------------------------------------------------


def test_layers_are_opened_by_name_with_options_as_text(tmp_path):
    with open_store(tmp_path / "tier", layers=by_name(tmp_path / "cache")) as tier:
        use(tier, "a")
        assert repr(tier).endswith("under metrics, tracing, block-cache, hedging, retry, rate-limit>")


@pytest.mark.parametrize("name", ["metrics", "tracing", "block-cache", "hedging", "retry", "rate-limit"])
def test_each_layer_needs_no_options(tmp_path, name):
    with open_store(tmp_path, layers=[name]) as tier:
        use(tier, "a")


def test_a_pickled_tier_works_here_and_in_a_forked_child(tmp_path):
    with open_store(tmp_path / "tier", layers=by_name(tmp_path / "cache")) as tier:
        use(tier, "before")
        pickled = pickle.dumps(tier)
        with pickle.loads(pickled) as copy:
            use(copy, "copy")

        def child():
            use(tier, "inherited")
            with pickle.loads(pickled) as copy:
                use(copy, "unpickled")
            tier.close()

        in_forked_child(child, 60)
        use(tier, "after")


@pytest.mark.long
def test_a_fork_in_the_middle_of_work_does_no_harm(tmp_path):
    with open_store(tmp_path / "tier", layers=by_name(tmp_path / "cache")) as tier:
        stop = threading.Event()

        def work():
            number = 0
            while not stop.is_set():
                number += 1
                use(tier, f"{threading.get_ident()}-{number}")

        def fork():
            try:
                for number in range(3):
                    in_forked_child(lambda number=number: use(tier, f"child-{number}"), 60)
            finally:
                stop.set()

        together([work, work, fork], 300)


# --- over a store that fails -------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_store_that_fails_often_is_used_by_many_threads(tmp_path, seed):
    driver = MemoryDriver()
    plan = FaultPlan.parse("fail-before any 15%; fail-after any 15%; delay any 5% 0.002", seed=seed)
    with over(driver, tmp_path, layer(FaultLayer, plan=plan)) as tier:
        together([lambda number=number: use(tier, f"t{number}") for number in range(6)], 60)
    assert len(plan.done) > 20
    assert driver.tier.objects == {}


@pytest.mark.long
def test_a_scan_reads_the_same_by_the_stack_over_a_store_that_fails(tmp_path):
    lay_out_broker_objects(tmp_path / "tier")
    driver = LocalDriver(str(tmp_path / "tier"))
    plan = FaultPlan.parse("fail-before any 20%; fail-after any 20%", seed=1)
    calls = Calls()
    below = [layer(FaultLayer, plan=plan), calls.layer()]
    with over(driver, tmp_path / "cache", *below, chunk_bytes=1 << 16) as tier:
        expected = scan(TierReader(Tier(driver)), level="entries").to_table()
        assert expected.num_rows > 0
        assert scan(TierReader(tier), level="entries").to_table() == expected
        before = len(calls.ranges())
        assert scan(TierReader(tier), level="entries").to_table() == expected
        assert len(calls.ranges()) - before < before
    assert plan.done


def test_an_error_that_stays_comes_out_as_the_driver_raised_it(tmp_path):
    driver = MemoryDriver()
    driver.write_index("k", b"0123456789", "x", {}, False)
    plan = FaultPlan.parse("fail-before read_range,read_ranges,stat 100%")
    refused = pytest.raises(StoreUnavailableError, match="failed by plan")
    with over(driver, tmp_path, layer(FaultLayer, plan=plan)) as tier, refused:
        tier.read_range("k", 0, 1)
    assert len(plan.done) == 50  # of the stat, which comes first
