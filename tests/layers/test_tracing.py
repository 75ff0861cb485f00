from __future__ import annotations

import pytest
from layered import layer, stack
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from offload_hooks import ByteRange, hookimpl
from offload_hooks.errors import ObjectNotFoundError, OptionError, StoreUnavailableError
from offload_hooks.testing import FaultLayer, FaultPlan, MemoryDriver
from offload_layers.hedging import HedgingLayer
from offload_layers.retry import RetryLayer
from offload_layers.tracing import TracingLayer

ALWAYS = {"driver": "memory", "tier": "memory:"}


class Traced:
    """A tracer provider, and the spans that are over."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def spans(self):
        return self._exporter.get_finished_spans()

    def attributes(self):
        return [
            (
                span.name.removeprefix("pulsar_offload."),
                {name.removeprefix("pulsar_offload."): value for name, value in span.attributes.items()},
            )
            for span in self.spans()
        ]


@pytest.fixture
def traced():
    traced = Traced()
    yield traced
    traced.provider.shutdown()


@pytest.fixture
def driver():
    driver = MemoryDriver()
    driver.write_index("k", bytes(100), "text/plain", {}, False)
    return driver


@pytest.fixture
def tier(driver, traced):
    return stack(driver, layer(TracingLayer, tracer_provider=traced.provider))


def test_every_hook_is_a_span_with_its_attributes(tier, traced):
    upload = tier.begin_data("d", user_metadata={"role": "data"})
    receipts = [tier.write_block(upload, 1, 0, bytes(7)), tier.write_block(upload, 2, 7, bytes(5))]
    tier.commit_data(upload, receipts, create_only=True)
    tier.abort_data(upload)
    tier.write_index("i", bytes(3))
    tier.read_range("k", 5, 10)
    tier.read_ranges([ByteRange(key="k", offset=0, length=4), ByteRange(key="k", offset=9, length=4)])
    tier.read_ranges([ByteRange(key="k", offset=0, length=4), ByteRange(key="d", offset=0, length=4)])
    tier.read_object("k", 100)
    tier.stat("k")
    assert len(list(tier.list_objects("", "d"))) == 2
    assert list(tier.list_uploads("x")) == []
    tier.delete(["d", "i"])
    tier.delete(["k"])
    mine = {"key": "d", "upload_id": upload.upload_id}
    assert traced.attributes() == [
        ("begin_data", {**ALWAYS, "key": "d"}),
        ("write_block", {**ALWAYS, **mine, "part_number": 1, "offset": 0, "bytes": 7}),
        ("write_block", {**ALWAYS, **mine, "part_number": 2, "offset": 7, "bytes": 5}),
        ("commit_data", {**ALWAYS, **mine, "bytes": 12, "create_only": True}),
        ("abort_data", {**ALWAYS, **mine}),
        ("write_index", {**ALWAYS, "key": "i", "bytes": 3, "create_only": False}),
        ("read_range", {**ALWAYS, "key": "k", "offset": 5, "bytes": 10}),
        ("read_ranges", {**ALWAYS, "key": "k", "ranges": 2, "bytes": 8}),
        ("read_ranges", {**ALWAYS, "ranges": 2, "bytes": 8}),
        ("read_object", {**ALWAYS, "key": "k"}),
        ("stat", {**ALWAYS, "key": "k"}),
        ("list_objects", {**ALWAYS, "prefix": "", "objects": 2}),
        ("list_uploads", {**ALWAYS, "prefix": "x", "objects": 0}),
        ("delete", {**ALWAYS, "keys": 2}),
        ("delete", {**ALWAYS, "keys": 1, "key": "k"}),
    ]
    assert all(span.kind is SpanKind.CLIENT for span in traced.spans())
    assert all(span.status.status_code is StatusCode.UNSET for span in traced.spans())


def test_an_error_is_recorded(tier, traced):
    with pytest.raises(ObjectNotFoundError) as caught:
        tier.stat("nothing")
    (span,) = traced.spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ObjectNotFoundError")
    assert span.attributes["error.type"] == "ObjectNotFoundError"
    (event,) = span.events
    assert event.name == "exception"
    assert dict(event.attributes) == {
        "exception.type": "ObjectNotFoundError",
        "exception.message": str(caught.value),
    }


def test_no_foreign_error_text_is_recorded(driver, traced):
    class Leaking:
        @hookimpl
        def stat(self, key):
            try:
                raise ConnectionError("https://store/?signature=SECRET")
            except ConnectionError as error:
                raise StoreUnavailableError("no answer", key=key) from error

        @hookimpl
        def read_range(self):
            raise RuntimeError("https://store/?signature=SECRET")

    provider = layer(TracingLayer, tracer_provider=traced.provider)
    tier = stack(driver, provider, layer(lambda _: Leaking()))
    with pytest.raises(StoreUnavailableError):
        tier.stat("k")
    with pytest.raises(RuntimeError):
        tier.read_range("k", 0, 1)
    assert [span.attributes["error.type"] for span in traced.spans()] == [
        "StoreUnavailableError",
        "RuntimeError",
    ]
    assert not [span for span in traced.spans() if "SECRET" in span.to_json()]


def test_what_is_below_becomes_a_child(driver, traced):
    class Inner:
        @hookimpl(wrapper=True)
        def read_range(self):
            with traced.tracer.start_as_current_span("inner"):
                return (yield)

        @hookimpl(wrapper=True)
        def list_objects(self):
            return self._listed((yield))

        def _listed(self, listing):
            for item in listing:
                with traced.tracer.start_as_current_span("inner"):
                    yield item

    tier = stack(
        driver,
        layer(TracingLayer, tracer_provider=traced.provider),
        layer(HedgingLayer),
        layer(lambda _: Inner()),
    )
    with traced.tracer.start_as_current_span("outer"), tier:
        tier.read_range("k", 0, 1)
    inner, span, outer = traced.spans()
    assert [inner.name, span.name, outer.name] == ["inner", "pulsar_offload.read_range", "outer"]
    assert inner.parent == span.context
    assert span.parent == outer.context


def test_below_a_retrying_layer_each_attempt_is_a_span(driver, traced):
    tier = stack(
        driver,
        layer(RetryLayer, first_wait_s=0, jitter_s=0),
        layer(TracingLayer, tracer_provider=traced.provider),
        layer(FaultLayer, plan=FaultPlan.parse("fail-before stat #1")),
    )
    tier.stat("k")
    assert [span.status.status_code for span in traced.spans()] == [StatusCode.ERROR, StatusCode.UNSET]


def test_a_listing_is_current_while_it_fetches_only(driver, tier, traced):
    driver.write_index("l", b"", "x", {}, False)
    with traced.tracer.start_as_current_span("outer") as outer:
        for _ in tier.list_objects():
            assert trace.get_current_span() is outer
    listing, _ = traced.spans()
    assert listing.parent == outer.get_span_context()


def test_a_listing_that_is_dropped_ends_its_span(driver, tier, traced):
    driver.write_index("l", b"", "x", {}, False)
    listing = tier.list_objects()
    next(listing)
    assert traced.spans() == ()
    listing.close()
    assert traced.attributes() == [("list_objects", {**ALWAYS, "prefix": "", "objects": 1})]
    assert traced.spans()[0].status.status_code is StatusCode.UNSET
    tier.list_objects()  # never looked at
    assert len(traced.spans()) == 1


@pytest.mark.parametrize("kind", ["fail-before", "fail-after"])
def test_a_listing_that_fails_is_an_error(driver, traced, kind):
    tier = stack(
        driver,
        layer(TracingLayer, tracer_provider=traced.provider),
        layer(FaultLayer, plan=FaultPlan.parse(f"{kind} list_objects #1 unavailable")),
    )
    with pytest.raises(StoreUnavailableError):
        list(tier.list_objects())
    (span,) = traced.spans()
    assert span.status.status_code is StatusCode.ERROR


def test_without_a_provider_of_its_own_it_uses_the_global_one(driver):
    assert stack(driver, layer(TracingLayer)).stat("k").size_bytes == 100


def test_a_provider_that_is_none_is_refused(driver):
    with pytest.raises(OptionError, match="tracer_provider"):
        stack(driver, layer(TracingLayer, tracer_provider="otlp"))
