"""The tier that most exports are of."""

import pytest
from scenes.exports import two_partitions


@pytest.fixture
def tier(tmp_path):
    """Two partitions of `acme/cold/orders`."""
    return two_partitions(tmp_path / "tier")
