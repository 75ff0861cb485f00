"""Reading one object of 64 MiB by the driver `fsspec` over `file:`, against the driver `local` on the same bytes.

The file is in memory or in the page cache: what is measured is what the drivers themselves cost, by the size of the
ranges. A scan asks `local` for 2 MiB and `fsspec` for 8 MiB at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.measure import Result, seconds_side_by_side
from benchmarks.stores import MIB, in_memory_where_it_can_be
from offload_core.storage.tier import Tier, open_store

OBJECT_BYTES = 64 * MIB
RANGES_KIB = (64, 2048, 8192)
KEY = "object"
ROUNDS = 9


def run(folder: Path) -> Iterator[Result]:
    """Ranges of one object, one after another, in each of the sizes."""
    place = in_memory_where_it_can_be(folder)
    try:
        with open_store(place) as local, open_store(f"fsspec+file://{place}") as ours:
            local.write_index(KEY, bytes(range(256)) * (OBJECT_BYTES // 256))
            for kib in RANGES_KIB:
                calls = [partial(_read, tier, kib << 10) for tier in (ours, local)]
                mine, theirs, ratio = seconds_side_by_side(*calls, rounds=ROUNDS)
                rates = [f"{OBJECT_BYTES / MIB / seconds:,.0f} MiB/s" for seconds in (mine, theirs)]
                name = f"64 MiB by fsspec+file, ranges of {kib:,} KiB"
                yield Result(name=name, ours=rates[0], peer=f"local: {rates[1]}", ratio=ratio)
    finally:
        shutil.rmtree(place)


def _read(tier: Tier, range_bytes: int) -> None:
    for offset in range(0, OBJECT_BYTES, range_bytes):
        tier.read_range(KEY, offset, range_bytes)
