"""The blocks of one ledger in one object, and the cursor over their entries.

Everything that reads a copy reads extents: a ledger's copy is one extent, or one of each of its segments. The copy in
the hot tier is one as well (see `hot_entries`).
A cursor gets the bytes window by window and answers where the entries lie in them. What it does at damage is up to
its caller, who may have it raise or report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes, LocatedEntries, Longs
from offload_core.format.codec.blocks import NO_STOP, BlockCursor, Fault, OnFault
from offload_core.format.codec.entry_directory import DirectoryPlace
from offload_core.format.codec.hot_entries import BatchCursor, hot_blocks
from offload_core.format.codec.index import BlockTable, IndexedBlock, LedgerIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.mapfile.cursor import MapFileCursor
from offload_core.format.codec.mapfile.sequence_file import SequenceFile
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.object_marks import NO_MARKS, ObjectMarks
from offload_hooks.errors import FormatError
from offload_hooks.ledger_stores import EntryBatch

if TYPE_CHECKING:
    from typing_extensions import Self

ENTRIES_AT_ONCE = 16384

WindowData = bytes | bytearray | memoryview | EntryBatch
"""Bytes of an object, or entries of a hot copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotCopy:
    """The copy of a ledger in the hot tier. `managed_ledger` is the name whose record names the others."""

    managed_ledger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerExtent:
    """The blocks of one ledger in one object, and which of their entries are read: `begin_entry_id` to `stop_entry_id`.

    Of an object with gaps there need be no entry between them, and no block.

    Attributes:
        key: of the data object; None of a hot copy, of which `hot` is not None.
        ledger: its blocks, and the ledger's metadata as the index has it.
        begin_entry_id: None where it is not known: of a streaming object with gaps, without a record.
        stop_entry_id: half-open; None to read to the blocks' end: the last extent of a streaming ledger.
        marks: the object's.
        sequence_file: header and length of a MapFile's data file; None in the other formats.
        directory: our own entry directory in the index object.
        checksum_key: the data object's file of checksums (`.crc`), where there is one.
    """

    key: ObjectKey | None
    ledger: LedgerIndex
    begin_entry_id: int | None = None
    stop_entry_id: int | None = None
    marks: ObjectMarks = NO_MARKS
    sequence_file: SequenceFile | None = None
    directory: DirectoryPlace | None = None
    checksum_key: str | None = None
    hot: HotCopy | None = None

    @property
    def ledger_id(self) -> int:
        """The ledger."""
        return self.ledger.ledger_id

    @property
    def object_format(self) -> ObjectFormat:
        """The object's format."""
        return self.object_key.object_format

    @property
    def object_key(self) -> ObjectKey:
        """The data object's key, taken apart; only where the extent lies in an object."""
        if self.key is None:
            raise AssertionError("a hot copy is not an object")
        return self.key

    @property
    def data_key(self) -> str:
        """The data object's key; of a hot copy a name for people."""
        return f"the hot copy of ledger {self.ledger_id}" if self.key is None else self.key.data_key

    @property
    def blocks(self) -> BlockTable:
        """The ledger's blocks in the object."""
        return self.ledger.blocks

    @property
    def first_entry_id(self) -> int:
        """No entry that is read comes before this one."""
        return self.ledger.first_entry_id if self.begin_entry_id is None else self.begin_entry_id

    @property
    def data_bytes(self) -> int:
        """Bytes of the blocks."""
        return self.ledger.blocks.data_bytes

    def with_blocks(self, blocks: BlockTable) -> Self:
        """The same with some of the blocks."""
        return replace(self, ledger=replace(self.ledger, blocks=blocks))

    def between(self, begin_entry_id: int, stop_entry_id: int | None) -> Self | None:
        """The part with the entries from `begin_entry_id` up to `stop_entry_id` (half-open, None for no bound).

        None if no block can have any.
        """
        begin = max(begin_entry_id, self.begin_entry_id or 0)
        stops = [stop for stop in (stop_entry_id, self.stop_entry_id) if stop is not None]
        stop = min(stops, default=None)
        blocks = self.blocks.overlapping(begin, stop)
        if not blocks or (stop is not None and stop <= begin):
            return None
        ledger = self.ledger if blocks is self.blocks else replace(self.ledger, blocks=blocks)
        return replace(self, ledger=ledger, begin_entry_id=begin, stop_entry_id=stop)


def hot_extent(info: LedgerInfo, managed_ledger: str) -> LedgerExtent:
    """The hot copy of a ledger that has `entries` entries, of `size` bytes together."""
    entries = info.entries or 0
    return LedgerExtent(
        key=None,
        hot=HotCopy(managed_ledger=managed_ledger),
        ledger=LedgerIndex(
            ledger_id=info.ledger_id, metadata=info, blocks=hot_blocks(entries, info.size or 0)
        ),
        begin_entry_id=0,
        stop_entry_id=entries,
    )


class EntryCursor:
    """Walks the entries of an extent once, in order, by the compiled kernels, over blocks that come window by window.

    Args:
        extent: its entries from `begin_entry_id` up to `stop_entry_id` are located; the others are walked past.
        on_fault: called at damage; None raises it as a `FormatError`. A wrong header is passed over, and after a bad
            frame the walk goes on with the next block.

    Attributes:
        is_sound: no damage was found.

    Raises:
        FormatError: a subclass, with ledger, block and byte; the caller adds the object's key.
    """

    def __init__(self, extent: LedgerExtent, *, on_fault: OnFault | None = None) -> None:
        self.extent = extent
        self.is_sound = True
        self._on_fault = on_fault
        self._block: BlockCursor | MapFileCursor | BatchCursor | None = None
        self._block_end = 0
        self._passed_bytes = 0
        self._columns: Longs | None = None

    @property
    def needs_window(self) -> bool:
        """True if the window is over: the next entry lies after it, or in another block."""
        return self._block is None or self._block.done or self._block.starved

    @property
    def block_is_done(self) -> bool:
        """True if nothing more is read of the block."""
        return self._block is None or self._block.done

    @property
    def next_entry_id(self) -> int:
        """The least id that can come next."""
        return self.extent.first_entry_id if self._block is None else self._block.next_entry_id

    @property
    def payload_bytes(self) -> int:
        """Bytes of the entries that were walked, also of those that are not asked for."""
        return self._passed_bytes + (0 if self._block is None else self._block.payload_bytes)

    @property
    def reached(self) -> int:
        """The place in the object from which on the next window must have its bytes."""
        return self._block_end if self._block is None or self._block.done else self._block.reached

    @property
    def next_length(self) -> int:
        """Payload bytes of the next entry (only where there is one)."""
        return self._walk.next_length

    @property
    def array(self) -> Bytes:
        """The array of the entries that were located last (uint8)."""
        return self._walk.array

    @property
    def base(self) -> int | None:
        """The place of `array` in the object; None if its bytes are not the object's, but inflated."""
        return self._walk.offset

    def turn_to(self, extent: LedgerExtent) -> None:
        """Go on in another copy of the ledger, with the next entry."""
        self.extent = replace(extent, begin_entry_id=max(extent.begin_entry_id or 0, self.next_entry_id))

    def feed(self, block: IndexedBlock, data: WindowData, offset: int) -> None:
        """Go on in the next window: the bytes `data` of a block, from the object's byte `offset` on.

        A block's first window has its header at least (of a MapFile, any bytes). Another one begins where the last one
        ended, or before that, but not after `reached`. It is ignored if nothing more is read of the block. Of a hot
        copy each window is a batch of entries, and a block of its own.
        """
        if isinstance(data, EntryBatch):
            self._begin(block)
            self._block = BatchCursor(data, self.extent.stop_entry_id)
        elif offset == block.offset:
            self._open(block, data)
        elif isinstance(self._block, BlockCursor | MapFileCursor) and not self._block.done:
            self._block.feed(data, offset)
        if self.extent.begin_entry_id is not None:
            self._walk.skip_to(self.extent.begin_entry_id)

    def skip_to(self, entry_id: int) -> None:
        """Go on to `entry_id` or the first entry after it, as far as the window goes."""
        self._walk.skip_to(entry_id)

    def located(self, byte_room: int = NO_STOP) -> Iterator[LocatedEntries]:
        """The entries that the window still has, some at a time: those that reach `byte_room` bytes.

        Ids, offsets and lengths lie in arrays that are used again for the next ones.
        """
        if self._columns is None:
            self._columns = np.empty((3, ENTRIES_AT_ONCE), dtype=np.int64)
        entry_ids, offsets, lengths = self._columns
        while not self.needs_window:
            count = self.locate(entry_ids, offsets, lengths, byte_room)
            if count:
                yield LocatedEntries(
                    self.array, self.base, entry_ids[:count], offsets[:count], lengths[:count]
                )

    def locate(self, entry_ids: Longs, offsets: Longs, lengths: Longs, byte_room: int) -> int:
        """Find the payloads of the next entries in `array`, and their ids, which ascend; return how many they are.

        As many as fit the outputs; stops after the entry with which they reach `byte_room` bytes. 0 only at the end, of
        the block or of the window.
        """
        return self._walk.locate(entry_ids, offsets, lengths, byte_room)

    def copy(self, values: Bytes, value_offsets: npt.NDArray[np.int32], entry_ids: Longs) -> int:
        """Copy the payloads of the next entries, as many as fit; return how many they are.

        They lie one after another in `values`; `value_offsets` gets their borders (one more than entries), `entry_ids`
        their ids, which ascend. 0 at the end, of the block or of the window, or if the next entry alone is larger than
        `values`: then not `needs_window`, and `next_length` is its size.
        """
        return self._walk.copy(values, value_offsets, entry_ids)

    @property
    def _walk(self) -> BlockCursor | MapFileCursor | BatchCursor:
        if self._block is None:
            raise AssertionError("a cursor is fed before it is read")
        return self._block

    def _open(self, block: IndexedBlock, data: bytes | bytearray | memoryview) -> None:
        extent, stop = self.extent, self.extent.stop_entry_id
        if stop is not None and block.end_entry_id is not None and stop >= block.end_entry_id:
            stop = None  # the whole block is asked for: its end is checked as well
        more = len(data) < block.length
        on_fault = None if self._on_fault is None else self._fault
        self._begin(block)
        if extent.sequence_file is not None:
            self._block = MapFileCursor(
                data,
                extent.sequence_file,
                extent.ledger_id,
                block,
                stop_entry_id=stop,
                gaps=extent.marks.skips_ids,
                more=more,
                on_fault=on_fault,
            )
        else:
            self._block = BlockCursor(
                data,
                extent.object_format,
                extent.ledger_id,
                block,
                stop_entry_id=stop,
                gaps=extent.marks.skips_ids,
                more=more,
                on_fault=on_fault,
            )

    def _begin(self, block: IndexedBlock) -> None:
        """Leave the block before this one."""
        if self._block is not None:
            self._passed_bytes += self._block.payload_bytes
        self._block, self._block_end = None, block.offset + block.length

    def _fault(self, fault: Fault, error: FormatError) -> None:
        assert self._on_fault is not None
        self.is_sound = False
        self._on_fault(fault, error)
