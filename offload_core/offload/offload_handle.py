"""`OffloadHandle` (PIP-76): offers entries to one segment, whose blocks go to the tier while it is still open.

An offer copies entries into memory and never waits for the store. What the segment does not take, it says why. Source:
PIP-76; docs/offload.md, Segments.
"""

from __future__ import annotations

import enum
import threading
from typing import NamedTuple

import numpy as np

from offload_core.codec.byte_arrays import read_only
from offload_core.codec.ledger_info import LedgerInfo
from offload_core.metadata import EntryPosition
from offload_core.metadata.filter_record import RECORD_KEY
from offload_core.offload.segment_filter import SegmentFilter
from offload_core.offload.segment_upload import OffloadedSegment, SegmentOutcome, SegmentUpload
from offload_core.offload.streaming_blocks import StreamingBlocks
from offload_hooks import ReadableBuffer
from offload_hooks.errors import OptionError, UploadError
from offload_hooks.ledger_stores import EntryBatch


class OfferResult(enum.Enum):
    """What became of an offer."""

    ACCEPTED = "accepted"
    BUFFER_FULL = "buffer full"
    SEGMENT_CLOSED = "segment closed"
    NOT_CONSECUTIVE = "not consecutive"


class Offered(NamedTuple):
    """How many entries of a batch were accepted, from its first on, and why no more; `ACCEPTED` if all were."""

    accepted: int
    result: OfferResult


class OffloadHandle:
    """One segment that is open, made by `SegmentOffloader.open_segment`; its methods may be called by any thread.

    Entries come in order: the next one of the same ledger, or the first one of a later ledger after `end_ledger`. A
    segment ends by `close`, by itself when it is as large as it may be, or by an error: of the store, or by `abort`.
    However it ends, `result` tells, and no memory stays taken. Where it has a filter, what is offered goes through it;
    an entry that it drops counts as accepted.
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
        """Whether an entry with a payload of this size would be accepted now; others may take the memory meanwhile."""
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
        """Whether it takes no more entries."""
        return self._closed or self._upload.failure is not None

    def offer_entry(self, ledger_id: int, entry_id: int, payload: ReadableBuffer) -> OfferResult:
        """Offer one entry; `offer_entries` is the way for many. Errors as there."""
        return self.offer_entries(ledger_id, EntryBatch.of(entry_id, [payload])).result

    def offer_entries(self, ledger_id: int, entries: EntryBatch) -> Offered:
        """Offer entries of one ledger; those that are accepted were copied. It waits for nobody.

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
        """Tell that a ledger ended before the entry that would come next: the index says of it what `info` says.

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
        """No entry comes any more: the segment ends with the last that was accepted. It waits for nobody.

        A segment without entries fails: nothing is written of it.
        """
        with self._lock:
            if not self.is_closed:
                self._close()

    def abort(self) -> None:
        """Give the segment up, unless it has ended; what the store has of it is deleted. It waits for nobody."""
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
