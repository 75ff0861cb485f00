"""Fetch the bytes of extents' blocks ahead in windows, and go over their entries with a cursor.

A window is part of a large block, or a small block whole; adjoining small blocks are fetched by one range. What is held
does not depend on the size of block or ledger. Of a hot copy a window is a batch of entries; its store reads ahead by
itself. Where a copy is gone, or cannot be read, windows of the other one follow.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from offload_core.format.codec.arrays import LocatedEntries
from offload_core.format.codec.extent import EntryCursor, LedgerExtent
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.messages.chunks import Chunk
from offload_core.format.messages.message_columns import arrow_schema
from offload_core.format.messages.message_decoder import BATCH_BYTES, MessageDecoder
from offload_core.format.messages.payload_opener import PayloadOpener
from offload_core.reading.scan.other_copies import other_copy, read_hot, without_others
from offload_core.reading.scan.tasks import ReadOptions, ScanExtent
from offload_core.storage.tier import Tier
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import OffloadError, placed
from offload_hooks.ledger_stores import EntryBatch

LEAST_RANGE_BYTES = 512
_NO_BYTES = memoryview(b"")
FIRST_RANGE_BYTES = 1 << 20
"""The most of a task's first range: a head of a topic costs no more."""


@dataclass(slots=True, kw_only=True)
class Window:
    """Bytes `data` of the data object of `source`, from its byte `offset` on; they lie in `block`.

    Attributes:
        extent: what was asked for.
        source: the same, or what another copy has of its entries.
        batch: of a hot copy, the entries, which are the whole block; then there are no `data`.
        follow_at: where the next window of the block should begin: at its end, or at an entry that it cuts off.
    """

    extent: LedgerExtent
    source: LedgerExtent
    block: IndexedBlock
    offset: int
    data: memoryview = _NO_BYTES
    batch: EntryBatch | None = None
    follow_at: int = -1

    def walked_to(self, place: int) -> None:
        """The reader has come to this byte of the object; to fetch from there on saves it a copy."""
        if place > self.offset:
            self.follow_at = place

    @property
    def begins_block(self) -> bool:
        """True for the block's first window."""
        return self.offset == self.block.offset

    @property
    def ends_block(self) -> bool:
        """True for the block's last window."""
        return self.offset + len(self.data) == self.block.offset + self.block.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The bytes of one request: `length` from `offset`, all of them in these blocks of the extent.

    Of a hot copy there is one range, of all entries from its first block to its last.
    """

    extent: LedgerExtent
    blocks: tuple[IndexedBlock, ...]
    offset: int
    length: int
    is_head: bool = False

    @property
    def is_perhaps_last(self) -> bool:
        """True if the reader may stop before its end, so that what follows should not be fetched yet."""
        extent = self.extent
        ends_by_time = isinstance(extent, ScanExtent) and extent.ends_by_time
        return self.is_head or (ends_by_time and self.blocks[-1] == extent.blocks[-1])


def fetch_windows(
    tier: Tier, extents: Iterable[LedgerExtent], *, step_bytes: int | None = None, head_bytes: int = 0
) -> Generator[Window, None, None]:
    """Fetch all bytes of all blocks of all extents, in order. Close it when not read to the end.

    As many ranges as the driver declares to be best (`ranges_ahead`) are fetched while one is decoded; one at a
    time where the reader may stop at any of them. With `step_bytes` ranges are no larger than that, and nothing is
    fetched before it is asked for. With `head_bytes` the first range is no larger than that, and what follows is
    fetched once it is asked for: who needs no more than the first rows reads no more.
    """
    capabilities = tier.describe().capabilities
    range_bytes = min(step_bytes or range_bytes_of(tier), range_bytes_of(tier))
    is_one_by_one = capabilities.ranges_ahead < 1 or step_bytes is not None
    heads = itertools.chain((0 if is_one_by_one else head_bytes,), itertools.repeat(0))
    ranges = (
        planned
        for extent, head in zip(extents, heads, strict=False)
        for planned in ranges_of(extent, range_bytes, head)
    )
    if is_one_by_one:
        yield from _one_by_one(tier, ranges)
        return
    results = bounded_map(
        lambda planned: (planned, _fetched(tier, planned)),
        ranges,
        at_once=capabilities.ranges_ahead,
        ahead=capabilities.ranges_ahead,
        waits_after=lambda planned: planned.is_perhaps_last,
        name="offload-fetch",
    )
    given_up: LedgerExtent | None = None
    with contextlib.closing(results):
        for fetched, data in results:
            if fetched.extent is given_up:
                continue
            if isinstance(data, OffloadError):
                given_up = fetched.extent
                yield from _other_windows(tier, given_up, _first_of(fetched), data)
            else:
                yield from _windows(tier, fetched, data)
            del data


def range_bytes_of(tier: Tier) -> int:
    """The greatest length of a range of a tier's blocks."""
    return max(tier.describe().capabilities.range_bytes, LEAST_RANGE_BYTES)


def _one_by_one(tier: Tier, ranges: Iterator[Range]) -> Iterator[Window]:
    """Fetch one range at a time, so that each window of a large block can begin where the last was walked to."""
    follow_at = 0
    given_up: LedgerExtent | None = None
    for planned in ranges:
        if planned.extent is given_up:
            continue
        last = planned.blocks[-1].offset + planned.blocks[-1].length
        if planned.offset > planned.blocks[0].offset and 0 < follow_at < planned.offset:
            planned = replace(planned, offset=follow_at, length=planned.offset + planned.length - follow_at)
        data = _fetched(tier, planned)
        if isinstance(data, OffloadError):
            given_up, follow_at = planned.extent, 0
            yield from _other_windows(tier, given_up, _first_of(planned), data)
            continue
        for window in _windows(tier, planned, data):
            yield window
            follow_at = window.follow_at if window.follow_at < last else 0


def _fetched(tier: Tier, planned: Range) -> memoryview | OffloadError:
    """The bytes of a range; of a hot copy none, since its store reads ahead by itself. Or why they cannot be read."""
    if planned.extent.hot is not None:
        return _NO_BYTES
    try:
        return tier.read_range(planned.extent.data_key, planned.offset, planned.length)
    except OffloadError as error:
        return error


def _first_of(planned: Range) -> int:
    return max(planned.blocks[0].first_entry_id, planned.extent.first_entry_id)


def _other_windows(
    tier: Tier, extent: LedgerExtent, first_entry_id: int, error: OffloadError
) -> Iterator[Window]:
    """What another copy has of an extent's entries from one on.

    Raises:
        OffloadError: there is no other copy: the error that is given.
    """
    others = other_copy(tier, extent, first_entry_id, error)
    with contextlib.closing(fetch_windows(without_others(tier), others)) as windows:
        for window in windows:
            window.extent = extent
            yield window


def ranges_of(extent: LedgerExtent, range_bytes: int, head_bytes: int = 0) -> Iterator[Range]:
    """The ranges of an extent: large blocks in parts, small ones that adjoin together.

    With `head_bytes` the first one has at most so many bytes of the first block, if there are more in the extent.
    """
    if extent.hot is not None:
        if extent.blocks:
            ends = extent.blocks[0], extent.blocks[-1]
            yield Range(extent=extent, blocks=ends, offset=ends[0].offset, length=extent.data_bytes)
        return
    spans = [(block, block.offset, block.offset + block.length) for block in extent.blocks]
    if 0 < head_bytes < sum(block.length for block in extent.blocks):
        block, begin, end = spans[0]
        head_end = min(begin + head_bytes, end)
        yield Range(extent=extent, blocks=(block,), offset=begin, length=head_end - begin, is_head=True)
        spans[:1] = [(block, head_end, end)] if head_end < end else []
    together: list[IndexedBlock] = []
    from_, until = 0, 0
    for block, begin, end in spans:
        if together and begin == until and end - from_ <= range_bytes:
            together.append(block)
            until = end
            continue
        if together:
            yield Range(extent=extent, blocks=tuple(together), offset=from_, length=until - from_)
            together = []
        if end - begin <= range_bytes:
            together, from_, until = [block], begin, end
            continue
        for offset in range(begin, end, range_bytes):
            yield Range(extent=extent, blocks=(block,), offset=offset, length=min(range_bytes, end - offset))
    if together:
        yield Range(extent=extent, blocks=tuple(together), offset=from_, length=until - from_)


def _windows(tier: Tier, fetched: Range, data: memoryview) -> Iterator[Window]:
    if fetched.extent.hot is not None:
        yield from _hot_windows(tier, fetched)
        return
    for block in fetched.blocks:
        begin = max(block.offset, fetched.offset)
        end = min(block.offset + block.length, fetched.offset + fetched.length)
        part = data[begin - fetched.offset : end - fetched.offset]
        yield Window(extent=fetched.extent, source=fetched.extent, block=block, offset=begin, data=part)


def _hot_windows(tier: Tier, fetched: Range) -> Iterator[Window]:
    extent, first = fetched.extent, _first_of(fetched)
    try:
        with contextlib.closing(read_hot(tier, extent, first)) as batches:
            for batch in batches:
                block = IndexedBlock(
                    part_number=0,
                    offset=batch.first_entry_id,
                    length=batch.data.nbytes,
                    first_entry_id=batch.first_entry_id,
                    end_entry_id=batch.stop_entry_id,
                )
                first = batch.stop_entry_id
                yield Window(extent=extent, source=extent, block=block, offset=block.offset, batch=batch)
    except OffloadError as error:
        yield from _other_windows(tier, extent, first, error)


def walk_windows(extent: LedgerExtent, windows: Iterable[Window]) -> Iterator[tuple[Window, EntryCursor]]:
    """Walk an extent's windows with a cursor over its entries; each window is fed when the next is asked for."""
    cursor, source = EntryCursor(extent), extent
    for window in windows:
        if window.source is not source:
            source = window.source
            cursor.turn_to(source)
        cursor.feed(window.block, window.data if window.batch is None else window.batch, window.offset)
        yield window, cursor
        window.walked_to(cursor.reached)


@dataclass(frozen=True, slots=True)
class ExtentEntries:
    """Some entries of an extent, in order; at its end, without `entries`, the next id and the bytes of its payloads."""

    extent: ScanExtent
    entries: LocatedEntries | None
    next_entry_id: int = 0
    payload_bytes: int = 0

    def kept(self) -> ExtentEntries:
        """The same in arrays of their own: a cursor uses its arrays again."""
        if self.entries is None:
            return self
        array, base, *columns = self.entries
        array = array.copy() if base is None else array  # inflated: its memory may be used again as well
        return replace(self, entries=LocatedEntries(array, base, *(each.copy() for each in columns)))


def message_decoder(
    extent: ScanExtent, schema: pa.Schema, options: ReadOptions, opener: PayloadOpener | None = None
) -> MessageDecoder:
    """The decoder of an extent's entries."""
    return MessageDecoder(
        topic=extent.topic,
        partition=extent.partition,
        ledger_id=extent.ledger_id,
        schema=schema,
        verify_checksums=options.verify_checksums,
        max_message_bytes=options.max_message_bytes,
        times=(None, None) if options.times is None else (options.times.start_ms, options.times.stop_ms),
        hide_unsettled=options.isolation == "committed",
        refuse_transactions=options.needs_outcomes and not extent.marks.is_settled,
        opener=opener,
    )


def read_chunks(
    tier: Tier, extent: ScanExtent, options: ReadOptions, opener: PayloadOpener
) -> Generator[Chunk, None, None]:
    """Read the chunks among an extent's entries, in order. Close it when not read to the end.

    Raises:
        FormatError, StoreError: as when its messages are read.
    """
    decoder = message_decoder(extent, arrow_schema("messages", ["value"]), options, opener)
    with placed(key=extent.data_key), contextlib.closing(fetch_windows(tier, (extent,))) as windows:
        for _, cursor in walk_windows(extent, windows):
            for located in cursor.located(BATCH_BYTES):
                yield from decoder.chunks(located)
