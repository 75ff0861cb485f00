"""Whose each ledger of a hot tier is: it says so itself, in the custom metadata that it was created with.

So a ledger that no record lists, because its creator ended before it was recorded, is found by its managed ledger.
Source: BookKeeper's custom metadata as Pulsar writes it (`LedgerMetadataUtils`).
"""

from __future__ import annotations

import threading
from contextlib import closing

from offload_hooks.errors import FormatError, UnknownLedgerError
from offload_hooks.ledger_stores import LedgerStore, LedgerWriter

NAME_KEY = "pulsar/managed-ledger"


class HotLedgers:
    """The ledgers of a hot tier by managed ledger. What was looked up of a ledger is kept: it never changes."""

    def __init__(self, store: LedgerStore) -> None:
        self.store = store
        self._lock = threading.Lock()
        self._names: dict[int, str | None] = {}

    def create(self, name: str) -> LedgerWriter:
        """Create a ledger of this managed ledger. Errors as `LedgerStore.create`."""
        writer = self.store.create(
            {"application": b"pulsar", "component": b"managed-ledger", NAME_KEY: name.encode()}
        )
        with self._lock:
            self._names[writer.ledger_id] = name
        return writer

    def of(self, name: str) -> list[int]:
        """The ids of this managed ledger's ledgers, ascending. A ledger that says nothing, being damaged, is nobody's.

        Each ledger of the store is opened once in the life of this object. Errors as `LedgerStore.ledger_ids`.
        """
        ids = self.store.ledger_ids()
        with self._lock:
            self._names = {ledger_id: self._names[ledger_id] for ledger_id in ids if ledger_id in self._names}
            unknown = [ledger_id for ledger_id in ids if ledger_id not in self._names]
        for ledger_id in unknown:
            found = self._look(ledger_id)
            with self._lock:
                self._names[ledger_id] = found
        with self._lock:
            return [ledger_id for ledger_id in ids if self._names.get(ledger_id) == name]

    def _look(self, ledger_id: int) -> str | None:
        try:
            with closing(self.store.open(ledger_id)) as reader:
                name = reader.status().custom_metadata.get(NAME_KEY)
        except (UnknownLedgerError, FormatError):
            return None
        return None if name is None else name.decode(errors="replace")
