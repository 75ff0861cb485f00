"""A sealed ledger of the hot tier → the blocks of its PIP-17 object, one after another, as Pulsar cuts them.

Every block but the last is exactly the maximum long; an entry that fits no such block has one for itself. Entries are
read in batches, go through a filter if there is one, and are framed by the kernel. The first block begins with entry
0, whatever was left out; where nothing is left of a ledger, it has one block without entries.
Source: docs/formats/pip17.md; the twin is `codec.pip17.plan_blocks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.codec.block_header import BLOCK_HEADER_BYTES, BlockHeader, pack_block_header
from offload_core.codec.byte_arrays import Bytes, read_only
from offload_core.codec.entry_directory import STRIDE_BYTES, first_of_each_stride, no_anchors
from offload_core.codec.frames import FRAME_HEADER_BYTES
from offload_core.codec.index import BlockEntry
from offload_core.codec.kernels.frames import fill_padding, frame_entries
from offload_core.codec.object_format import ObjectFormat
from offload_core.filters import FilterRun
from offload_hooks.errors import DataLossError
from offload_hooks.ledger_stores import EntryBatch, LedgerReader, LedgerStatus

READ_BYTES = 4 << 20
"""How much is read of the hot tier at once."""


@dataclass(slots=True)
class _Batch:
    """Entries that were read, and how many of them are framed."""

    entry_ids: npt.NDArray[np.int64]
    values: Bytes
    offsets: npt.NDArray[np.int64]
    done: int = 0

    @property
    def left(self) -> int:
        return len(self.entry_ids) - self.done


class LedgerBlocks:
    """Iterates once over a ledger's blocks; `index` then has them, `data_length` their bytes, `anchors` some entries.

    Args:
        ledger: a sealed ledger.
        status: what it says of itself; it has at least one entry.
        max_block_bytes: the length of all blocks but the last; room for a header and an empty entry.
        new_block: makes memory for so many bytes of a block.
        filter_run: what the entries go through; None for nothing.
        exact_size: whether the entries must have the bytes that `status` says, which can be wrong of a cold copy.

    Raises (as it is iterated over):
        StoreError, FormatError: of the hot tier.
        DataLossError: it gave other entries than those it was asked for, or of another size than it says.
        PluginError, UnresolvedTransactionError: of the filter.
    """

    def __init__(
        self,
        ledger: LedgerReader,
        status: LedgerStatus,
        max_block_bytes: int,
        new_block: Callable[[int], Bytes],
        filter_run: FilterRun | None = None,
        *,
        exact_size: bool = True,
    ) -> None:
        self._ledger = ledger
        self._entry_count = status.entry_count
        self._exact_size = exact_size
        self._payload_bytes = status.size_bytes
        self._max_block_bytes = max_block_bytes
        self._new_block = new_block
        self._filter_run = filter_run
        self.index: list[BlockEntry] = []
        self.data_length = 0
        self.anchors = no_anchors()
        self._last_frame: int | None = None

    def __iter__(self) -> Iterator[memoryview]:
        batches = self._batches()
        batch = next(batches, None)
        if batch is None:
            yield self._ended(self._new_block(BLOCK_HEADER_BYTES), 0, BLOCK_HEADER_BYTES, BLOCK_HEADER_BYTES)
        while batch is not None:
            first_entry_id = int(batch.entry_ids[batch.done]) if self.index else 0
            block = self._new_block(max(self._max_block_bytes, _alone(batch)))
            end = BLOCK_HEADER_BYTES
            while batch is not None:
                end = self._fill(batch, block, end)
                if batch.left:
                    break
                batch = next(batches, None)
            length = end if batch is None else len(block)
            yield self._ended(block, first_entry_id, end, length)

    def _ended(self, block: Bytes, first_entry_id: int, end: int, length: int) -> memoryview:
        """A block whose frames end at `end`, with header and padding; it is in the index from now on."""
        header = BlockHeader(
            object_format=ObjectFormat.PIP17,
            block_length=length,
            first_entry_id=first_entry_id,
            ledger_id=None,
        )
        block[:BLOCK_HEADER_BYTES] = np.frombuffer(pack_block_header(header), dtype=np.uint8)
        fill_padding(block, end, length)
        self.index.append(
            BlockEntry(
                first_entry_id=first_entry_id, part_number=len(self.index) + 1, offset=self.data_length
            )
        )
        self.data_length += length
        return block.data[:length]

    def _fill(self, batch: _Batch, block: Bytes, end: int) -> int:
        """Frame as many entries as fit the block from `end` on; where the last of them ends."""
        borders = batch.offsets[batch.done + 1 :] - batch.offsets[batch.done]
        borders = borders + FRAME_HEADER_BYTES * np.arange(1, len(borders) + 1)
        fitting = int(np.searchsorted(borders, len(block) - end, side="right"))
        if not fitting:
            return end
        first = batch.done
        batch.done += fitting
        frames = self.data_length + end + np.concatenate([[0], borders[: fitting - 1]])
        self._note(batch.entry_ids[first : batch.done], frames)
        written: int = frame_entries(
            batch.values, batch.offsets, batch.entry_ids, first, batch.done, block, end
        )
        return written

    def _note(self, entry_ids: npt.NDArray[np.int64], frames: npt.NDArray[np.int64]) -> None:
        """Keep those of the next entries, whose frames begin there in the object, that the directory is to have."""
        self.anchors = self.anchors.joined(
            first_of_each_stride(entry_ids, frames, STRIDE_BYTES, self._last_frame)
        )
        self._last_frame = int(frames[-1])

    def _batches(self) -> Iterator[_Batch]:
        begin, size = 0, 0
        while begin < self._entry_count:
            read = self._ledger.read(begin, self._entry_count - 1, READ_BYTES)
            if read.first_entry_id != begin or not 0 < len(read) <= self._entry_count - begin:
                raise DataLossError(
                    "the hot tier gave other entries than it was asked for",
                    ledger_id=self._ledger.ledger_id,
                    entry_id=begin,
                    expected=f"entries from {begin} to {self._entry_count - 1} at most",
                    found=f"{len(read)} from {read.first_entry_id}",
                )
            size += read.offsets[-1] - read.offsets[0]
            begin = read.stop_entry_id
            is_other = size > self._payload_bytes or (
                begin == self._entry_count and size < self._payload_bytes
            )
            if self._exact_size and is_other:
                raise DataLossError(
                    "the hot tier gave entries of another size than it says that the ledger has",
                    ledger_id=self._ledger.ledger_id,
                    expected=f"{self._payload_bytes} bytes",
                    found=f"{size} bytes up to entry {begin - 1}",
                )
            batch = self._filtered(read)
            if batch.left:
                yield batch

    def _filtered(self, read: EntryBatch) -> _Batch:
        run = self._filter_run
        if run is None:
            entry_ids = np.arange(read.first_entry_id, read.stop_entry_id)
            return _Batch(entry_ids, read_only(read.data), np.asarray(read.offsets))
        filtered = run.apply(self._ledger.ledger_id, read)
        run.note(filtered, filtered.stop_entry_id)
        return _Batch(filtered.entry_ids, filtered.data, filtered.offsets)


def _alone(batch: _Batch) -> int:
    """How long a block of the batch's next entry alone is."""
    length = int(batch.offsets[batch.done + 1] - batch.offsets[batch.done])
    return BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES + length
