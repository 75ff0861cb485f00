"""Keep entries in the hot tier before they are offloaded: in ledger files, or read from a live BookKeeper."""

from offload_core.storage.hot.file_store import FileLedgerStore, SyncPolicy
from offload_core.storage.hot.ledger_reader import FileLedgerReader
from offload_core.storage.hot.ledger_writer import FileLedgerWriter

__all__ = ["FileLedgerReader", "FileLedgerStore", "FileLedgerWriter", "SyncPolicy"]
