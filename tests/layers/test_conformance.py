"""A driver under any layer, and under all of them, still does what drivers promise."""

from __future__ import annotations

import pytest
from layered import EagerCache, Layered, layer

from offload_hooks.testing import (
    DriverConformance,
    FaultLayer,
    LayerConformance,
    MemoryBackDoor,
    MemoryDriver,
    MemoryTier,
)
from offload_hooks.testing.memory import CAPABILITIES
from offload_layers.hedging import HedgingLayer
from offload_layers.metrics import MetricsLayer
from offload_layers.rate_limit import RateLimitLayer
from offload_layers.retry import RetryLayer
from offload_layers.tracing import TracingLayer


def layers_in(directory):
    """Each layer, in the recommended order."""
    return [
        layer(MetricsLayer),
        layer(TracingLayer),
        layer(EagerCache, directory=str(directory), chunk_bytes=1000, validate_s=0),
        layer(HedgingLayer, delay_s=0, budget_percent=50),
        layer(RetryLayer),
        layer(RateLimitLayer, requests_per_second="1e6", bytes_per_second="1e12"),
    ]


class TestAll(DriverConformance):
    """All over each other."""

    max_examples = 10

    @pytest.fixture
    def tier(self):
        return MemoryTier()

    @pytest.fixture
    def layers(self, tmp_path):
        return layers_in(tmp_path)

    @pytest.fixture
    def make_driver(self, tier, layers):
        return lambda: Layered(MemoryDriver(tier, CAPABILITIES), layers)

    @pytest.fixture
    def back_door(self, tier):
        return MemoryBackDoor(tier)


LAYERS = {
    "metrics": (MetricsLayer, {}),
    "tracing": (TracingLayer, {}),
    "block-cache": (EagerCache, {"chunk_bytes": "1000", "validate_s": "0"}),
    "hedging": (HedgingLayer, {"delay_s": "0", "budget_percent": "50"}),
    "retry": (RetryLayer, {}),
    "rate-limit": (RateLimitLayer, {"requests_per_second": "1e6", "bytes_per_second": "1e12"}),
    "fault-plan": (FaultLayer, {"faults": "delay any 10% 0.001"}),
}


@pytest.mark.sampled(6)
class TestEach(LayerConformance):
    """By itself, with options that are text."""

    max_examples = 10

    @pytest.fixture(params=LAYERS)
    def make_layer(self, request, tmp_path):
        make, options = LAYERS[request.param]
        folder = {"directory": str(tmp_path)} if make is EagerCache else {}
        return lambda rest: make(rest, **options, **folder)
