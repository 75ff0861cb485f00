from __future__ import annotations

from types import SimpleNamespace

import pytest
from layered import Gate, layer, stack
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from offload_hooks import ByteRange, hookimpl
from offload_hooks.errors import ObjectNotFoundError, OptionError, StoreUnavailableError
from offload_hooks.testing import FaultLayer, FaultPlan, MemoryDriver
from offload_hooks.testing.threads import together
from offload_layers.metrics import MetricsLayer
from offload_layers.retry import RetryLayer


class Measured:
    """A meter provider, and what it was told."""

    def __init__(self):
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def points(self, name):
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == f"pulsar_offload.tier.{name}"
            for point in metric.data.data_points
        ]

    def sums(self, name, *attributes):
        """Values by hook, and by these attributes beside it."""
        names = ("pulsar_offload.hook", *attributes)
        found = {
            tuple(point.attributes.get(name) for name in names): getattr(point, "value", None)
            for point in self.points(name)
        }
        return {key[0] if len(key) == 1 else key: value for key, value in found.items()}

    def units(self):
        data = self._reader.get_metrics_data()
        (resource,) = data.resource_metrics
        (scope,) = resource.scope_metrics
        assert scope.scope.name == "pulsar_offload"
        return {metric.name: metric.unit for metric in scope.metrics}


@pytest.fixture
def measured():
    measured = Measured()
    yield measured
    measured.provider.shutdown()


@pytest.fixture
def driver():
    driver = MemoryDriver()
    driver.write_index("k", bytes(100), "text/plain", {}, False)
    return driver


@pytest.fixture
def tier(driver, measured):
    return stack(driver, layer(MetricsLayer, meter_provider=measured.provider))


def use_all(tier):
    upload = tier.begin_data("d")
    receipts = [tier.write_block(upload, 1, 0, bytes(7)), tier.write_block(upload, 2, 7, bytes(5))]
    tier.commit_data(upload, receipts)
    tier.abort_data(upload)
    tier.write_index("i", bytes(3))
    tier.read_range("k", 0, 10)
    tier.read_ranges([ByteRange(key="k", offset=0, length=4), ByteRange(key="d", offset=0, length=4)])
    tier.read_object("k", 100)
    tier.stat("k")
    assert len(list(tier.list_objects())) == 3
    assert list(tier.list_uploads()) == []
    tier.delete(["d", "i"])


HOOKS = {
    "begin_data": 1,
    "write_block": 2,
    "commit_data": 1,
    "abort_data": 1,
    "write_index": 1,
    "read_range": 1,
    "read_ranges": 1,
    "read_object": 1,
    "stat": 1,
    "list_objects": 1,
    "list_uploads": 1,
    "delete": 1,
}


def test_calls_bytes_and_durations_of_every_hook_with_their_attributes_and_units(tier, measured):
    use_all(tier)
    assert measured.sums("calls") == HOOKS
    assert measured.sums("io", "pulsar_offload.io.direction") == {
        ("write_block", "write"): 12,
        ("write_index", "write"): 3,
        ("read_range", "read"): 10,
        ("read_ranges", "read"): 8,
        ("read_object", "read"): 100,
    }
    durations = measured.points("call.duration")
    assert {point.attributes["pulsar_offload.hook"]: point.count for point in durations} == HOOKS
    assert all(point.min >= 0 for point in durations)
    assert measured.sums("calls.active") == dict.fromkeys(HOOKS, 0)
    assert measured.points("errors") == []
    points = [
        point for name in ("calls", "io", "call.duration", "calls.active") for point in measured.points(name)
    ]
    assert {point.attributes["pulsar_offload.driver"] for point in points} == {"memory"}
    assert {name for point in points for name in point.attributes} == {
        "pulsar_offload.hook",
        "pulsar_offload.driver",
        "pulsar_offload.io.direction",
    }, "keys are no attributes"
    with pytest.raises(ObjectNotFoundError):
        tier.stat("nothing")
    assert measured.units() == {
        "pulsar_offload.tier.calls": "{call}",
        "pulsar_offload.tier.errors": "{error}",
        "pulsar_offload.tier.io": "By",
        "pulsar_offload.tier.call.duration": "s",
        "pulsar_offload.tier.calls.active": "{call}",
    }


def test_errors_by_their_type(tier, measured):
    for _ in range(2):
        with pytest.raises(ObjectNotFoundError):
            tier.read_range("nothing", 0, 1)
    assert measured.sums("errors", "error.type") == {("read_range", "ObjectNotFoundError"): 2}
    assert measured.sums("calls") == {"read_range": 2}
    assert measured.points("io") == []
    (duration,) = measured.points("call.duration")
    assert duration.attributes["error.type"] == "ObjectNotFoundError"
    assert measured.sums("calls.active") == {"read_range": 0}


def test_calls_under_way(driver, measured):
    gate = Gate()

    class Held:
        @hookimpl(wrapper=True)
        def stat(self):
            gate.hold()
            return (yield)

    tier = stack(driver, layer(MetricsLayer, meter_provider=measured.provider), layer(lambda _: Held()))

    def watch():
        gate.wait_for(2)
        active = measured.sums("calls.active")
        gate.open()
        assert active == {"stat": 2}

    together([lambda: tier.stat("k"), lambda: tier.stat("k"), watch], 30)
    assert measured.sums("calls.active") == {"stat": 0}


def test_a_listing_counts_when_it_is_over(driver, tier, measured):
    for number in range(5):
        driver.write_index(f"p/{number}", b"", "x", {}, False)
    listing = tier.list_objects("p/")
    assert measured.points("calls") == []
    next(listing)
    assert measured.sums("calls.active") == {"list_objects": 1}
    listing.close()
    assert measured.sums("calls.active") == {"list_objects": 0}
    assert measured.sums("calls") == {"list_objects": 1}
    tier.list_objects("p/")  # never looked at
    assert measured.sums("calls.active") == {"list_objects": 0}


def test_a_listings_time_is_that_of_its_items_without_the_callers_work(driver, measured, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("offload_layers.metrics.time", SimpleNamespace(perf_counter=lambda: now[0]))

    class TakesTime:
        def __init__(self, rest):
            self._rest = rest

        @hookimpl
        def list_objects(self, prefix, start_after):
            for found in self._rest.list_objects(prefix=prefix, start_after=start_after):
                now[0] += 1
                yield found

    driver.write_index("l", b"", "x", {}, False)
    for _ in stack(
        driver, layer(MetricsLayer, meter_provider=measured.provider), layer(TakesTime)
    ).list_objects():
        now[0] += 100
    (point,) = measured.points("call.duration")
    assert (point.count, point.sum) == (1, 2.0)


@pytest.mark.parametrize("kind", ["fail-before", "fail-after"])
def test_a_listing_that_fails_is_an_error(driver, measured, kind):
    tier = stack(
        driver,
        layer(MetricsLayer, meter_provider=measured.provider),
        layer(FaultLayer, plan=FaultPlan.parse(f"{kind} list_objects #1 unavailable")),
    )
    with pytest.raises(StoreUnavailableError):
        list(tier.list_objects())
    assert measured.sums("errors", "error.type") == {("list_objects", "StoreUnavailableError"): 1}
    assert measured.sums("calls.active") == {"list_objects": 0}


def test_two_layers_of_one_tier_are_told_apart(driver, measured):
    tier = stack(
        driver,
        layer(MetricsLayer, place="outside", meter_provider=measured.provider),
        layer(RetryLayer, first_wait_s=0, jitter_s=0),
        layer(MetricsLayer, place="attempts", meter_provider=measured.provider),
        layer(FaultLayer, plan=FaultPlan.parse("fail-before stat #1,2")),
    )
    tier.stat("k")
    assert measured.sums("calls", "pulsar_offload.place") == {("stat", "outside"): 1, ("stat", "attempts"): 3}
    assert measured.sums("errors", "pulsar_offload.place") == {("stat", "attempts"): 2}


def test_without_a_provider_of_its_own_it_uses_the_global_one(driver):
    use_all(stack(driver, layer(MetricsLayer)))


def test_a_provider_that_is_none_is_refused(driver):
    with pytest.raises(OptionError, match="meter_provider"):
        stack(driver, layer(MetricsLayer, meter_provider="otlp"))
