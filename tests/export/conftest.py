"""The tier that most exports are of."""

from __future__ import annotations

from pathlib import Path

import pytest
from scenes.exports import two_partitions


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """Two partitions of `acme/cold/orders`."""
    return two_partitions(tmp_path / "tier")
