"""What tests of managed ledgers share: records in memory, a hot tier in a folder, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from managed_ledgers import NAME, Clock

from offload_core.ledgers import FileLedgerStore
from offload_core.managed_ledger import Environment, HotLedgers, ManagedLedger, open_managed_ledger
from offload_core.metadata import ManagedLedgerInfo, ManagedLedgerRecords
from offload_hooks.testing import MemoryMetadataStore


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def hot(tmp_path: Path) -> Iterator[FileLedgerStore]:
    store = FileLedgerStore(tmp_path / "hot", sync="never")
    yield store
    store.close()


@pytest.fixture
def records() -> ManagedLedgerRecords:
    return ManagedLedgerRecords(MemoryMetadataStore())


@pytest.fixture
def environment(records: ManagedLedgerRecords, hot: FileLedgerStore, clock: Clock) -> Environment:
    return Environment(records=records, hot=HotLedgers(hot), now_ms=clock)


@pytest.fixture
def opened(environment: Environment) -> Callable[..., ManagedLedger]:
    """Opens the topic; what it is given goes to `open_managed_ledger`."""
    return lambda **given: open_managed_ledger(environment, NAME, **given)


@pytest.fixture
def recorded(records: ManagedLedgerRecords) -> Callable[[], ManagedLedgerInfo]:
    """The topic's record as it is now."""

    def read() -> ManagedLedgerInfo:
        known = records.read(NAME)
        assert known is not None
        return known.info

    return read
