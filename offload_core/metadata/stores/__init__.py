"""Keep records in metadata stores: SQLite, ZooKeeper, compare-and-set."""

from offload_core.metadata.stores.managed_ledger_records import ManagedLedgerRecords, VersionedInfo
from offload_core.metadata.stores.resolved_writes import open_metadata_store

__all__ = ["ManagedLedgerRecords", "VersionedInfo", "open_metadata_store"]
