"""A `LedgerReader` that is another one, for those that do one of its calls differently."""

from __future__ import annotations

from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerReader, LedgerStatus


class ReaderOver:
    """Passes all calls on to `reader`; see `LedgerReader`."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._reader.ledger_id

    def status(self) -> LedgerStatus:
        """See `LedgerReader`."""
        return self._reader.status()

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`."""
        return self._reader.read(first_entry_id, last_entry_id, max_bytes)

    def close(self) -> None:
        """See `LedgerReader`."""
        self._reader.close()
