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


class LayeredConformance(DriverConformance):
    max_examples = 10

    @pytest.fixture
    def tier(self):
        return MemoryTier()

    @pytest.fixture
    def layers(self, tmp_path):
        raise NotImplementedError

    @pytest.fixture
    def make_driver(self, tier, layers):
        return lambda: Layered(MemoryDriver(tier, CAPABILITIES), layers)

    @pytest.fixture
    def back_door(self, tier):
        return MemoryBackDoor(tier)


@pytest.mark.sampled(3)
class TestRetry(LayeredConformance):
    @pytest.fixture
    def layers(self):
        return [layer(RetryLayer)]


@pytest.mark.sampled(3)
class TestRateLimit(LayeredConformance):
    @pytest.fixture
    def layers(self):
        return [layer(RateLimitLayer, requests_per_second="1e6", bytes_per_second="1e12")]


@pytest.mark.sampled(3)
class TestMetricsAndTracing(LayeredConformance):
    @pytest.fixture
    def layers(self):
        return [layer(MetricsLayer), layer(TracingLayer)]


@pytest.mark.sampled(3)
class TestBlockCache(LayeredConformance):
    @pytest.fixture
    def layers(self, tmp_path):
        return [layer(EagerCache, directory=str(tmp_path), chunk_bytes=1000, validate_s=0)]


@pytest.mark.sampled(3)
class TestHedging(LayeredConformance):
    @pytest.fixture
    def layers(self):
        return [layer(HedgingLayer, delay_s=0, budget_percent=50)]


class TestAll(LayeredConformance):
    @pytest.fixture
    def layers(self, tmp_path):
        return [
            layer(MetricsLayer),
            layer(TracingLayer),
            layer(EagerCache, directory=str(tmp_path), chunk_bytes=1000, validate_s=0),
            layer(HedgingLayer, delay_s=0, budget_percent=50),
            layer(RetryLayer),
            layer(RateLimitLayer, requests_per_second="1e6"),
        ]
