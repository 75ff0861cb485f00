"""A driver under any layer, and under all of them, still does what drivers promise."""

from __future__ import annotations

import pytest
from layered import EagerCache, Layered, layer

from offload_hooks.testing import DriverConformance, MemoryBackDoor, MemoryDriver, MemoryTier
from offload_hooks.testing.memory import CAPABILITIES
from offload_layers.hedging import HedgingLayer
from offload_layers.metrics import MetricsLayer
from offload_layers.rate_limit import RateLimitLayer
from offload_layers.retry import RetryLayer
from offload_layers.tracing import TracingLayer


def layers_of(directory):
    """Each layer, or two that only watch; in the recommended order."""
    return {
        "metrics and tracing": [layer(MetricsLayer), layer(TracingLayer)],
        "block-cache": [layer(EagerCache, directory=str(directory), chunk_bytes=1000, validate_s=0)],
        "hedging": [layer(HedgingLayer, delay_s=0, budget_percent=50)],
        "retry": [layer(RetryLayer)],
        "rate-limit": [layer(RateLimitLayer, requests_per_second="1e6", bytes_per_second="1e12")],
    }


class TestAll(DriverConformance):
    """All over each other."""

    max_examples = 10

    @pytest.fixture
    def tier(self):
        return MemoryTier()

    @pytest.fixture
    def layers(self, tmp_path):
        return [each for layers in layers_of(tmp_path).values() for each in layers]

    @pytest.fixture
    def make_driver(self, tier, layers):
        return lambda: Layered(MemoryDriver(tier, CAPABILITIES), layers)

    @pytest.fixture
    def back_door(self, tier):
        return MemoryBackDoor(tier)


@pytest.mark.sampled(6)
class TestEach(TestAll):
    """By itself."""

    @pytest.fixture(params=layers_of(""))
    def layers(self, request, tmp_path):
        return layers_of(tmp_path)[request.param]
