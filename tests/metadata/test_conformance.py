"""The stores in memory, in SQLite and in ZooKeeper keep what all metadata stores promise."""

from __future__ import annotations

import itertools

import pytest

from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.metadata.stores.zookeeper import ZooKeeperStore
from offload_hooks.testing import MemoryMetadata, MemoryMetadataStore, MetadataStoreConformance

_numbers = itertools.count()


class TestMemory(MetadataStoreConformance):
    one_process = True

    @pytest.fixture
    def make_store(self):
        metadata = MemoryMetadata()
        return lambda: MemoryMetadataStore(metadata)


class TestSqlite(MetadataStoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path):
        return lambda: SqliteStore(f"sqlite:{tmp_path}/records.db", create=True)


class TestZooKeeper(MetadataStoreConformance):
    @pytest.fixture
    def make_store(self, zookeeper):
        url = f"{zookeeper.endpoint}/conformance/{next(_numbers)}"
        return lambda: ZooKeeperStore(url)
