"""The driver in memory passes the suite, whatever it declares."""

from __future__ import annotations

from dataclasses import replace

import pytest

from offload_hooks import Capabilities
from offload_hooks.testing import DriverConformance, MemoryBackDoor, MemoryDriver, MemoryTier
from offload_hooks.testing.memory import CAPABILITIES


class TestMemory(DriverConformance):
    capabilities: Capabilities = CAPABILITIES

    @pytest.fixture
    def tier(self):
        return MemoryTier()

    @pytest.fixture
    def make_driver(self, tier):
        return lambda: MemoryDriver(tier, self.capabilities)

    @pytest.fixture
    def back_door(self, tier):
        return MemoryBackDoor(tier)


@pytest.mark.sampled(6)
class TestOrderedParts(TestMemory):
    capabilities = replace(CAPABILITIES, ordered_parts=True)


@pytest.mark.sampled(6)
class TestExclusiveUploads(TestMemory):
    capabilities = replace(CAPABILITIES, exclusive_uploads=True)


@pytest.mark.sampled(6)
class TestWithoutCreateOnly(TestMemory):
    capabilities = replace(CAPABILITIES, create_only=False, user_metadata="sidecar")


@pytest.mark.sampled(6)
class TestLimits(TestMemory):
    capabilities = replace(CAPABILITIES, min_block_bytes=5 << 20, max_block_bytes=6 << 20, max_blocks=10)
