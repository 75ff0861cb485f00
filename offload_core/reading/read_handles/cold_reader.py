"""Open the cold copy of a ledger by its record, and read ranges of its entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.codec.ledger_metadata import LedgerInfo, LedgerMetadata
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import DriverMetadata, LedgerRecord, OffloadContext
from offload_core.reading.read_handles.cold_copy import ColdExtent, open_extents, pinned_bytes
from offload_core.reading.read_handles.entry_search import (
    ExtentBlock,
    KnownPlaces,
    ReadEnd,
    Windows,
    read_block,
)
from offload_core.reading.read_handles.read_memory import ReadMemory, process_memory
from offload_core.reading.read_handles.sparse_entries import CollectedEntries, SparseEntries
from offload_hooks.errors import DataLossError, LedgerClosedError, OptionError, RangeError
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerStatus

_WITHOUT_END = 1 << 62


class ColdReader:
    """Reads one ledger; see `LedgerReader`.

    Args:
        extents: the ledger's objects, in the order of their entries.
        status: the ledger as its record or index has it.
        memory: what all readers share.
        window_bytes: how much is fetched by one range.
    """

    def __init__(
        self, extents: Sequence[ColdExtent], status: LedgerStatus, memory: ReadMemory, window_bytes: int
    ) -> None:
        self._status = status
        self._memory = memory
        self._pinned = pinned_bytes(extents)
        self._places = KnownPlaces(memory, window_bytes)
        self._all_blocks = _Blocks([Windows(extent, memory, window_bytes) for extent in extents])
        self._next_entry_id = 0
        self._closed = False
        memory.pin(self._pinned)

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._status.ledger_id

    def status(self) -> LedgerStatus:
        """See `LedgerReader`. By the ledger's record or metadata, whose size can be wrong in the field."""
        self._check_open()
        return self._status

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`. Of a copy with gaps: the next entries that follow one another without one.

        The batch has all entries from `first_entry_id` to below its `stop_entry_id`: it may begin later than was asked
        for, and is empty if all of the range lies in a gap.
        """
        return self._read(first_entry_id, last_entry_id, max_bytes, dense=True).dense()

    def read_sparse(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> SparseEntries:
        """Read as `read` does, over gaps; errors as well."""
        return self._read(first_entry_id, last_entry_id, max_bytes, dense=False)

    def close(self) -> None:
        """See `LedgerReader`."""
        if not self._closed:
            self._closed = True
            self._memory.pin(-self._pinned)

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerClosedError("the ledger's reader was closed", ledger_id=self.ledger_id)

    def _read(self, first: int, last: int, max_bytes: int, *, dense: bool) -> SparseEntries:
        self._check_open()
        check_range(self._status, first, last, max_bytes)
        ahead = first == self._next_entry_id and first > 0
        collected = CollectedEntries(first, last + 1, max_bytes, dense=dense)
        for of, located in self._located(collected, ahead):
            end = collected.add(located)
            if end is not None:
                self._places.last_end = ReadEnd(
                    token=of.extent.token,
                    block_offset=of.block.offset,
                    entry_id=end.entry_id,
                    place=end.place,
                )
            if collected.is_full:
                break
        entries = collected.entries()
        self._next_entry_id = int(entries.entry_ids[-1]) + 1 if len(entries) else entries.stop_entry_id
        return entries

    def _located(
        self, collected: CollectedEntries, ahead: bool
    ) -> Iterator[tuple[ExtentBlock, LocatedEntries]]:
        """Locate the entries of the range, in order, or those before entries that no complete copy here has."""
        first, stop = collected.first_entry_id, collected.stop_entry_id
        reached = first
        for of in self._all_blocks.ending_after(first):
            begin = of.block.first_entry_id
            if (of.extent.first_entry_id if of.extent.marks.has_gaps else begin) > reached:
                break
            if begin >= stop:
                reached = stop  # this object leaves out the rest of the range
                break
            for located in read_block(of, self._places, first, stop, ahead=ahead):
                yield of, located
                reached = int(located.entry_ids[-1]) + 1
            end = _known_end(of)
            if end is not None:
                reached = max(reached, min(stop, end))
        if reached == first:
            raise DataLossError(
                "entries of a ledger have no complete cold copy",
                ledger_id=self.ledger_id,
                entry_id=first,
                expected=f"entries up to {stop - 1}",
            )
        collected.stop_entry_id = min(stop, reached)


def check_range(status: LedgerStatus, first_entry_id: int, last_entry_id: int, max_bytes: int) -> None:
    """Refuse a range that a ledger does not have (`RangeError`)."""
    if not 0 <= first_entry_id <= last_entry_id < status.entry_count or max_bytes < 1:
        raise RangeError(
            "the ledger does not have these entries",
            ledger_id=status.ledger_id,
            expected=f"first ≤ last < {status.entry_count}, at least 1 byte",
            found=f"{first_entry_id} to {last_entry_id}, {max_bytes} bytes",
        )


class _Blocks:
    """The blocks of all extents, each made when it is asked for; each extent counts up to where the next begins."""

    def __init__(self, extents: Sequence[Windows]) -> None:
        self._extents = extents
        self._stops = [*(windows.extent.first_entry_id for windows in extents[1:]), None]
        self._blocks = [
            blocks if stop is None else blocks.where(blocks.first_entry_ids < stop)
            for blocks, stop in zip((each.extent.blocks_or_gap for each in extents), self._stops, strict=True)
        ]
        ends = [
            np.minimum(blocks.end_entry_ids(unknown=_WITHOUT_END), _WITHOUT_END if stop is None else stop)
            for blocks, stop in zip(self._blocks, self._stops, strict=True)
        ]
        self._ends = np.concatenate(ends)
        self._begins = np.cumsum([0, *map(len, self._blocks)])

    def ending_after(self, entry_id: int) -> Iterator[ExtentBlock]:
        """The extents that may have an entry of this id or a greater one, in order."""
        for number in range(int(np.searchsorted(self._ends, entry_id, side="right")), len(self._ends)):
            at = int(np.searchsorted(self._begins, number, side="right")) - 1
            windows = self._extents[at]
            block = self._blocks[at][number - int(self._begins[at])]
            yield ExtentBlock(windows=windows, block=block, stop_entry_id=self._stops[at])


def _known_end(of: ExtentBlock) -> int | None:
    ends = (of.stop_entry_id, of.block.end_entry_id)
    return min((end for end in ends if end is not None), default=None)


DEFAULT_READ_BUFFER_BYTES = 1 << 20
"""Pulsar's default."""


class ColdReaders:
    """Open cold copies in the tiers that their records name. It need not be closed.

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
            ObjectNotFoundError: a copy that is recorded as complete is missing.
            FormatError: it differs from its record or index.
            StoreError: the tier fails.
        """
        extents = open_extents(self._tiers, record, managed_ledger, self._memory)
        return ColdReader(extents, _status(record, extents), self._memory, self._read_buffer_bytes)

    def read_offloaded(
        self, ledger_id: int, context: OffloadContext, driver_metadata: DriverMetadata | None
    ) -> ColdReader:
        """Open the copy that an offload context names, in the tier of `driver_metadata`, if that is given.

        Errors as `open`.
        """
        if driver_metadata is not None:
            context = replace(context, driver=driver_metadata)
        return self.open(LedgerRecord(info=LedgerInfo(ledger_id=ledger_id), context=context))


def _status(record: LedgerRecord, extents: tuple[ColdExtent, ...]) -> LedgerStatus:
    """The status by the ledger's record, as far as it has it, otherwise by the metadata in its last index."""
    metadata, info = extents[-1].ledger.metadata, record.info
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
