"""A block of a streaming object while entries are still added to it, in memory that grows with them.

Ten thousand topics with a trickle each have ten thousand open blocks, so none takes a whole block's memory before it
needs it. All that is taken is counted in a budget; where that has no room, nothing is added, and nobody waits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from offload_core.codec.block_header import BLOCK_HEADER_BYTES, BlockHeader, pack_block_header
from offload_core.codec.byte_arrays import Bytes
from offload_core.codec.frames import FRAME_HEADER_BYTES
from offload_core.codec.kernels.frames import fill_padding, frame_entries
from offload_core.codec.object_format import ObjectFormat
from offload_core.codec.streaming import LEAST_PADDING_BYTES
from offload_core.tier import MemoryBudget

Longs = npt.NDArray[np.int64]

FIRST_BUFFER_BYTES = 4 << 10
"""What a block takes first; from there on it is doubled."""

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
        self._buffer: Bytes = np.empty(0, dtype=np.uint8)

    @property
    def taken_bytes(self) -> int:
        """The memory that the block has."""
        return len(self._buffer)

    @property
    def content_bytes(self) -> int:
        """The bytes of its frames."""
        return self.used_bytes - BLOCK_HEADER_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether no entry was added yet."""
        return self.used_bytes == BLOCK_HEADER_BYTES

    def takes(self, frame_bytes: int) -> bool:
        """Whether so many bytes of frames may still be added, if there is memory for them; an empty block takes all."""
        return self.is_empty or self.used_bytes + frame_bytes + LEAST_PADDING_BYTES <= self._limit_bytes

    def growth_for(self, frame_bytes: int) -> int:
        """How large the memory must be for so many more bytes of frames; 0 if it is large enough."""
        needed = self.used_bytes + frame_bytes + LEAST_PADDING_BYTES
        if needed <= self.taken_bytes:
            return 0
        size = max(FIRST_BUFFER_BYTES, self.taken_bytes)
        while size < needed:
            size *= 2
        return max(needed, min(size, self._limit_bytes))

    def reserve(self) -> bool:
        """Take the memory that it needs to end, also without an entry; whether there was room."""
        return self._grow(self.growth_for(0))

    def add(self, values: Bytes, offsets: Longs, entry_ids: Longs, first: int, ends: Longs) -> int:
        """Add as many entries as fit the block and its memory; how many.

        Args:
            values: the payloads behind one another, of which the first to add is number `first` of `offsets`.
            entry_ids: of each of them.
            ends: where the frame of each ends, counted from the first one's begin; ascending.
        """
        room = self._limit_bytes - LEAST_PADDING_BYTES - self.used_bytes
        most = int(np.searchsorted(ends, room, side="right"))
        if not most and self.is_empty:
            most = 1
        while most and not self._grow(self.growth_for(int(ends[most - 1]))):
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
        """Give the memory back; the block is not used any more."""
        taken = self.taken_bytes
        self._buffer = np.empty(0, dtype=np.uint8)
        self._budget.give_back(taken)

    def _grow(self, size: int) -> bool:
        """Move to memory of this size; both are taken while that is done. Whether there was room, or no need."""
        if not size:
            return True
        if not self._budget.try_take(size):
            return False
        larger = np.empty(size, dtype=np.uint8)
        kept = self.used_bytes if self.taken_bytes else 0
        larger[:kept] = self._buffer[:kept]
        self.drop()
        self._buffer = larger
        return True
