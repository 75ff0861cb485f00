"""Tests for plugins: conformance suites, reference implementations in memory, and planned faults."""

import pytest

for _module in (
    "cases",
    "filter_conformance",
    "forks",
    "key_conformance",
    "layer_conformance",
    "ledger_cases",
    "ledger_machine",
    "metadata_cases",
    "metadata_machine",
    "plugin_suite",
    "refusals",
    "schema_conformance",
    "state_machine",
    "store",
    "threads",
):
    pytest.register_assert_rewrite(f"{__name__}.{_module}")  # before they are imported: failures show values

from offload_hooks.testing.back_door import BackDoor  # noqa: E402
from offload_hooks.testing.conformance import DriverConformance  # noqa: E402
from offload_hooks.testing.fault_plan import DoneFault, Fault, FaultPlan  # noqa: E402
from offload_hooks.testing.faults import FaultLayer  # noqa: E402
from offload_hooks.testing.faulty_metadata import FaultyMetadataStore, MetadataCall, MetadataFault  # noqa: E402
from offload_hooks.testing.filter_conformance import FilterConformance  # noqa: E402
from offload_hooks.testing.key_conformance import KeyProviderConformance  # noqa: E402
from offload_hooks.testing.layer_conformance import LayerConformance  # noqa: E402
from offload_hooks.testing.ledger_conformance import LedgerStoreConformance, WritableLedgerStoreConformance  # noqa: E402
from offload_hooks.testing.ledger_machine import ledger_state_machine  # noqa: E402
from offload_hooks.testing.memory import MemoryBackDoor, MemoryDriver, MemoryTier  # noqa: E402
from offload_hooks.testing.memory_ledgers import MemoryLedgers, MemoryLedgerStore  # noqa: E402
from offload_hooks.testing.memory_metadata import MemoryMetadata, MemoryMetadataStore  # noqa: E402
from offload_hooks.testing.metadata_conformance import MetadataStoreConformance  # noqa: E402
from offload_hooks.testing.metadata_machine import metadata_state_machine  # noqa: E402
from offload_hooks.testing.schema_conformance import SchemaProviderConformance  # noqa: E402
from offload_hooks.testing.state_machine import driver_state_machine  # noqa: E402

__all__ = [
    "BackDoor",
    "DoneFault",
    "DriverConformance",
    "Fault",
    "FaultLayer",
    "FaultPlan",
    "FaultyMetadataStore",
    "FilterConformance",
    "KeyProviderConformance",
    "LayerConformance",
    "LedgerStoreConformance",
    "MemoryBackDoor",
    "MemoryDriver",
    "MemoryLedgerStore",
    "MemoryLedgers",
    "MemoryMetadata",
    "MemoryMetadataStore",
    "MemoryTier",
    "MetadataCall",
    "MetadataFault",
    "MetadataStoreConformance",
    "SchemaProviderConformance",
    "WritableLedgerStoreConformance",
    "driver_state_machine",
    "ledger_state_machine",
    "metadata_state_machine",
]
