"""The metadata store in memory keeps what all of them promise."""

from __future__ import annotations

import pytest

from offload_hooks.testing import MemoryMetadata, MemoryMetadataStore, MetadataStoreConformance


class TestMemory(MetadataStoreConformance):
    one_process = True

    @pytest.fixture
    def make_store(self):
        metadata = MemoryMetadata()
        return lambda: MemoryMetadataStore(metadata)
