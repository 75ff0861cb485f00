"""The SQLite store keeps what all metadata stores promise."""

from __future__ import annotations

import pytest

from offload_core.metadata.stores.sqlite import SqliteStore
from offload_hooks.testing import MetadataStoreConformance


class TestSqlite(MetadataStoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path):
        return lambda: SqliteStore(f"sqlite:{tmp_path}/records.db", create=True)
