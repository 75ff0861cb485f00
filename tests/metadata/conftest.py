"""A ZooKeeper's client of the tests' own, and a root for each test."""

from __future__ import annotations

import itertools

import pytest
from network.proxies import ZooKeeperProxy

_numbers = itertools.count()


@pytest.fixture(scope="module")
def client(zookeeper):
    """A client that may do anything, without a proxy."""
    with zookeeper.connected() as client:
        yield client


@pytest.fixture
def proxy(zookeeper):
    """A proxy before the ZooKeeper."""
    with ZooKeeperProxy(zookeeper.port) as proxy:
        yield proxy


@pytest.fixture
def root():
    """A root of the test's own, which is not there yet."""
    return f"/writes/{next(_numbers)}"
