"""Opening a ledger's cold copy for reading, by its record, or by what an offload context says."""

from __future__ import annotations

from dataclasses import replace

from offload_core.format.codec.ledger_info import LedgerInfo
from offload_core.format.codec.ledger_metadata import LedgerMetadata
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import DriverMetadata, LedgerRecord, OffloadContext
from offload_core.reading.read_handles.cold_copy import ColdPiece, open_pieces
from offload_core.reading.read_handles.memory import ReadMemory, process_memory
from offload_core.reading.read_handles.reader import ColdReader
from offload_hooks.errors import OptionError
from offload_hooks.ledger_stores import LedgerStatus

DEFAULT_READ_BUFFER_BYTES = 1 << 20
"""Pulsar's default."""


class ColdReaders:
    """Opens cold copies, wherever their records say that they are. Nothing of it is closed.

    Args:
        tiers: those that are configured.
        memory: what all readers share; that of the process if none is given.
        read_buffer_bytes: how much is fetched by one range.
    """

    def __init__(
        self,
        tiers: KnownTiers,
        *,
        memory: ReadMemory | None = None,
        read_buffer_bytes: int = DEFAULT_READ_BUFFER_BYTES,
    ) -> None:
        if read_buffer_bytes < 1:
            raise OptionError("a read buffer is at least one byte", found=read_buffer_bytes)
        self._tiers = tiers
        self._memory = process_memory() if memory is None else memory
        self._read_buffer_bytes = read_buffer_bytes

    def open(self, record: LedgerRecord, managed_ledger: str | None = None) -> ColdReader:
        """Open the cold copy that a ledger's record names; `managed_ledger` is its name, by which MapFiles are found.

        Raises:
            UnknownLedgerError: no copy is recorded as complete.
            OptionError: its tier is not configured, or a MapFile is to be found without the name.
            ObjectNotFoundError: what is recorded as complete is not there.
            FormatError: it is not what its record or index says.
            StoreError: the tier fails.
        """
        pieces = open_pieces(self._tiers, record, managed_ledger, self._memory)
        return ColdReader(pieces, _status(record, pieces), self._memory, self._read_buffer_bytes)

    def read_offloaded(
        self, ledger_id: int, context: OffloadContext, driver_metadata: DriverMetadata | None
    ) -> ColdReader:
        """Open the copy that an offload context names, in the tier of `driver_metadata`, if that is given.

        Errors as `open`.
        """
        if driver_metadata is not None:
            context = replace(context, driver=driver_metadata)
        return self.open(LedgerRecord(info=LedgerInfo(ledger_id=ledger_id), context=context))


def _status(record: LedgerRecord, pieces: tuple[ColdPiece, ...]) -> LedgerStatus:
    """The ledger by its record, where that says it, else by the metadata in its last index."""
    metadata, info = pieces[-1].ledger.metadata, record.info
    if isinstance(metadata, LedgerMetadata):
        known = (metadata.last_entry_id or 0) + 1, metadata.length, metadata.ctime_ms or 0
        custom = dict(metadata.custom)
        sealed = True
    else:
        known = metadata.entries or 0, metadata.size or 0, 0
        custom = {}
        sealed = metadata.is_closed or info.is_closed
    entries, size, created_at_ms = known
    return LedgerStatus(
        ledger_id=record.ledger_id,
        entry_count=info.entries if info.is_closed and info.entries is not None else entries,
        size_bytes=info.size if info.is_closed and info.size is not None else size,
        sealed=sealed,
        created_at_ms=created_at_ms,
        custom_metadata=custom,
    )
