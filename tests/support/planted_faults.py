"""The conformance suite over each driver that lies.

Collected by a pytest of its own (`tests/conformance/conftest.py`): its cases are to fail.
"""

from __future__ import annotations

import pytest
from lying_drivers import FAULTS, SECRET, HangsInAForkedChild

from offload_hooks.testing import DriverConformance, MemoryBackDoor, MemoryDriver, MemoryTier


class Suite(DriverConformance):
    driver: type[MemoryDriver] = MemoryDriver
    secrets = (SECRET,)
    many_keys = 50
    races = 1
    racers = 4
    max_examples = 200
    shrink = False

    @pytest.fixture
    def tier(self):
        return MemoryTier()

    @pytest.fixture
    def make_driver(self, tier):
        return lambda: self.driver(tier)

    @pytest.fixture
    def back_door(self, tier):
        return MemoryBackDoor(tier)


for _driver in FAULTS:
    _hangs = {"deadline_s": 2.0} if _driver is HangsInAForkedChild else {}
    globals()[f"Test{_driver.__name__}"] = type(
        f"Test{_driver.__name__}", (Suite,), {"driver": _driver, **_hangs}
    )
