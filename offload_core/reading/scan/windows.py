"""Fetch the bytes of extents' blocks ahead in windows, and go over their entries with a cursor.

A window is part of a large block, or a small block whole; adjoining small blocks are fetched by one range. What is held
does not depend on the size of block or ledger.
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
from offload_core.reading.scan.tasks import ReadOptions, ScanExtent
from offload_core.storage.tier import Tier
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import placed

LEAST_RANGE_BYTES = 512
FIRST_RANGE_BYTES = 1 << 20
"""The most of a task's first range: a head of a topic costs no more."""


@dataclass(slots=True, kw_only=True)
class Window:
    """Bytes `data` of the extent's data object, from its byte `offset` on; they lie in `block`.

    `follow_at` is where the next window of the block should begin: at its end, or at an entry that it cuts off.
    """

    extent: LedgerExtent
    block: IndexedBlock
    offset: int
    data: memoryview
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
    """The bytes of one request: `length` from `offset`, all of them in these blocks of the extent."""

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
        lambda planned: (planned, _fetch(tier, planned)),
        ranges,
        at_once=capabilities.ranges_ahead,
        ahead=capabilities.ranges_ahead,
        waits_after=lambda planned: planned.is_perhaps_last,
        name="offload-fetch",
    )
    with contextlib.closing(results):
        for fetched, data in results:
            yield from _windows(fetched, data)
            del data


def range_bytes_of(tier: Tier) -> int:
    """The greatest length of a range of a tier's blocks."""
    return max(tier.describe().capabilities.range_bytes, LEAST_RANGE_BYTES)


def _one_by_one(tier: Tier, ranges: Iterator[Range]) -> Iterator[Window]:
    """Fetch one range at a time, so that each window of a large block can begin where the last was walked to."""
    follow_at = 0
    for planned in ranges:
        last = planned.blocks[-1].offset + planned.blocks[-1].length
        if planned.offset > planned.blocks[0].offset and 0 < follow_at < planned.offset:
            planned = replace(planned, offset=follow_at, length=planned.offset + planned.length - follow_at)
        for window in _windows(planned, _fetch(tier, planned)):
            yield window
            follow_at = window.follow_at if window.follow_at < last else 0


def _fetch(tier: Tier, planned: Range) -> memoryview:
    return tier.read_range(planned.extent.data_key, planned.offset, planned.length)


def ranges_of(extent: LedgerExtent, range_bytes: int, head_bytes: int = 0) -> Iterator[Range]:
    """The ranges of an extent: large blocks in parts, small ones that adjoin together.

    With `head_bytes` the first one has at most so many bytes of the first block, if there are more in the extent.
    """
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


def _windows(fetched: Range, data: memoryview) -> Iterator[Window]:
    for block in fetched.blocks:
        begin = max(block.offset, fetched.offset)
        end = min(block.offset + block.length, fetched.offset + fetched.length)
        part = data[begin - fetched.offset : end - fetched.offset]
        yield Window(extent=fetched.extent, block=block, offset=begin, data=part)


def walk_windows(extent: LedgerExtent, windows: Iterable[Window]) -> Iterator[tuple[Window, EntryCursor]]:
    """Walk an extent's windows with a cursor over its entries; each window is fed when the next is asked for."""
    cursor = EntryCursor(extent)
    for window in windows:
        cursor.feed(window.block, window.data, window.offset)
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
