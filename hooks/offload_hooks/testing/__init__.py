"""What plugins are tried with: conformance suites, a driver and ledgers in memory, and faults that are planned."""

import pytest

for _module in ("cases", "forks", "ledger_cases", "ledger_machine", "state_machine", "store", "threads"):
    pytest.register_assert_rewrite(f"{__name__}.{_module}")  # before they are imported: failures show values

from offload_hooks.testing.back_door import BackDoor  # noqa: E402
from offload_hooks.testing.conformance import DriverConformance  # noqa: E402
from offload_hooks.testing.fault_plan import DoneFault, Fault, FaultPlan  # noqa: E402
from offload_hooks.testing.faults import FaultLayer  # noqa: E402
from offload_hooks.testing.ledger_conformance import LedgerStoreConformance  # noqa: E402
from offload_hooks.testing.ledger_machine import ledger_state_machine  # noqa: E402
from offload_hooks.testing.memory import MemoryBackDoor, MemoryDriver, MemoryTier  # noqa: E402
from offload_hooks.testing.memory_ledgers import MemoryLedgers, MemoryLedgerStore  # noqa: E402
from offload_hooks.testing.state_machine import driver_state_machine  # noqa: E402

__all__ = [
    "BackDoor",
    "DoneFault",
    "DriverConformance",
    "Fault",
    "FaultLayer",
    "FaultPlan",
    "LedgerStoreConformance",
    "MemoryBackDoor",
    "MemoryDriver",
    "MemoryLedgerStore",
    "MemoryLedgers",
    "MemoryTier",
    "driver_state_machine",
    "ledger_state_machine",
]
