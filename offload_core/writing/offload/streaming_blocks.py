"""Entries of a segment, as they are offered → the blocks of its streaming object, and their entries of its index.

No I/O: a block that is ended is handed on. A block ends when it is full, when another ledger begins, when memory is
short, and with the segment. All but the last are as long as the store's least part. Each ledger has a block, also one
without an entry, where a filter left all of its entries out.

The open block is in memory that grows with its entries: ten thousand topics with a trickle each have ten thousand open
blocks, so none takes a whole block's memory before it needs it. All that is taken is counted in a budget; where that
has no room, nothing is added, and no caller waits. Source: docs/formats/streaming.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes
from offload_core.format.codec.block_layout import (
    BLOCK_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    BlockHeader,
    pack_block_header,
)
from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.kernels.frames import fill_padding, frame_entries
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.codec.streaming import (
    LEAST_PADDING_BYTES,
    pack_streaming_index,
    streaming_block_length,
)
from offload_core.metadata.records import EntryPosition
from offload_core.storage.tier import MemoryBudget
from offload_hooks.errors import OptionError

Longs = npt.NDArray[np.int64]

FIRST_BUFFER_BYTES = 4 << 10
"""First allocation of a block, which is doubled as it grows."""

LARGE_BUFFER_BYTES = 4 << 20
"""From this size on a block has addresses for all that it can hold: it is not copied any more as it grows."""

LEAST_BLOCK_BYTES = BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES + LEAST_PADDING_BYTES
"""A block of one empty entry."""


class GrowingBlock:
    """Entries of one ledger whose ids ascend, framed.

    Args:
        first_entry_id: the first id that it stands for: of its first entry, or of one before it that was left out.
        limit_bytes: the length of the block when it is full; an entry that needs more has a block of its own.
        budget: what the memory is taken from.

    `used_bytes` are the header and the frames, `taken_bytes` the memory.
    """

    def __init__(self, ledger_id: int, first_entry_id: int, limit_bytes: int, budget: MemoryBudget) -> None:
        self.ledger_id = ledger_id
        self.first_entry_id = first_entry_id
        self.used_bytes = BLOCK_HEADER_BYTES
        self._limit_bytes = limit_bytes
        self._budget = budget
        self.taken_bytes = 0
        self._buffer: Bytes = np.empty(0, dtype=np.uint8)

    @property
    def content_bytes(self) -> int:
        """The bytes of its frames."""
        return self.used_bytes - BLOCK_HEADER_BYTES

    @property
    def is_empty(self) -> bool:
        """True if no entry was added yet."""
        return self.used_bytes == BLOCK_HEADER_BYTES

    def takes(self, frame_bytes: int) -> bool:
        """True if a frame of this size fits, if there is memory for it; an empty block takes any."""
        return self.is_empty or self.used_bytes + frame_bytes + LEAST_PADDING_BYTES <= self._limit_bytes

    def memory_for(self, frame_bytes: int) -> int:
        """The memory that is taken for more frames; 0 if there is enough."""
        return self._taken_for(self._size_for(frame_bytes))

    def _taken_for(self, size: int) -> int:
        return max(size - self.taken_bytes, 0) if size <= len(self._buffer) else size

    def _size_for(self, frame_bytes: int) -> int:
        """The size of its memory with more frames; 0 if there is enough."""
        needed = self.used_bytes + frame_bytes + LEAST_PADDING_BYTES
        if needed <= self.taken_bytes:
            return 0
        size = max(FIRST_BUFFER_BYTES, self.taken_bytes)
        while size < needed:
            size *= 2
        return max(needed, min(size, self._limit_bytes))

    def reserve(self) -> bool:
        """Take the memory that it needs to end, also without an entry; return True if there was room."""
        return self._grow(self._size_for(0))

    def add(self, values: Bytes, offsets: Longs, entry_ids: Longs, first: int, ends: Longs) -> int:
        """Add as many entries as fit the block and its memory; how many.

        Args:
            values: the payloads, one after another, of which the first to add is number `first` of `offsets`.
            entry_ids: of each of them.
            ends: where the frame of each ends, counted from the first one's begin; ascending.
        """
        room = self._limit_bytes - LEAST_PADDING_BYTES - self.used_bytes
        most = int(np.searchsorted(ends, room, side="right"))
        if not most and self.is_empty:
            most = 1
        while most and not self._grow(self._size_for(int(ends[most - 1]))):
            most //= 2
        if most:
            self.used_bytes = frame_entries(
                values, offsets, entry_ids, first, first + most, self._buffer, self.used_bytes
            )
        return most

    def end(self, length: int) -> memoryview | None:
        """The whole block with header and padding, `length` bytes; None if there is no memory for the padding."""
        if length > self.taken_bytes and not self._grow(length):
            return None
        header = BlockHeader(
            object_format=ObjectFormat.STREAMING,
            block_length=length,
            first_entry_id=self.first_entry_id,
            ledger_id=self.ledger_id,
        )
        self._buffer[:BLOCK_HEADER_BYTES] = np.frombuffer(pack_block_header(header), dtype=np.uint8)
        fill_padding(self._buffer, self.used_bytes, length)
        return self._buffer.data[:length]

    def drop(self) -> None:
        """Release the memory; the block is not used any more."""
        self._buffer = np.empty(0, dtype=np.uint8)
        self._budget.give_back(self.taken_bytes)
        self.taken_bytes = 0

    def _grow(self, size: int) -> bool:
        """Take memory of this size. Whether there was room, or no need.

        A small block moves to it, and both are taken while that is done. A large one has addresses for all that it can
        hold, which the system gives memory as they are written: it stays where it is.
        """
        if not size:
            return True
        if not self._budget.try_take(self._taken_for(size)):
            return False
        if size > len(self._buffer):
            larger = np.empty(size if size < LARGE_BUFFER_BYTES else max(size, self._limit_bytes), np.uint8)
            kept = self.used_bytes if self.taken_bytes else 0
            larger[:kept] = self._buffer[:kept]
            self.drop()
            self._buffer = larger
        self.taken_bytes = size
        return True


Properties = Mapping[str, str]
"""Properties of a ledger in an index, by name."""

_NO_PROPERTIES: Mapping[int, Properties] = MappingProxyType({})

LEAST_EARLY_BYTES = 5 << 20
"""Least size of a block that is sent before it is full; Pulsar's least block."""


@dataclass(slots=True, kw_only=True)
class BuiltBlock:
    """A block that is ended. `taken_bytes` of memory are given back when its `data` is not needed any more."""

    part_number: int
    offset: int
    data: memoryview
    taken_bytes: int


@dataclass(slots=True)
class _LedgerShare:
    """A ledger's share of the segment; `info` is None while the ledger is open."""

    ledger_id: int
    stop_entry_id: int = 0
    info: LedgerInfo | None = None
    blocks: list[BlockEntry] = field(default_factory=list)

    def index_entry(self, properties: Properties) -> tuple[LedgerInfo, list[BlockEntry]]:
        """The entry of the index: of an open ledger, as many entries as it has here."""
        info = self.info or LedgerInfo(ledger_id=self.ledger_id, entries=self.stop_entry_id)
        return replace(info, properties=tuple(properties.items())), self.blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLimits:
    """Limits of blocks.

    Attributes:
        max_block_bytes: the length of a full block; only an entry that needs more has a longer one.
        min_block_bytes: the least length of all blocks but the last.
        largest_block_bytes: the most that the block of one large entry may have.
        max_blocks: the most blocks of one object.
    """

    max_block_bytes: int
    min_block_bytes: int
    largest_block_bytes: int
    max_blocks: int

    def check_entries(self, ledger_id: int, entry_ids: Longs, lengths: Longs) -> None:
        """Refuse entries (`OptionError`) of which one is too large for any block."""
        largest = int(np.argmax(lengths)) if len(lengths) else 0
        if len(lengths) and LEAST_BLOCK_BYTES + int(lengths[largest]) > self.largest_block_bytes:
            raise OptionError(
                "an entry is larger than any block may be",
                ledger_id=ledger_id,
                entry_id=int(entry_ids[largest]),
                expected=f"{self.largest_block_bytes - LEAST_BLOCK_BYTES:,} bytes or less",
                found=f"{int(lengths[largest]):,} bytes",
            )


class StreamingBlocks:
    """Makes the blocks of one segment. It is used by one thread at a time.

    Args:
        begin: the segment's first entry.
        budget: what the open block's memory is taken from.
        send: takes each block that is ended, and gives back its memory in the end.

    `next` is the entry that comes next, in a ledger that goes on; `first` and `last` are the first and the last one
    that was added or left out; `entry_count` and `payload_bytes` are of those that were added.
    """

    def __init__(
        self,
        begin: EntryPosition,
        limits: BlockLimits,
        budget: MemoryBudget,
        send: Callable[[BuiltBlock], None],
    ) -> None:
        self.next = begin
        self.first: EntryPosition | None = None
        self.last: EntryPosition | None = None
        self.entry_count = 0
        self.payload_bytes = 0
        self.data_length = 0
        self.block_count = 0
        self.is_full = False
        self.limits = limits
        self._early_bytes = max(limits.min_block_bytes, min(limits.max_block_bytes, LEAST_EARLY_BYTES))
        self._budget = budget
        self._send = send
        self._block: GrowingBlock | None = None
        self._ledgers: list[_LedgerShare] = []
        self._ledger_ended = False

    def follows(self, ledger_id: int, entry_id: int) -> bool:
        """True if this entry comes next: in the ledger that goes on, or the first of a later one after it ended."""
        if self._ledger_ended:
            return ledger_id > self.next.ledger_id and entry_id == 0
        return self.next == EntryPosition(ledger_id, entry_id)

    def has_memory_for(self, payload_bytes: int) -> bool:
        """True if an entry of this size would find memory now."""
        frame = FRAME_HEADER_BYTES + payload_bytes
        block = self._block
        if block is None or self._ledger_ended or not block.takes(frame):
            block = GrowingBlock(0, 0, self.limits.max_block_bytes, self._budget)
        return self._budget.taken_bytes + block.memory_for(frame) <= self._budget.limit_bytes

    def add(
        self, ledger_id: int, entry_ids: Longs, values: Bytes, offsets: Longs, ids: tuple[int, int]
    ) -> int:
        """Add entries that follow, as many as there is memory and room for; the id that comes next.

        Fewer than all were added where memory is short, or, with `is_full`, where the object has no more blocks.

        Args:
            entry_ids: of the entries that are added, ascending.
            values, offsets: their payloads, one after another, and the borders of these, one more than entries.
            ids: the first id, which follows, and one past the last; all others of these are left out.
        """
        (first, stop), count, done = ids, len(entry_ids), 0
        if not count:
            return self._leave_out(ledger_id, first, stop)
        reached = first
        ends = offsets[1:] - offsets[0] + FRAME_HEADER_BYTES * np.arange(1, count + 1)
        while done < count:
            base = int(ends[done - 1]) if done else 0
            begin = int(entry_ids[done]) if self._has_begun(ledger_id) else first
            block = self._block_for(ledger_id, begin, int(ends[done]) - base)
            added = 0 if block is None else block.add(values, offsets, entry_ids, done, ends[done:] - base)
            if not added:
                self._send_early()
                break
            self._block = block
            done += added
            reached = stop if done == count else int(entry_ids[done])
            self._note(ledger_id, first, reached, added)
        self.payload_bytes += int(offsets[done] - offsets[0])
        return reached

    def end_ledger(self, info: LedgerInfo) -> None:
        """A ledger, which has a number of entries, ended before the entry that would be its next."""
        self._ledger_ended = True
        self.next = EntryPosition(info.ledger_id, info.entries or 0)
        if self._ledgers and self._ledgers[-1].ledger_id == info.ledger_id:
            self._ledgers[-1].info = info

    def end(self) -> None:
        """The segment ends here; its last block may be short."""
        if self._block is not None:
            self._end_block(0)

    @property
    def end_entry_ids(self) -> dict[int, int]:
        """The last entry, of each ledger, that was added or left out."""
        return {each.ledger_id: each.stop_entry_id - 1 for each in self._ledgers}

    def index(self, properties: Mapping[int, Properties] = _NO_PROPERTIES) -> bytes:
        """The index object, of a segment that has ended; with properties of its ledgers, by their ids."""
        entries = [each.index_entry(properties.get(each.ledger_id, {})) for each in self._ledgers]
        return pack_streaming_index(entries, self.data_length)

    def drop(self) -> None:
        """Release the open block's memory; nothing more is added."""
        if self._block is not None:
            self._block.drop()
            self._block = None

    def _has_begun(self, ledger_id: int) -> bool:
        """True if there is a share of this ledger, which is the last one then."""
        return bool(self._ledgers) and self._ledgers[-1].ledger_id == ledger_id

    def _leave_out(self, ledger_id: int, first: int, stop: int) -> int:
        """Add none of these ids, but a block for a ledger that has none yet; the id that comes next."""
        if first < stop and not self._has_begun(ledger_id):
            block = self._block_for(ledger_id, first, 0)
            if block is None or not block.reserve():
                self._send_early()
                return first
            self._block = block
        if first < stop:
            self._note(ledger_id, first, stop, 0)
        return stop

    def _block_for(self, ledger_id: int, entry_id: int, frame_bytes: int) -> GrowingBlock | None:
        """The block that takes the next entry; None if there can be none, now or at all."""
        block = self._block
        if block is not None and block.ledger_id == ledger_id and block.takes(frame_bytes):
            return block
        if self.block_count + (block is not None) == self.limits.max_blocks:
            self.is_full = True
            return None
        if block is not None and not self._end_block(self.limits.min_block_bytes):
            return None
        return GrowingBlock(ledger_id, entry_id, self.limits.max_block_bytes, self._budget)

    def _note(self, ledger_id: int, first: int, stop: int, count: int) -> None:
        """Record the added entries of a ledger; all others from `first` to before `stop` were left out."""
        if not self._has_begun(ledger_id):
            self._ledgers.append(_LedgerShare(ledger_id))
        self._ledgers[-1].stop_entry_id = stop
        self._ledger_ended = False
        self.first = self.first or EntryPosition(ledger_id, first)
        self.last = EntryPosition(ledger_id, stop - 1)
        self.next = EntryPosition(ledger_id, stop)
        self.entry_count += count

    def _send_early(self) -> None:
        """Memory is short: what the open block has comes free sooner if it goes now."""
        more = self.block_count + 1 < self.limits.max_blocks
        if more and self._block is not None and self._block.used_bytes >= self._early_bytes:
            self._end_block(self.limits.min_block_bytes)

    def _end_block(self, min_block_bytes: int) -> bool:
        """End the open block and hand it on; False, and it stays open, if there is no memory for its padding."""
        block = self._block
        assert block is not None
        length = streaming_block_length(block.content_bytes, min_block_bytes)
        data = block.end(length)
        if data is None:
            return False
        self.block_count += 1
        self._ledgers[-1].blocks.append(
            BlockEntry(
                first_entry_id=block.first_entry_id, part_number=self.block_count, offset=self.data_length
            )
        )
        built = BuiltBlock(
            part_number=self.block_count, offset=self.data_length, data=data, taken_bytes=block.taken_bytes
        )
        self.data_length += length
        self._block = None
        self._send(built)
        return True
