"""`LedgerOffloader`: a sealed ledger to a tier, data object first, then its index; and the deletion of both.

Ledger-based offload (PIP-17). It keeps no records: its caller records the attempt's uuid before, and that it is
complete after. An attempt that ends with an error leaves no upload, if the store still answers; what a crash leaves,
`delete_offloaded` with the same uuid deletes. To a tier of Pulsar's driver `filesystem` a ledger goes as a MapFile.

`LedgerBlocks` cuts the ledger as Pulsar does: every block but the last is exactly the maximum long; an entry that fits
no such block has one for itself. Entries are framed by the kernel. The first block begins with entry 0, whatever was
left out; where nothing is left of a ledger, it has one block without entries. Source: docs/formats/pip17.md; the
reference implementation is `codec.pip17.plan_blocks`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from tempfile import SpooledTemporaryFile
from typing import Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes
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
from offload_core.format.codec.mapfile.crc_files import make_checksums
from offload_core.format.codec.object_format import TOPIC_KEY, ObjectFormat, ObjectKey
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_core.metadata.catalogue.known_tiers import offload_format
from offload_core.metadata.records.filter_record import FilterMode, FilterRecord
from offload_core.storage.tier import MemoryBudget, Tier, check_blocks, upload_blocks
from offload_core.storage.tier.block_upload import DEFAULT_PARTS_IN_FLIGHT
from offload_core.storage.tier.tier import NO_METADATA
from offload_core.writing.offload.attempt_objects import (
    WrittenChecksums,
    delete_attempt,
    filter_counts,
    filter_metadata,
    ledger_metadata,
    user_metadata,
)
from offload_core.writing.offload.ledger_entries import LedgerEntries, OffloadBatch
from offload_core.writing.offload.ledger_mapfile import LedgerMapFile, cut_into_blocks
from offload_core.writing.offload_filters import MOST_TOMBSTONE_BYTES, FilterRun
from offload_hooks.errors import OptionError, placed
from offload_hooks.ledger_stores import LedgerReader, LedgerStatus


class LedgerBlocks:
    """Iterates once over a ledger's blocks; `index` then has them, `data_length` their bytes, `anchors` some entries.

    Args:
        entries: of a sealed ledger.
        max_block_bytes: the length of all blocks but the last; room for a header and an empty entry.
        new_block: allocates the memory of a block, by its bytes.

    Raises (as it is iterated over): what `entries` raise.
    """

    def __init__(
        self, entries: LedgerEntries, max_block_bytes: int, new_block: Callable[[int], Bytes]
    ) -> None:
        self._entries = entries
        self._max_block_bytes = max_block_bytes
        self._new_block = new_block
        self.index: list[BlockEntry] = []
        self.data_length = 0
        self.anchors = no_anchors()
        self._last_frame: int | None = None

    @property
    def count(self) -> int:
        """The number of the blocks so far."""
        return len(self.index)

    def __iter__(self) -> Iterator[memoryview]:
        batches = iter(self._entries)
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

    def _fill(self, batch: OffloadBatch, block: Bytes, end: int) -> int:
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


def _alone(batch: OffloadBatch) -> int:
    """The length of a block of the batch's next entry alone."""
    length = int(batch.offsets[batch.done + 1] - batch.offsets[batch.done])
    return BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES + length


DEFAULT_MAX_BLOCK_BYTES = 64 << 20
"""Pulsar's default."""

DEFAULT_MAX_ENTRY_BYTES = (5 << 20) + (10 << 10)
"""Pulsar's largest message by default, and its metadata."""


_HELD_CHECKSUMS_BYTES = 16 << 20
"""More checksums of a MapFile than these, of 2 GiB, wait in a temporary file until the data is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadProgress:
    """The progress of one ledger's offload.

    Attributes:
        blocks: blocks that were built; some of them are still on their way.
        data_bytes: their bytes, of `total_bytes` or a little more; of fewer where a filter drops entries, or a MapFile
            is compressed.
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
        key: of its data object.
        entries: the ledger's, filtered or not.
        filter: what a filter did to them; None if none ran.
    """

    ledger_id: int
    uuid: UUID
    key: ObjectKey
    data_bytes: int
    blocks: int
    entries: int
    filter: FilterRecord | None = None


ProgressListener = Callable[[OffloadProgress], None]


class _MadeBlocks(Protocol):
    """Blocks that are made one after another: their number, and their bytes, so far."""

    @property
    def count(self) -> int: ...

    data_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offload:
    """One call of `LedgerOffloader.offload`; see there."""

    status: LedgerStatus
    entries: LedgerEntries
    uuid: UUID
    extra_metadata: Mapping[str, str]
    run: FilterRun | None
    exact_size: bool
    listener: ProgressListener | None

    @property
    def most_bytes(self) -> int:
        """The bytes of the entries as frames in one block; of tiny entries more than a filter makes of them."""
        status, tombstones = self.status, 0
        if self.run is not None and self.run.mode is FilterMode.TOMBSTONE:
            tombstones = status.entry_count * MOST_TOMBSTONE_BYTES
        return BLOCK_HEADER_BYTES + status.size_bytes + status.entry_count * FRAME_HEADER_BYTES + tombstones

    @property
    def record(self) -> FilterRecord | None:
        """What the filter did, once all entries were read."""
        return None if self.run is None else self.run.record()

    def user_metadata(self, role: str) -> dict[str, str]:
        """The user metadata of the object with this role."""
        software = f"pulsar-offload {version('pulsar-offload')}"
        filtered = {} if role == "checksums" else filter_metadata(self.run)
        counts = filter_counts(self.record) if role == "index" else {}
        return user_metadata(role, software, {**self.extra_metadata, **filtered, **counts})

    def mapfile_metadata(self, role: str) -> dict[str, str]:
        """The same of a MapFile, which has none, as Pulsar leaves it, unless a filter ran."""
        return {} if self.run is None else self.user_metadata(role)

    def watched(self, made: Iterable[memoryview], blocks: _MadeBlocks) -> Iterator[memoryview]:
        """The blocks as they are made; the listener is called when the next is asked for."""
        started, total = time.monotonic(), self.most_bytes
        for block in made:
            yield block
            if self.listener is not None:
                self.listener(
                    OffloadProgress(
                        ledger_id=self.status.ledger_id,
                        uuid=self.uuid,
                        blocks=blocks.count,
                        data_bytes=blocks.data_length,
                        total_bytes=total,
                        elapsed_s=time.monotonic() - started,
                    )
                )

    def offloaded(self, key: ObjectKey, blocks: _MadeBlocks) -> OffloadedLedger:
        """The result, once all is written."""
        return OffloadedLedger(
            ledger_id=self.status.ledger_id,
            uuid=self.uuid,
            key=key,
            data_bytes=blocks.data_length,
            blocks=blocks.count,
            entries=self.status.entry_count,
            filter=self.record,
        )


class LedgerOffloader:
    """Offloads ledgers to one tier, and deletes them there. Calls may come from many threads at once.

    Args:
        tier: where to; it is not closed.
        max_block_bytes: the length of all blocks but an object's last.
        max_entry_bytes: the largest entry that is expected; of a larger one the offload fails, if no block has room.
        budget: what the blocks of all offloads together may take.
        parts_in_flight: the most blocks of one offload on their way at once.
        checksums: write those of all blocks and the index beside them; a MapFile has its `.crc` files always.
        object_format: of the copies, `PIP17` or `MAPFILE`; None for that of the tier's driver.
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
        object_format: ObjectFormat | None = None,
    ) -> None:
        self._tier = tier
        self._format = offload_format(tier) if object_format is None else object_format
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
            ledger: the sealed ledger.
            uuid: the attempt's, never used before.
            extra_metadata: user metadata of both objects; with `managedledgername` a bucket explains itself. A MapFile
                lies under that name.
            filter_run: what the entries go through; None for nothing. For this call only.
            exact_size: see `LedgerEntries`.
            listener: called after each block that was built.

        Raises:
            OptionError: the ledger is open or empty, or the tier takes no such blocks; nothing was sent.
            DataLossError: the hot tier gave other entries than its status has.
            StoreError, FormatError: of either side.
            PluginError, UnresolvedTransactionError: of the filter.
        """
        status = ledger.status()
        _check_sealed(status)
        entries = LedgerEntries(ledger, status, filter_run, exact_size=exact_size)
        write = self._write_mapfile if self._format is ObjectFormat.MAPFILE else self._write_blocks
        with placed(ledger_id=status.ledger_id):
            return write(
                _Offload(
                    status=status,
                    entries=entries,
                    uuid=uuid,
                    extra_metadata=extra_metadata,
                    run=filter_run,
                    exact_size=exact_size,
                    listener=listener,
                )
            )

    def _write_blocks(self, of: _Offload) -> OffloadedLedger:
        key = self._key(of.status.ledger_id, of.uuid, of.extra_metadata)
        blocks = LedgerBlocks(of.entries, self._max_block_bytes, self._tier.new_block)
        total = of.most_bytes if of.exact_size else None
        check_blocks(self._tier.describe().capabilities, self._max_block_bytes, total)
        written = WrittenChecksums()
        upload_blocks(
            self._tier,
            key.data_key,
            of.watched(written.of(blocks) if self._checksums else blocks, blocks),
            block_bytes=self._largest_bytes if total is None else min(total, self._largest_bytes),
            total_bytes=total,
            user_metadata=of.user_metadata("data"),
            budget=self._budget,
            parts_in_flight=self._parts_in_flight,
        )
        metadata = ledger_metadata(of.status, of.record)
        index = pack_pip17_index(metadata, blocks.index, blocks.data_length, _directory(blocks))
        if self._checksums:
            written.write(self._tier, key, index, of.user_metadata("checksums"))
        self._tier.write_index(key.index_key, index, user_metadata=of.user_metadata("index"))
        return of.offloaded(key, blocks)

    def _write_mapfile(self, of: _Offload) -> OffloadedLedger:
        key = self._key(of.status.ledger_id, of.uuid, of.extra_metadata)
        assert key.checksum_keys is not None
        data_checksums_key, index_checksums_key = key.checksum_keys
        check_blocks(self._tier.describe().capabilities, self._max_block_bytes)
        upload = partial(
            upload_blocks,
            self._tier,
            block_bytes=self._max_block_bytes,
            budget=self._budget,
            parts_in_flight=self._parts_in_flight,
        )
        with SpooledTemporaryFile(_HELD_CHECKSUMS_BYTES) as checksums:
            mapfile = LedgerMapFile(of.entries, of.status, self._max_block_bytes, of.run, checksums)
            upload(key.data_key, of.watched(mapfile, mapfile), user_metadata=of.mapfile_metadata("data"))
            checksums.seek(0)
            parts = iter(lambda: checksums.read(_HELD_CHECKSUMS_BYTES), b"")
            upload(data_checksums_key, cut_into_blocks(parts, self._max_block_bytes))
        self._tier.write_index(index_checksums_key, make_checksums(mapfile.index))
        self._tier.write_index(key.index_key, mapfile.index, user_metadata=of.mapfile_metadata("index"))
        return of.offloaded(key, mapfile)

    def delete_offloaded(
        self, ledger_id: int, uuid: UUID, extra_metadata: Mapping[str, str] = NO_METADATA
    ) -> None:
        """Delete an attempt's objects and uploads, as far as they exist; none is left when it returns.

        Args:
            ledger_id: of the ledger.
            uuid: the attempt's.
            extra_metadata: as it was offloaded with, or its `managedledgername`, which a MapFile is found by.

        Raises:
            OptionError: a MapFile is to be found without that name.
            StoreError: the store fails; it can be called again.
        """
        delete_attempt(self._tier, self._key(ledger_id, uuid, extra_metadata))

    def _key(self, ledger_id: int, uuid: UUID, extra_metadata: Mapping[str, str]) -> ObjectKey:
        if self._format is not ObjectFormat.MAPFILE:
            return ObjectKey.of_ledger(ledger_id, uuid)
        if TOPIC_KEY not in extra_metadata:
            raise OptionError(
                "a MapFile lies under the name of its managed ledger, and none is given",
                ledger_id=ledger_id,
                expected=f"{TOPIC_KEY} in its user metadata",
            )
        return ObjectKey.of_mapfile(extra_metadata[TOPIC_KEY], ledger_id, uuid)


def _check_sealed(status: LedgerStatus) -> None:
    if not status.sealed:
        raise OptionError("a ledger that is open is not offloaded", ledger_id=status.ledger_id)
    if not status.entry_count:
        raise OptionError("a ledger without entries is not offloaded", ledger_id=status.ledger_id)


def _directory(blocks: LedgerBlocks) -> bytes:
    """The entry directory; an object that is read by one range needs none."""
    return pack_directory(blocks.anchors) if blocks.data_length > STRIDE_BYTES else b""
