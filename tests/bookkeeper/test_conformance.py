"""The store of BookKeeper passes its part of the conformance suite, for ensembles of all kinds."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import pytest

from offload_hooks.testing import LedgerStoreConformance


class TestBatches(LedgerStoreConformance):
    ledgers: ClassVar = {"ensemble": 2, "write_quorum": 2}
    options: ClassVar = {}

    @pytest.fixture
    def make_store(self, bookkeeper):
        return partial(bookkeeper.store, **self.options)

    @pytest.fixture
    def make_ledger(self, bookkeeper):
        return partial(bookkeeper.make_ledger, **self.ledgers)


class TestStriped(TestBatches):
    ledgers: ClassVar = {"ensemble": 3, "write_quorum": 2}


@pytest.mark.sampled(6)
class TestOneBookie(TestBatches):
    ledgers: ClassVar = {"ensemble": 1, "write_quorum": 1, "ack_quorum": 1}


@pytest.mark.sampled(6)
class TestFewRequests(TestBatches):
    ledgers: ClassVar = {"ensemble": 3, "write_quorum": 3}
    options: ClassVar = {"connections_per_bookie": "1", "requests_per_bookie": "2", "requests_per_second": ""}
