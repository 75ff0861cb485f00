"""Entries of transactions, and their markers, in pieces of a topic: forwards, or from its end backwards.

Payloads are neither decompressed nor decoded. A large block is read backwards by its last bytes: frames are found from
its end on. Source: docs/transactions.md, What it costs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from offload_core.format.codec.arrays import LocatedEntries, read_only
from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, BlockHeader, pack_block_header
from offload_core.format.codec.crc32c import crc32c_address
from offload_core.format.codec.extent import EntryCursor, LedgerExtent
from offload_core.format.codec.index import BlockTable, IndexedBlock
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.kernels.last_entries import find_last_entries
from offload_core.format.messages.transaction_finder import NO_TIMES, TransactionFinder
from offload_core.reading.scan.tasks import Place
from offload_core.reading.scan.transactions.outcomes import NO_RANGES, Table
from offload_core.reading.scan.windows import fetch_windows, range_bytes_of, walk_windows
from offload_core.storage.tier import Tier
from offload_hooks.errors import placed

STEP_BYTES = 1 << 20
"""Bytes of a range that is read forwards."""

FIRST_STEP_BYTES = 256 << 10
"""Bytes of the first range that is read backwards; each one after it has twice as many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What is known of transactions in consecutive entries. The tables are int64, ascending, a row for each thing.

    Attributes:
        ranges: entries of one transaction that follow one another: ledger, first, stop, most and least bits of its id.
        markers: ledger, entry, most and least bits, type.
        first, stop: no entry comes before the first position, or at the second or later; equal without entries.
        first_ms, last_ms: least and greatest publish time, in milliseconds since the epoch; None without entries.
        data_bytes: stored bytes that were read.
    """

    ranges: Table
    markers: Table
    first: Place
    stop: Place
    first_ms: int | None
    last_ms: int | None
    data_bytes: int


def piece_of(
    extent: LedgerExtent, located: Iterable[LocatedEntries], data_bytes: int, *, verify_checksums: bool
) -> Piece:
    """The piece of some entries of an extent. Of a filtered object that is settled only its markers count.

    Raises:
        FormatError: an entry is not right, with ledger, entry and byte.
    """
    finder = TransactionFinder(extent.ledger_id, verify_checksums=verify_checksums)
    first = stop = max(extent.begin_entry_id or 0, extent.blocks[0].first_entry_id)
    for entries in located:
        finder.add(entries)
        stop = int(entries.entry_ids[-1]) + 1
    ranges, markers, _ = finder.tables()
    times = finder.times.tolist()
    first_ms, last_ms = (None, None) if tuple(times) == NO_TIMES else times
    return Piece(
        ranges=NO_RANGES if extent.marks.is_settled else np.insert(ranges, 0, extent.ledger_id, axis=1),
        markers=np.insert(markers[:, [0, 2, 3, 1]], 0, extent.ledger_id, axis=1),
        first=(extent.ledger_id, first),
        stop=(extent.ledger_id, stop),
        first_ms=first_ms,
        last_ms=last_ms,
        data_bytes=data_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceReader:
    """Reads extents piece by piece, as many as are asked for."""

    tier: Tier
    verify_checksums: bool

    def forwards(self, extents: Iterable[LedgerExtent]) -> Generator[Piece, None, None]:
        """Read pieces of about `STEP_BYTES`, in order.

        Raises:
            FormatError, StoreError: of the objects.
        """
        for extent in extents:
            windows = fetch_windows(self.tier, (extent,), step_bytes=STEP_BYTES)
            with placed(key=extent.data_key), contextlib.closing(windows):
                for window, cursor in walk_windows(extent, windows):
                    yield self._piece(extent, cursor.located(), len(window.data))

    def backwards(
        self, extents: Iterable[LedgerExtent], *, first_bytes: int = FIRST_STEP_BYTES
    ) -> Iterator[Piece]:
        """Read pieces of `first_bytes` at first, and then of more and more, the last one first.

        `extents` are in reverse order. Errors as of `forwards`.
        """
        step = first_bytes
        for extent in extents:
            stop = len(extent.blocks)
            while stop:
                begin = stop - 1
                if extent.blocks[begin].length > step and _has_frames(extent):
                    for piece in self._block_backwards(extent, extent.blocks[begin], step):
                        yield piece
                        step = self._more(step)
                else:
                    begin = _together(extent.blocks, stop, step)
                    yield self._whole(extent.with_blocks(extent.blocks[begin:stop]))
                    step = self._more(step)
                stop = begin

    def _more(self, step: int) -> int:
        return min(2 * step, range_bytes_of(self.tier))

    def _piece(self, extent: LedgerExtent, located: Iterable[LocatedEntries], data_bytes: int) -> Piece:
        return piece_of(extent, located, data_bytes, verify_checksums=self.verify_checksums)

    def _whole(self, extent: LedgerExtent) -> Piece:
        """One piece of an extent's blocks."""
        windows = fetch_windows(self.tier, (extent,))
        with placed(key=extent.data_key), contextlib.closing(windows):
            located = (entries for _, cursor in walk_windows(extent, windows) for entries in cursor.located())
            return self._piece(extent, located, extent.data_bytes)

    def _block_backwards(self, extent: LedgerExtent, block: IndexedBlock, step: int) -> Iterator[Piece]:
        """Read a block from its end on. One whose frames are not linked so is read whole, which names the fault."""
        least, end = block.offset + BLOCK_HEADER_BYTES, block.offset + block.length
        next_entry_id = -1 if block.end_entry_id is None else block.end_entry_id
        checksum = crc32c_address() if self.verify_checksums else 0
        row = np.empty(f.E_FIELDS, dtype=np.int64)
        while end > least:
            begin = max(least, end - step)
            data = self.tier.read_range(extent.data_key, begin, end - begin)
            array = read_only(data)
            found, entry_id = find_last_entries(
                array, next_entry_id, block.first_entry_id, extent.marks.skips_ids, checksum, row
            )
            if begin == least and found:
                yield self._whole(extent.with_blocks(BlockTable.of([block])))
                return
            step = self._more(step) if found < len(array) else 2 * step
            if found == len(array):
                continue  # an entry that is larger than the step
            frames = memoryview(cast("Any", array))[found:]
            part = _as_block(extent, block, frames, begin + found, entry_id, next_entry_id)
            yield self._piece(*part, len(array))
            end, next_entry_id = begin + found, entry_id


def _has_frames(extent: LedgerExtent) -> bool:
    """True if the entries of a block can be found from its end on."""
    return extent.hot is None and extent.object_format is not ObjectFormat.MAPFILE


def _together(blocks: BlockTable, stop: int, step: int) -> int:
    """The first of the blocks before `stop` that adjoin and have at most `step` bytes together; one at least."""
    begin = stop - 1
    used = blocks[begin].length
    while begin:
        before = blocks[begin - 1]
        used += before.length
        if used > step or before.offset + before.length != blocks[begin].offset:
            break
        begin -= 1
    return begin


def _as_block(
    extent: LedgerExtent,
    block: IndexedBlock,
    frames: memoryview,
    offset: int,
    entry_id: int,
    next_entry_id: int,
) -> tuple[LedgerExtent, Iterator[LocatedEntries]]:
    """The last frames of a block, which begin at the object's byte `offset`, as a block of their own."""
    length = BLOCK_HEADER_BYTES + len(frames)
    header = BlockHeader(
        object_format=extent.object_format,
        block_length=length,
        first_entry_id=entry_id,
        ledger_id=extent.ledger_id if extent.object_format is ObjectFormat.STREAMING else None,
    )
    part = replace(
        block,
        offset=offset - BLOCK_HEADER_BYTES,
        length=length,
        first_entry_id=entry_id,
        end_entry_id=None if next_entry_id < 0 else next_entry_id,
    )
    only = extent.with_blocks(BlockTable.of([part]))
    cursor = EntryCursor(only)
    with placed(key=extent.data_key):
        cursor.feed(part, pack_block_header(header), part.offset)
        cursor.feed(part, frames, offset)
    return only, cursor.located()
