"""Blocks of a run, fetched ahead of the reader: one unit is decoded while the next is on its way.

A unit is one block, or several small ones behind one another. It is fetched by several ranges at once where the store
gains from that. At most two units are held, whatever the ledger's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from offload_core.codec.index import IndexedBlock
from offload_core.scan.tasks import Run
from offload_core.tier import Tier
from offload_hooks.values import ByteRange

UNIT_BYTES = 8 << 20
"""Small blocks are fetched together up to this."""

_RANGES_AT_ONCE = 4


def fetch_blocks(tier: Tier, runs: Sequence[Run]) -> Iterator[tuple[Run, IndexedBlock, memoryview]]:
    """All blocks of all runs, in order, each with its bytes, which are valid until the next one is asked for."""
    range_bytes = tier.describe().capabilities.range_bytes
    units = ((run, unit) for run in runs for unit in _units(run.blocks))
    with ThreadPoolExecutor(1, thread_name_prefix="offload-fetch") as ahead:
        following = next(units, None)
        pending = ahead.submit(_fetch, tier, *following, range_bytes) if following else None
        while following is not None and pending is not None:
            (run, unit), data = following, pending.result()
            following = next(units, None)
            pending = ahead.submit(_fetch, tier, *following, range_bytes) if following else None
            base = unit[0].offset
            for block in unit:
                yield run, block, data[block.offset - base : block.offset - base + block.length]
            del data


def _units(blocks: Sequence[IndexedBlock]) -> Iterator[list[IndexedBlock]]:
    unit: list[IndexedBlock] = []
    for block in blocks:
        adjoins = bool(unit) and unit[-1].offset + unit[-1].length == block.offset
        if unit and (not adjoins or block.offset + block.length - unit[0].offset > UNIT_BYTES):
            yield unit
            unit = []
        unit.append(block)
    if unit:
        yield unit


def _fetch(tier: Tier, run: Run, unit: Sequence[IndexedBlock], range_bytes: int) -> memoryview:
    """The bytes of a unit. Ranges are put in place as they come, so that no second copy of the whole is made."""
    start = unit[0].offset
    length = unit[-1].offset + unit[-1].length - start
    if length <= range_bytes:
        return tier.read_range(run.data_key, start, length)
    whole = np.empty(length, dtype=np.uint8)  # numpy asks for huge pages: much faster to touch first
    ranges = [
        ByteRange(key=run.data_key, offset=start + at, length=min(range_bytes, length - at))
        for at in range(0, length, range_bytes)
    ]
    for first in range(0, len(ranges), _RANGES_AT_ONCE):
        some = ranges[first : first + _RANGES_AT_ONCE]
        for wanted, data in zip(some, tier.read_ranges(some), strict=True):
            whole[wanted.offset - start : wanted.end - start] = np.frombuffer(data, dtype=np.uint8)
    return memoryview(whole.data)
