"""Entries of a segment, as they are offered → the blocks of its streaming object, and what its index has of them.

No I/O: a block that is ended is handed on. A block ends when it is full, when another ledger begins, when memory is
short, and with the segment. All but the last are as long as the store's least part. Each ledger has a block, also one
without an entry, where a filter left all of its entries out. Source: docs/formats/streaming.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from offload_core.codec.byte_arrays import Bytes
from offload_core.codec.frames import FRAME_HEADER_BYTES
from offload_core.codec.index import BlockEntry
from offload_core.codec.ledger_info import LedgerInfo
from offload_core.codec.streaming import pack_streaming_index, streaming_block_length
from offload_core.metadata import EntryPosition
from offload_core.offload.growing_block import LEAST_BLOCK_BYTES, GrowingBlock
from offload_core.tier import MemoryBudget
from offload_hooks.errors import OptionError

Longs = npt.NDArray[np.int64]

Said = Mapping[str, str]
"""What an index says of a ledger besides, by name."""

_NOTHING_SAID: Mapping[int, Said] = MappingProxyType({})

LEAST_EARLY_BYTES = 5 << 20
"""A block goes before it is full only if it has so much; Pulsar's least block."""


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

    def index_entry(self, said: Said) -> tuple[LedgerInfo, list[BlockEntry]]:
        """What the index has of it: of an open ledger, as many entries as were seen of it."""
        info = self.info or LedgerInfo(ledger_id=self.ledger_id, entries=self.stop_entry_id)
        return replace(info, properties=tuple(said.items())), self.blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLimits:
    """What blocks may be like.

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
        """Whether this entry comes next: in the ledger that goes on, or the first of a later one after it ended."""
        if self._ledger_ended:
            return ledger_id > self.next.ledger_id and entry_id == 0
        return self.next == EntryPosition(ledger_id, entry_id)

    def has_memory_for(self, payload_bytes: int) -> bool:
        """Whether an entry of this size would find memory now."""
        frame = FRAME_HEADER_BYTES + payload_bytes
        block = self._block
        if block is None or self._ledger_ended or not block.takes(frame):
            block = GrowingBlock(0, 0, self.limits.max_block_bytes, self._budget)
        return self._budget.taken_bytes + block.growth_for(frame) <= self._budget.limit_bytes

    def add(
        self, ledger_id: int, entry_ids: Longs, values: Bytes, offsets: Longs, ids: tuple[int, int]
    ) -> int:
        """Add entries that follow, as many as there is memory and room for; the id that comes next.

        Fewer than all were added where memory is short, or, with `is_full`, where the object has no more blocks.

        Args:
            entry_ids: of the entries that are added, ascending.
            values, offsets: their payloads behind one another, and the borders of these, one more than entries.
            ids: the first id, which follows, and the one behind the last: all others of these are left out.
        """
        (first, stop), count, done = ids, len(entry_ids), 0
        if not count:
            return self._leave_out(ledger_id, first, stop)
        reached = first
        ends = offsets[1:] - offsets[0] + FRAME_HEADER_BYTES * np.arange(1, count + 1)
        while done < count:
            behind = int(ends[done - 1]) if done else 0
            begin = int(entry_ids[done]) if self._has_begun(ledger_id) else first
            block = self._block_for(ledger_id, begin, int(ends[done]) - behind)
            added = 0 if block is None else block.add(values, offsets, entry_ids, done, ends[done:] - behind)
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
        """Of each ledger, the last entry that was added or left out."""
        return {each.ledger_id: each.stop_entry_id - 1 for each in self._ledgers}

    def index(self, said: Mapping[int, Said] = _NOTHING_SAID) -> bytes:
        """The index object, of a segment that has ended; with what is said of its ledgers besides, by their ids."""
        entries = [each.index_entry(said.get(each.ledger_id, {})) for each in self._ledgers]
        return pack_streaming_index(entries, self.data_length)

    def drop(self) -> None:
        """Give the open block's memory back; nothing more is added."""
        if self._block is not None:
            self._block.drop()
            self._block = None

    def _has_begun(self, ledger_id: int) -> bool:
        """Whether there is a share of this ledger, which is the last one then."""
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
        """So many entries of a ledger were added, and all others from the first on to before the stop left out."""
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
