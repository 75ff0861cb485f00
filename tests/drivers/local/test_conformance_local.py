"""The driver `local` passes the suite."""

from __future__ import annotations

import pytest
from tiers import Folder

from offload_drivers.local import LocalDriver
from offload_hooks.testing import DriverConformance


class TestLocal(DriverConformance):
    own_keys = (".offload-uploads/x", "k.metadata.json", "a.metadata.json/b")

    @pytest.fixture
    def make_driver(self, tmp_path):
        return lambda: LocalDriver(tmp_path / "tier")

    @pytest.fixture
    def back_door(self, tmp_path):
        return Folder(tmp_path / "tier")
