"""The embedded ledger store, by every policy of syncing, and the one in memory pass the conformance suite."""

from __future__ import annotations

from typing import ClassVar

import pytest

from offload_core.storage.hot import FileLedgerStore
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, WritableLedgerStoreConformance


class TestMemory(WritableLedgerStoreConformance):
    @pytest.fixture
    def make_store(self):
        shared = MemoryLedgers()
        return lambda: MemoryLedgerStore(shared)


class TestEmbedded(WritableLedgerStoreConformance):
    options: ClassVar = {"sync": "interval", "sync_interval_s": 0.01}
    max_examples = 10
    shrink = False

    @pytest.fixture
    def make_store(self, tmp_path):
        return lambda: FileLedgerStore(tmp_path / "ledgers", **self.options)


@pytest.mark.sampled(6)
class TestEmbeddedAlways(TestEmbedded):
    options: ClassVar = {"sync": "always"}
    max_examples = 5


@pytest.mark.sampled(6)
class TestEmbeddedWithOneOpenFile(TestEmbedded):
    options: ClassVar = {"sync": "never", "max_open_files": 1}
    max_examples = 10
