"""The bytes of runs, fetched ahead of the reader in windows: some are on their way while one is decoded.

A window is part of a large block, or a small block whole; small blocks behind one another are fetched by one range.
What is held does not depend on the size of block or ledger.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from offload_core.format.codec.index import IndexedBlock
from offload_core.reading.scan.tasks import Run
from offload_core.storage.tier import Tier
from offload_hooks.bounded_map import bounded_map

LEAST_RANGE_BYTES = 512


@dataclass(slots=True, kw_only=True)
class Window:
    """Bytes `data` of the run's data object, from its byte `offset` on; they lie in `block`.

    `follow_at` is where the next window of the block should begin: at its end, or at an entry that it cuts off.
    """

    run: Run
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
        """Whether it is the block's first."""
        return self.offset == self.block.offset

    @property
    def ends_block(self) -> bool:
        """Whether it is the block's last."""
        return self.offset + len(self.data) == self.block.offset + self.block.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What is fetched by one request: `length` bytes from `offset`, all of them in these blocks of the run."""

    run: Run
    blocks: tuple[IndexedBlock, ...]
    offset: int
    length: int

    @property
    def is_perhaps_last(self) -> bool:
        """Whether the reader may stop before its end, so that what follows it should not be fetched yet."""
        return self.run.ends_by_time and self.blocks[-1] == self.run.blocks[-1]


def fetch_windows(tier: Tier, runs: Iterable[Run]) -> Generator[Window, None, None]:
    """All bytes of all blocks of all runs, in order. Who does not read to the end closes it.

    As many ranges as the driver declares to be best (`ranges_ahead`) are on their way while one is decoded; one at a
    time where the reader may stop at any of them.
    """
    capabilities = tier.describe().capabilities
    ranges = (planned for run in runs for planned in ranges_of(run, range_bytes_of(tier)))
    if capabilities.ranges_ahead < 1:
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
    with closing(results):
        for fetched, data in results:
            yield from _windows(fetched, data)
            del data


def range_bytes_of(tier: Tier) -> int:
    """How large the ranges of a tier's blocks are at most."""
    return max(tier.describe().capabilities.range_bytes, LEAST_RANGE_BYTES)


def _one_by_one(tier: Tier, ranges: Iterator[Range]) -> Iterator[Window]:
    """Nothing is under way meanwhile, so that each window of a large block can begin where the last was walked to."""
    follow_at = 0
    for planned in ranges:
        last = planned.blocks[-1].offset + planned.blocks[-1].length
        if planned.offset > planned.blocks[0].offset and 0 < follow_at < planned.offset:
            planned = replace(planned, offset=follow_at, length=planned.offset + planned.length - follow_at)
        for window in _windows(planned, _fetch(tier, planned)):
            yield window
            follow_at = window.follow_at if window.follow_at < last else 0


def _fetch(tier: Tier, planned: Range) -> memoryview:
    return tier.read_range(planned.run.data_key, planned.offset, planned.length)


def ranges_of(run: Run, range_bytes: int) -> Iterator[Range]:
    """The ranges of a run: large blocks in parts, small ones that adjoin together."""
    together: list[IndexedBlock] = []
    for block in run.blocks:
        if together:
            begin, end = together[0].offset, together[-1].offset + together[-1].length
            if block.offset == end and block.offset + block.length - begin <= range_bytes:
                together.append(block)
                continue
            yield Range(run=run, blocks=tuple(together), offset=begin, length=end - begin)
            together = []
        if block.length <= range_bytes:
            together = [block]
        else:
            end = block.offset + block.length
            for offset in range(block.offset, end, range_bytes):
                yield Range(run=run, blocks=(block,), offset=offset, length=min(range_bytes, end - offset))
    if together:
        begin, end = together[0].offset, together[-1].offset + together[-1].length
        yield Range(run=run, blocks=tuple(together), offset=begin, length=end - begin)


def _windows(fetched: Range, data: memoryview) -> Iterator[Window]:
    if len(fetched.blocks) == 1:
        yield Window(run=fetched.run, block=fetched.blocks[0], offset=fetched.offset, data=data)
        return
    for block in fetched.blocks:
        start = block.offset - fetched.offset
        part = data[start : start + block.length]
        yield Window(run=fetched.run, block=block, offset=block.offset, data=part)
