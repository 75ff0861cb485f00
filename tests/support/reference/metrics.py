"""All metrics: of the service (Prometheus), of the layer `metrics` (OpenTelemetry), of Spark's tasks, as a page."""

import dataclasses
import inspect
import re
from contextlib import suppress

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from offload_core.interfaces.service.offloader_metrics import OffloaderMetrics
from offload_core.interfaces.service.owned_topics import StreamingMetrics
from offload_core.interfaces.service.request_guards import RequestMetrics
from offload_core.reading.scan.read import TaskMetrics
from offload_core.storage.tier import Tier
from offload_core.storage.tier.chain import Layer
from offload_hooks.testing import MemoryDriver
from offload_layers.metrics import MetricsLayer

_HEAD = """\
# Metrics

*For operators who watch the service, layers or Spark's tasks: each metric by its name.*

All names, generated from the program (`make reference`).

## Of the service

`/metrics` of [`offload serve`](../service.md#logs-and-metrics), in Prometheus' format.

| Metric | Kind | |
|---|---|---|
"""

_LAYER = """
## Of the layer `metrics`

Instruments of OpenTelemetry, of the meter `pulsar_offload`; [the layer's page](../layers.md#metrics) says what they
count.

| Instrument | Unit | |
|---|---|---|
"""

_TASKS = """
## Of Spark's tasks

What [`measure_reads`](../spark.md) adds up, and each task logs.

| Field | |
|---|---|
"""


def metrics_page():
    """The page."""
    return "".join([_HEAD, *_of_service(), _LAYER, *_of_layer(), _TASKS, *_of_tasks()])


def _of_service():
    registry = CollectorRegistry()
    counting = (OffloaderMetrics(registry), RequestMetrics(registry), StreamingMetrics(registry, list))
    assert counting
    for metric in sorted(registry.collect(), key=lambda each: each.name):
        total = "_total" if metric.type == "counter" else ""
        yield f"| `{metric.name}{total}` | {metric.type} | {metric.documentation} |\n"


def _of_layer():
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    layer = Layer(name="metrics", make=lambda rest: MetricsLayer(rest, meter_provider=provider))
    with Tier(MemoryDriver(), [layer]) as tier:
        tier.write_index("key", b"x")
        with suppress(FileNotFoundError):
            tier.stat("none")
        data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: f"| `{metric.name}` | `{metric.unit}` | {metric.description} |\n"
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    yield from (found[name] for name in sorted(found))


def _of_tasks():
    documented = dict(re.findall(r"^\s*(\w+): (.+?)\s*$", inspect.getdoc(TaskMetrics) or "", re.MULTILINE))
    for field in dataclasses.fields(TaskMetrics):
        yield f"| `{field.name}` | {documented.get(field.name, '')} |\n"
