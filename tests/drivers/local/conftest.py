"""What tests of the driver `local` share: a tier in a directory of their own."""

from __future__ import annotations

import pytest

from offload_drivers.local import LocalDriver


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def driver(root):
    return LocalDriver(str(root))
