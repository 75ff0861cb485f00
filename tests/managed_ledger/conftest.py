"""What tests of managed ledgers share: records in memory, both tiers in folders, and a clock that stands still."""

from dataclasses import replace

import pytest
from managed_ledgers import NAME, Audit, Clock, environment_of
from scenes.segments import pool_of
from scenes.transactions import NEVER

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReaders, TieredReaders
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import TransactionalTopic, open_managed_ledger
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import open_tier


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def hot(tmp_path):
    store = FileLedgerStore(tmp_path / "hot", sync="never")
    yield store
    store.close()


@pytest.fixture
def records():
    return ManagedLedgerRecords(MemoryMetadataStore())


@pytest.fixture
def cold(tmp_path):
    with open_tier(tmp_path / "cold") as tier:
        yield tier


@pytest.fixture
def objects(cold):
    """Gives the keys in the tier, in order."""
    return lambda: sorted(each.key for each in cold.store.list_objects())


@pytest.fixture
def audit():
    return Audit()


@pytest.fixture
def environment(records, hot, cold, audit, clock):
    return environment_of(records, hot, cold.store, audit=audit, now_ms=clock)


@pytest.fixture
def tiered(environment, hot, cold):
    """One whose ledgers are read from either copy."""
    return replace(environment, open_reader=TieredReaders(hot, ColdReaders(KnownTiers(cold.store))).open)


@pytest.fixture
def pool(cold, clock):
    return pool_of(cold.store, clock)


@pytest.fixture
def opened(environment):
    """Opens the topic; what it is given goes to `open_managed_ledger`."""
    return lambda **given: open_managed_ledger(environment, NAME, **given)


@pytest.fixture
def recorded(records):
    """The topic's record as it is now."""

    def read():
        return records.read(NAME).info

    return read


@pytest.fixture
def anew(environment, opened):
    """The topic with its transactions, as a new process opens it."""

    def open_anew(policy=NEVER, **given):
        return TransactionalTopic(environment, opened(**given), policy)

    return open_anew
