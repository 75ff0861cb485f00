"""`SegmentOffloader`: opens segments of a tier for streaming offload (PIP-76), and deletes what attempts left.

It keeps no records, as `LedgerOffloader`: its caller records the attempt's uuid before, and its end after.

An `OffloadHandle` takes entries of one segment, whose blocks go to the tier while it is still open. An offer copies
entries into memory and never waits for the store; where the segment does not take them, its answer states why.

A `SegmentFilter` is one filter over the entries of a segment. It decides up to a stop, and a segment is longer: a run
that goes farther takes the place of the one before it, and what was counted stays. Source: PIP-76; docs/offload.md,
Segments; docs/formats/streaming.md, Filtered segments.
"""

from __future__ import annotations

import enum
import threading
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial
from importlib.metadata import version
from typing import NamedTuple
from uuid import UUID

import numpy as np

from offload_core.format.codec.arrays import read_only
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import RECORD_KEY, FilterRecord
from offload_core.storage.tier import MemoryBudget, Tier, check_blocks
from offload_core.storage.tier.block_upload import DEFAULT_PARTS_IN_FLIGHT
from offload_core.writing.offload.attempt_objects import (
    delete_attempt,
    filter_counts,
    filter_metadata,
    user_metadata,
)
from offload_core.writing.offload.ledger_offloader import DEFAULT_MAX_BLOCK_BYTES
from offload_core.writing.offload.segment_upload import OffloadedSegment, SegmentOutcome, SegmentUpload
from offload_core.writing.offload.streaming_blocks import LEAST_BLOCK_BYTES, BlockLimits, StreamingBlocks
from offload_core.writing.offload_filters import FilteredEntries, FilterRun, joined
from offload_hooks import ReadableBuffer
from offload_hooks.errors import OptionError, UploadError
from offload_hooks.ledger_stores import EntryBatch


class SegmentFilter:
    """The filter of one segment; used by one thread at a time.

    Args:
        run: the filter over the entries that come first.
        stop: the first entry that it is not used for, which may be before its own bound; None for none.

    Attributes:
        about: its part of the user metadata of the data object.
    """

    def __init__(self, run: FilterRun, stop: EntryPosition | None) -> None:
        self._run = run
        self.stop = stop
        self._noted: defaultdict[int, list[FilterRecord]] = defaultdict(list)
        self.about = filter_metadata(run)

    def is_as(self, run: FilterRun) -> bool:
        """True if this run may take the place of the present one: it is of the same filter."""
        return (run.name, run.mode) == (self._run.name, self._run.mode)

    def go_on(self, run: FilterRun, stop: EntryPosition | None) -> None:
        """Filter later entries by this run, before this stop."""
        self._run, self.stop = run, stop

    def apply(self, ledger_id: int, entries: EntryBatch) -> FilteredEntries:
        """See `FilterRun.apply`."""
        return self._run.apply(ledger_id, entries)

    def note(self, ledger_id: int, entries: FilteredEntries, stop_entry_id: int) -> None:
        """See `FilterRun.note`; of entries that were filtered last."""
        run = self._run.anew()
        run.note(entries, stop_entry_id)
        self._noted[ledger_id].append(run.record())

    def records(self) -> Mapping[int, FilterRecord]:
        """Of each ledger, what was noted by now; with the bound of the run that goes farthest."""
        return {ledger_id: joined(records, self._run.stop) for ledger_id, records in self._noted.items()}

    def about_index(self) -> Mapping[str, str]:
        """User metadata of the index object, for all ledgers together; at least one was noted."""
        return {**self.about, **filter_counts(joined(list(self.records().values()), self._run.stop))}


class OfferResult(enum.Enum):
    """The result of an offer."""

    ACCEPTED = "accepted"
    BUFFER_FULL = "buffer full"
    SEGMENT_CLOSED = "segment closed"
    NOT_CONSECUTIVE = "not consecutive"


class Offered(NamedTuple):
    """The number of entries that were accepted, from a batch's first on, and why no more; `ACCEPTED` if all were."""

    accepted: int
    result: OfferResult


class OffloadHandle:
    """An open segment, made by `SegmentOffloader.open_segment`; its methods may be called by any thread.

    Entries come in order: the next one of the same ledger, or the first one of a later ledger after `end_ledger`. A
    segment ends by `close`, by itself when it is as large as it may be, or by an error: of the store, or by `abort`.
    However it ends, `result` has the outcome, and no memory stays taken. Where it has a filter, what is offered goes
    through it; an entry that it drops counts as accepted.
    """

    def __init__(
        self,
        blocks: StreamingBlocks,
        upload: SegmentUpload,
        max_segment_bytes: int | None,
        segment_filter: SegmentFilter | None,
    ) -> None:
        self._filter = segment_filter
        self._blocks = blocks
        self._upload = upload
        self._max_segment_bytes = max_segment_bytes
        self._lock = threading.Lock()
        self._closed = False
        upload.on_failure = self._give_up

    def can_offer(self, size_bytes: int) -> bool:
        """True if an entry with a payload of this size would be accepted now; others may take the memory meanwhile."""
        with self._lock:
            return not self.is_closed and self._blocks.has_memory_for(size_bytes)

    def last_offered(self) -> EntryPosition | None:
        """The last entry that was accepted, or left out by the filter; None if there is none yet."""
        return self._blocks.last

    @property
    def payload_bytes(self) -> int:
        """The bytes of all entries that the segment has, as the filter left them."""
        return self._blocks.payload_bytes

    @property
    def failure(self) -> BaseException | None:
        """Why the segment failed; None while it did not. `result` raises it when all is tidied up."""
        return self._upload.failure

    @property
    def is_closed(self) -> bool:
        """True if it takes no more entries."""
        return self._closed or self._upload.failure is not None

    def offer_entry(self, ledger_id: int, entry_id: int, payload: ReadableBuffer) -> OfferResult:
        """Offer one entry; `offer_entries` is the way for many. Errors as there."""
        return self.offer_entries(ledger_id, EntryBatch.of(entry_id, [payload])).result

    def offer_entries(self, ledger_id: int, entries: EntryBatch) -> Offered:
        """Offer entries of one ledger; those that are accepted were copied. It does not wait.

        After `BUFFER_FULL` the rest may be offered again, when memory is free; after `SEGMENT_CLOSED` in another
        segment.

        Raises:
            OptionError: the batch contradicts itself, or has an entry that is larger than the store or the budget
                takes; none was accepted.
            EntryOrderError: an entry of the batch is one that the filter does not decide of yet; none was accepted.
            FormatError, PluginError: of the filter; none was accepted.
        """
        _check_offsets(entries)
        with self._lock:
            if self.is_closed:
                return Offered(0, OfferResult.SEGMENT_CLOSED)
            first = entries.first_entry_id
            if not self._blocks.follows(ledger_id, first):
                return Offered(0, OfferResult.NOT_CONSECUTIVE)
            stop = self._add(ledger_id, entries)
            if self._blocks.is_full or self._is_large_enough:
                self._close()
            if stop == entries.stop_entry_id:
                return Offered(stop - first, OfferResult.ACCEPTED)
            return Offered(
                stop - first, OfferResult.SEGMENT_CLOSED if self._closed else OfferResult.BUFFER_FULL
            )

    def end_ledger(self, info: LedgerInfo) -> OfferResult:
        """End a ledger before the entry that would come next; `info` goes into the index.

        `NOT_CONSECUTIVE` if `info` has other entries than were offered.

        Raises:
            OptionError: `info` is of a ledger that is open.
        """
        if not info.is_closed or info.entries is None:
            raise OptionError("a ledger that is open has not ended", ledger_id=info.ledger_id)
        with self._lock:
            if self.is_closed:
                return OfferResult.SEGMENT_CLOSED
            if not self._blocks.follows(info.ledger_id, info.entries):
                return OfferResult.NOT_CONSECUTIVE
            self._blocks.end_ledger(info)
            return OfferResult.ACCEPTED

    def close(self) -> None:
        """No entry comes any more: the segment ends with the last that was accepted. It does not wait.

        A segment without entries fails: nothing is written of it.
        """
        with self._lock:
            if not self.is_closed:
                self._close()

    def abort(self) -> None:
        """Abandon the segment, unless it has ended; its parts in the store are deleted. It does not wait."""
        self._upload.fail(UploadError("the segment was aborted", key=self._upload.key.data_key))

    def result(self) -> SegmentOutcome:
        """The segment as it lies in the tier, when it does: to be awaited, or waited for by `result().result()`.

        Raises (when it is waited for):
            OptionError: the segment was closed without entries.
            UploadError: it was aborted.
            StoreError: of the store.
        """
        return self._upload.outcome

    def _add(self, ledger_id: int, entries: EntryBatch) -> int:
        """Add what the filter leaves of entries that follow; the id that comes next."""
        blocks, stop = self._blocks, entries.stop_entry_id
        if self._filter is None:
            filtered, values = None, read_only(entries.data)
            entry_ids = np.arange(entries.first_entry_id, stop)
            offsets = np.array(entries.offsets, dtype=np.int64)
        else:
            filtered = self._filter.apply(ledger_id, entries)
            values, entry_ids, offsets = filtered.data, filtered.entry_ids, filtered.offsets
        blocks.limits.check_entries(ledger_id, entry_ids, np.diff(offsets))
        if self._max_segment_bytes is not None:
            rest = self._max_segment_bytes - blocks.payload_bytes
            most = int(np.searchsorted(offsets[1:] - offsets[0], rest)) + 1
            if most <= len(entry_ids):
                stop = int(entry_ids[most - 1]) + 1
                entry_ids, offsets = entry_ids[:most], offsets[: most + 1]
        reached = blocks.add(ledger_id, entry_ids, values, offsets, (entries.first_entry_id, stop))
        if self._filter is not None and filtered is not None:
            self._filter.note(ledger_id, filtered, reached)
        return reached

    @property
    def _is_large_enough(self) -> bool:
        return self._max_segment_bytes is not None and self._blocks.payload_bytes >= self._max_segment_bytes

    def _close(self) -> None:
        self._closed = True
        blocks = self._blocks
        blocks.end()
        if blocks.first is None or blocks.last is None:
            self._upload.fail(OptionError("a segment without entries is not offloaded"))
            return
        records = {} if self._filter is None else self._filter.records()
        self._upload.finish(
            blocks.index({each: {RECORD_KEY: record.pack()} for each, record in records.items()}),
            OffloadedSegment(
                uuid=self._upload.key.uuid,
                begin=blocks.first,
                end=blocks.last,
                end_entry_ids=blocks.end_entry_ids,
                entries=blocks.entry_count,
                payload_bytes=blocks.payload_bytes,
                data_bytes=blocks.data_length,
                blocks=blocks.block_count,
                filter_records=records,
            ),
        )

    def _give_up(self) -> None:
        with self._lock:
            self._closed = True
            self._blocks.drop()


def _check_offsets(entries: EntryBatch) -> None:
    """Refuse offsets (`OptionError`) of which the kernel may not rely on each."""
    offsets = np.array(entries.offsets, dtype=np.int64)
    if not len(offsets) or offsets[0] < 0 or offsets[-1] > len(entries.data) or (np.diff(offsets) < 0).any():
        raise OptionError(
            "the offsets of a batch of entries do not ascend within its bytes",
            entry_id=entries.first_entry_id,
            expected=f"offsets from 0 to {len(entries.data)}",
        )


MAX_FRAME_BYTES = 2**31 - 1
"""A frame's length is an i32, and Pulsar holds a block in one array."""


class SegmentOffloader:
    """Opens segments in one tier. Calls may come from many threads at once.

    Args:
        tier: where to; it is not closed.
        budget: the memory that all open blocks and all blocks on their way take together; shared by all segments.
        executor: threads that call the store, shared by all segments; it outlives them.
        max_block_bytes: the length of a full block; an entry that fits none has one of its own.
        parts_in_flight: the most blocks of one segment on their way at once.
        checksums: write those of all blocks and the index beside them.

    Raises:
        OptionError: the tier or the budget takes no such blocks.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        budget: MemoryBudget,
        executor: Executor,
        max_block_bytes: int = DEFAULT_MAX_BLOCK_BYTES,
        parts_in_flight: int = DEFAULT_PARTS_IN_FLIGHT,
        checksums: bool = False,
    ) -> None:
        takes = tier.describe().capabilities
        check_blocks(takes, max_block_bytes)
        if max_block_bytes < LEAST_BLOCK_BYTES or parts_in_flight < 1:
            raise OptionError(
                "a block has room for one entry, and at least one part is in flight",
                expected=f"{LEAST_BLOCK_BYTES} bytes or more",
                found=f"{max_block_bytes} bytes, {parts_in_flight} parts",
            )
        budget.check(2 * max_block_bytes, "a block that grows")
        self._tier = tier
        self._budget = budget
        self._executor = executor
        self._parts_in_flight = parts_in_flight
        self._checksums = checksums
        self._limits = BlockLimits(
            max_block_bytes=max_block_bytes,
            min_block_bytes=takes.min_block_bytes,
            largest_block_bytes=min(takes.max_block_bytes, budget.limit_bytes, MAX_FRAME_BYTES),
            max_blocks=takes.max_blocks,
        )

    def open_segment(
        self,
        uuid: UUID,
        begin: EntryPosition,
        extra_metadata: Mapping[str, str],
        *,
        max_segment_bytes: int | None = None,
        segment_filter: SegmentFilter | None = None,
    ) -> OffloadHandle:
        """Open a segment; nothing is asked of the store before its first block goes.

        Args:
            uuid: the attempt's, never used before.
            begin: the entry that is offered first; or where a ledger ends of which the segment gets no entry.
            extra_metadata: user metadata of both objects; with `managedledgername` a bucket explains itself.
            max_segment_bytes: with the entry whose payload reaches this the segment closes by itself; of what is
                written of them.
            segment_filter: what all that is offered goes through; both objects name it.

        Raises:
            OptionError: `max_segment_bytes` is not positive.
        """
        if max_segment_bytes is not None and max_segment_bytes < 1:
            raise OptionError("a segment has at least one byte", found=max_segment_bytes)
        upload = SegmentUpload(
            self._tier,
            segment_key(uuid),
            partial(_about, dict(extra_metadata), segment_filter),
            self._executor,
            self._budget,
            parts_in_flight=self._parts_in_flight,
            checksums=self._checksums,
        )
        blocks = StreamingBlocks(begin, self._limits, self._budget, upload.send)
        return OffloadHandle(blocks, upload, max_segment_bytes, segment_filter)

    def delete_offloaded(self, uuid: UUID) -> None:
        """Delete an attempt's objects and uploads, as far as they exist; none is left when it returns.

        Raises:
            StoreError: the store fails; it can be called again.
        """
        delete_attempt(self._tier, segment_key(uuid))


def _about(extra: Mapping[str, str], segment_filter: SegmentFilter | None, role: str) -> dict[str, str]:
    """The user metadata of a segment's data object, when it is begun, or of the others, at its end."""
    if segment_filter is not None:
        extra = {**extra, **(segment_filter.about_index() if role == "index" else segment_filter.about)}
    return user_metadata(role, f"pulsar-offload {version('pulsar-offload')}", extra)


def segment_key(uuid: UUID) -> ObjectKey:
    """The key of a segment's data object."""
    return ObjectKey(folder="", uuid=uuid, ledger_id=None, is_index=False)
