"""The hot tier: entries in ledgers, before they are offloaded; the embedded store of ledger files."""

from offload_core.ledgers.reader import FileLedgerReader
from offload_core.ledgers.store import FileLedgerStore, SyncPolicy
from offload_core.ledgers.writer import FileLedgerWriter

__all__ = ["FileLedgerReader", "FileLedgerStore", "FileLedgerWriter", "SyncPolicy"]
