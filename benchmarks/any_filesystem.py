"""Reading one object of 64 MiB by the driver `fsspec` over `file:`, against the driver `local` on the same bytes.

The file is in the page cache, or in memory: what is measured is what the drivers themselves cost. Both read the ranges
of 2 MiB that `local` asks for.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Result, seconds_side_by_side
from benchmarks.stores import MIB, in_memory_where_it_can_be
from offload_core.storage.tier import Tier, open_store
from offload_drivers.local.driver import RANGE_BYTES

OBJECT_BYTES = 64 * MIB
KEY = "object"
ROUNDS = 9


def run(folder: Path) -> Iterator[Result]:
    """Ranges of one object, one after another."""
    place = in_memory_where_it_can_be(folder)
    try:
        with open_store(place / "tier") as local, open_store(f"fsspec+file://{place}/tier") as ours:
            local.write_index(KEY, bytes(range(256)) * (OBJECT_BYTES // 256))
            mine, theirs, ratio = seconds_side_by_side(
                lambda: _read(ours), lambda: _read(local), rounds=ROUNDS
            )
    finally:
        shutil.rmtree(place)
    rates = [f"{OBJECT_BYTES / MIB / seconds:,.0f} MiB/s" for seconds in (mine, theirs)]
    yield Result(name="reading 64 MiB by fsspec+file", ours=rates[0], peer=f"local: {rates[1]}", ratio=ratio)


def _read(tier: Tier) -> None:
    for offset in range(0, OBJECT_BYTES, RANGE_BYTES):
        tier.read_range(KEY, offset, RANGE_BYTES)
