"""What tests of recovery share: a tier without objects, and a metadata store without records."""

import pytest

from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_hooks.testing import MemoryDriver, MemoryMetadataStore


@pytest.fixture
def tier() -> Tier:
    return Tier(MemoryDriver())


@pytest.fixture
def records() -> ManagedLedgerRecords:
    return ManagedLedgerRecords(MemoryMetadataStore())
