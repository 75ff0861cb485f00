"""One empty tier on each of the five stores, and one that holds what a broker offloaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import FAR_NAMES, NAMES, Store, new_store
from tiers import put_broker_objects


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty tier of its own on each store."""
    return new_store(request.param, request.getfixturevalue, tmp_path)


@pytest.fixture(scope="module", params=NAMES)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A tier on each store with all that a broker offloaded."""
    return offloaded(request, tmp_path_factory)


@pytest.fixture(scope="module", params=FAR_NAMES)
def far_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The same on each store that is reached over a line."""
    return offloaded(request, tmp_path_factory)


def offloaded(request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> Store:
    made = new_store(request.param, request.getfixturevalue, folders.mktemp("stores"))
    with made.open() as tier:
        put_broker_objects(tier)
    return made
