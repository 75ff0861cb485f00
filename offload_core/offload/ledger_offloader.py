"""`LedgerOffloader`: a sealed ledger to a tier, data object first, then its index; and the deletion of both.

Ledger-based offload (PIP-17). What it does is without records: who calls it records the attempt's uuid before, and that
it is complete after. An attempt that ends with an error leaves no upload behind, if the store still answers; what a
crash leaves, `delete_offloaded` with the same uuid deletes. Source: docs/formats/pip17.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from uuid import UUID

from offload_core.catalogue.known_tiers import KnownTiers
from offload_core.codec.block_header import BLOCK_HEADER_BYTES
from offload_core.codec.entry_directory import STRIDE_BYTES, pack_directory
from offload_core.codec.frames import FRAME_HEADER_BYTES
from offload_core.codec.object_format import ObjectKey
from offload_core.codec.pip17 import pack_pip17_index
from offload_core.filters import FilterMode, FilterRecord, FilterRun
from offload_core.filters.tombstones import MOST_TOMBSTONE_BYTES
from offload_core.metadata import DriverMetadata, OffloadContext
from offload_core.offload.attempt_objects import delete_attempt
from offload_core.offload.ledger_blocks import LedgerBlocks
from offload_core.offload.object_metadata import (
    filter_counts,
    filter_metadata,
    ledger_metadata,
    user_metadata,
)
from offload_core.offload.written_checksums import WrittenChecksums
from offload_core.read_handles import ColdReader, ColdReaders
from offload_core.tier import MemoryBudget, Tier, check_blocks, upload_blocks
from offload_core.tier.block_upload import DEFAULT_PARTS_IN_FLIGHT
from offload_hooks.errors import OptionError, placed
from offload_hooks.ledger_stores import LedgerReader, LedgerStatus

DEFAULT_MAX_BLOCK_BYTES = 64 << 20
"""Pulsar's default."""

DEFAULT_MAX_ENTRY_BYTES = (5 << 20) + (10 << 10)
"""Pulsar's largest message by default, and its metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadProgress:
    """How far the offload of one ledger has come.

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
        """Copy a sealed ledger to the tier; when it returns, data and index are there, durably.

        Args:
            uuid: the attempt's, never used before.
            extra_metadata: user metadata of both objects; with `managedledgername` a bucket explains itself.
            filter_run: what the entries go through; None for nothing. For this call only.
            exact_size: see `LedgerBlocks`.
            listener: told after each block that was built.

        Raises:
            OptionError: the ledger is open or empty, or the tier takes no such blocks; nothing was sent.
            DataLossError: the hot tier gave other entries than it says that it has.
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

    def read_offloaded(
        self, ledger_id: int, context: OffloadContext, driver_metadata: DriverMetadata | None = None
    ) -> ColdReader:
        """Open the copy that an offload context names; of tiers that others were offloaded to, `ColdReaders` knows.

        Raises:
            UnknownLedgerError: it is not complete.
            OptionError: it lies in another tier.
            StoreError, FormatError: as `ColdReaders.open`.
        """
        return ColdReaders(KnownTiers(self._tier)).read_offloaded(ledger_id, context, driver_metadata)

    def delete_offloaded(self, ledger_id: int, uuid: UUID) -> None:
        """Delete an attempt's objects and uploads, whatever there is of them; nothing is there when it returns.

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
    """The blocks as they are made, each told of when the next is asked for."""
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
