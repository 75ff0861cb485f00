"""Keep entries in ledgers of the hot tier before they are offloaded: the embedded store of ledger files."""

from offload_core.storage.hot.file_store import FileLedgerStore, SyncPolicy
from offload_core.storage.hot.ledger_reader import FileLedgerReader
from offload_core.storage.hot.ledger_writer import FileLedgerWriter

__all__ = ["FileLedgerReader", "FileLedgerStore", "FileLedgerWriter", "SyncPolicy"]
