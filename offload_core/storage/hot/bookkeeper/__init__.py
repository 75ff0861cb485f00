"""Read ledgers from the bookies of a live BookKeeper; nothing that is sent can fence or change one."""

from offload_core.storage.hot.bookkeeper.bookkeeper_store import BookKeeperLedgerStore

__all__ = ["BookKeeperLedgerStore"]
