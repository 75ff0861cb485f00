"""The ZooKeeper store keeps what all metadata stores promise."""

from __future__ import annotations

import itertools

import pytest

from offload_core.metadata.stores.zookeeper import ZooKeeperStore
from offload_hooks.testing import MetadataStoreConformance

_numbers = itertools.count()


class TestZooKeeper(MetadataStoreConformance):
    @pytest.fixture
    def make_store(self, zookeeper):
        url = f"{zookeeper.endpoint}/conformance/{next(_numbers)}"
        return lambda: ZooKeeperStore(url)
