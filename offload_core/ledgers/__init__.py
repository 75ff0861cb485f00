"""The hot tier: entries in ledgers, before they are offloaded; the embedded store of ledger files."""

from offload_core.ledgers.file_store import FileLedgerStore, SyncPolicy
from offload_core.ledgers.ledger_reader import FileLedgerReader
from offload_core.ledgers.ledger_writer import FileLedgerWriter

__all__ = ["FileLedgerReader", "FileLedgerStore", "FileLedgerWriter", "SyncPolicy"]
