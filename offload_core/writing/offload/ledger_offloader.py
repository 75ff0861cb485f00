"""`LedgerOffloader`: a sealed ledger to a tier, data object first, then its index; and the deletion of both.

Ledger-based offload (PIP-17). It keeps no records: its caller records the attempt's uuid before, and that it is
complete after. An attempt that ends with an error leaves no upload, if the store still answers; what a crash leaves,
`delete_offloaded` with the same uuid deletes.

`LedgerBlocks` cuts the ledger as Pulsar does: every block but the last is exactly the maximum long; an entry that fits
no such block has one for itself. Entries are read in batches, go through a filter if there is one, and are framed by
the kernel. The first block begins with entry 0, whatever was left out; where nothing is left of a ledger, it has one
block without entries. Source: docs/formats/pip17.md; the reference implementation is `codec.pip17.plan_blocks`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from uuid import UUID

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes, read_only
from offload_core.format.codec.block_layout import (
    BLOCK_HEADER_BYTES,
    FRAME_HEADER_BYTES,
    BlockHeader,
    pack_block_header,
)
from offload_core.format.codec.entry_directory import (
    STRIDE_BYTES,
    first_of_each_stride,
    no_anchors,
    pack_directory,
)
from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.kernels.frames import fill_padding, frame_entries
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_core.metadata.records.filter_record import FilterMode, FilterRecord
from offload_core.storage.tier import MemoryBudget, Tier, check_blocks, upload_blocks
from offload_core.storage.tier.block_upload import DEFAULT_PARTS_IN_FLIGHT
from offload_core.writing.offload.attempt_objects import (
    WrittenChecksums,
    delete_attempt,
    filter_counts,
    filter_metadata,
    ledger_metadata,
    user_metadata,
)
from offload_core.writing.offload_filters import MOST_TOMBSTONE_BYTES, FilterRun
from offload_hooks.errors import DataLossError, OptionError, placed
from offload_hooks.ledger_stores import EntryBatch, LedgerReader, LedgerStatus

READ_BYTES = 4 << 20
"""Bytes that are read of the hot tier at once."""


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
        status: its status; it has at least one entry.
        max_block_bytes: the length of all blocks but the last; room for a header and an empty entry.
        new_block: allocates the memory of a block, by its bytes.
        filter_run: the filter of the entries; None for none.
        exact_size: whether the entries must have the size of `status`, which can be wrong for a cold copy.

    Raises (as it is iterated over):
        StoreError, FormatError: of the hot tier.
        DataLossError: it gave other entries than those it was asked for, or of another size than its status.
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
                    "the hot tier gave entries of another size than the status of the ledger",
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
    """The length of a block of the batch's next entry alone."""
    length = int(batch.offsets[batch.done + 1] - batch.offsets[batch.done])
    return BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES + length


DEFAULT_MAX_BLOCK_BYTES = 64 << 20
"""Pulsar's default."""

DEFAULT_MAX_ENTRY_BYTES = (5 << 20) + (10 << 10)
"""Pulsar's largest message by default, and its metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadProgress:
    """The progress of one ledger's offload.

    Attributes:
        blocks: blocks that were built; some of them are still on their way.
        data_bytes: their bytes, of `total_bytes` or a little more; of fewer where a filter drops entries.
        elapsed_s: seconds since it began.
    """

    ledger_id: int
    uuid: UUID
    blocks: int
    data_bytes: int
    total_bytes: int
    elapsed_s: float

    @property
    def bytes_per_s(self) -> float:
        """The rate since it began."""
        return self.data_bytes / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadedLedger:
    """The cold copy that an offload made.

    Attributes:
        entries: the ledger's, filtered or not.
        filter: what a filter did to them; None if none ran.
    """

    ledger_id: int
    uuid: UUID
    data_key: str
    index_key: str
    data_bytes: int
    blocks: int
    entries: int
    filter: FilterRecord | None = None


ProgressListener = Callable[[OffloadProgress], None]


class LedgerOffloader:
    """Offloads ledgers to one tier, and deletes them there. Calls may come from many threads at once.

    Args:
        tier: where to; it is not closed.
        max_block_bytes: the length of all blocks but an object's last.
        max_entry_bytes: the largest entry that is expected; of a larger one the offload fails, if no block has room.
        budget: what the blocks of all offloads together may take.
        parts_in_flight: the most blocks of one offload on their way at once.
        checksums: write those of all blocks and the index beside them.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        max_block_bytes: int = DEFAULT_MAX_BLOCK_BYTES,
        max_entry_bytes: int = DEFAULT_MAX_ENTRY_BYTES,
        budget: MemoryBudget | None = None,
        parts_in_flight: int = DEFAULT_PARTS_IN_FLIGHT,
        checksums: bool = False,
    ) -> None:
        self._tier = tier
        self._checksums = checksums
        self._max_block_bytes = max_block_bytes
        self._largest_bytes = max(max_block_bytes, BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES + max_entry_bytes)
        self._budget = MemoryBudget() if budget is None else budget
        self._parts_in_flight = parts_in_flight

    def offload(
        self,
        ledger: LedgerReader,
        uuid: UUID,
        extra_metadata: Mapping[str, str],
        *,
        filter_run: FilterRun | None = None,
        exact_size: bool = True,
        listener: ProgressListener | None = None,
    ) -> OffloadedLedger:
        """Copy a sealed ledger to the tier; when it returns, data and index are durable.

        Args:
            uuid: the attempt's, never used before.
            extra_metadata: user metadata of both objects; with `managedledgername` a bucket explains itself.
            filter_run: what the entries go through; None for nothing. For this call only.
            exact_size: see `LedgerBlocks`.
            listener: called after each block that was built.

        Raises:
            OptionError: the ledger is open or empty, or the tier takes no such blocks; nothing was sent.
            DataLossError: the hot tier gave other entries than its status has.
            StoreError, FormatError: of either side.
            PluginError, UnresolvedTransactionError: of the filter.
        """
        status = ledger.status()
        _check_sealed(status)
        key = ObjectKey(folder="", uuid=uuid, ledger_id=status.ledger_id, is_index=False)
        blocks = LedgerBlocks(
            ledger, status, self._max_block_bytes, self._tier.new_block, filter_run, exact_size=exact_size
        )
        total = BLOCK_HEADER_BYTES + status.size_bytes + status.entry_count * FRAME_HEADER_BYTES
        if filter_run is not None and filter_run.mode is FilterMode.TOMBSTONE:
            total += status.entry_count * MOST_TOMBSTONE_BYTES  # more than it takes of tiny entries
        check_blocks(self._tier.describe().capabilities, self._max_block_bytes, total if exact_size else None)
        written = WrittenChecksums()
        filtered = filter_metadata(filter_run)
        software = f"pulsar-offload {version('pulsar-offload')}"
        with placed(ledger_id=status.ledger_id):
            upload_blocks(
                self._tier,
                key.data_key,
                _watched(
                    written.of(blocks) if self._checksums else blocks, blocks, status, uuid, total, listener
                ),
                block_bytes=min(total, self._largest_bytes) if exact_size else self._largest_bytes,
                total_bytes=total if exact_size else None,
                user_metadata=user_metadata("data", software, {**extra_metadata, **filtered}),
                budget=self._budget,
                parts_in_flight=self._parts_in_flight,
            )
            record = None if filter_run is None else filter_run.record()
            index = pack_pip17_index(
                ledger_metadata(status, record), blocks.index, blocks.data_length, _directory(blocks)
            )
            if self._checksums:
                written.write(self._tier, key, index, user_metadata("checksums", software, extra_metadata))
            self._tier.write_index(
                key.index_key,
                index,
                user_metadata=user_metadata(
                    "index", software, {**extra_metadata, **filtered, **filter_counts(record)}
                ),
            )
        return OffloadedLedger(
            ledger_id=status.ledger_id,
            uuid=uuid,
            data_key=key.data_key,
            index_key=key.index_key,
            data_bytes=blocks.data_length,
            blocks=len(blocks.index),
            entries=status.entry_count,
            filter=record,
        )

    def delete_offloaded(self, ledger_id: int, uuid: UUID) -> None:
        """Delete an attempt's objects and uploads, as far as they exist; none is left when it returns.

        Raises:
            StoreError: the store fails; it can be called again.
        """
        delete_attempt(self._tier, ObjectKey(folder="", uuid=uuid, ledger_id=ledger_id, is_index=False))


def _check_sealed(status: LedgerStatus) -> None:
    if not status.sealed:
        raise OptionError("a ledger that is open is not offloaded", ledger_id=status.ledger_id)
    if not status.entry_count:
        raise OptionError("a ledger without entries is not offloaded", ledger_id=status.ledger_id)


def _directory(blocks: LedgerBlocks) -> bytes:
    """The entry directory; an object that is read by one range needs none."""
    return pack_directory(blocks.anchors) if blocks.data_length > STRIDE_BYTES else b""


def _watched(
    made: Iterable[memoryview],
    blocks: LedgerBlocks,
    status: LedgerStatus,
    uuid: UUID,
    total: int,
    listener: ProgressListener | None,
) -> Iterator[memoryview]:
    """The blocks as they are made; the listener is called when the next is asked for."""
    started = time.monotonic()
    for block in made:
        yield block
        if listener is not None:
            listener(
                OffloadProgress(
                    ledger_id=status.ledger_id,
                    uuid=uuid,
                    blocks=len(blocks.index),
                    data_bytes=blocks.data_length,
                    total_bytes=total,
                    elapsed_s=time.monotonic() - started,
                )
            )
