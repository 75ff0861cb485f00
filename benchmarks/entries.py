"""Entries of a block in memory to Arrow batches, against memcpy of the same payload bytes to a warm destination.

Two peers: one memcpy of all the payload to a buffer of its size that has been written before; and, stricter, memcpy in
pieces of a batch's size (1 MiB) to one buffer that stays in the processor's cache, as our batches' memory does when a
consumer lets go of each before it takes the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.material import Block, block_of, extent_over, random_entries
from benchmarks.measure import Result, one_core, seconds_side_by_side
from offload_core.format.codec.extent import EntryCursor
from offload_core.format.messages.message_columns import ENTRY_COLUMNS, arrow_schema
from offload_core.format.messages.message_decoder import BATCH_BYTES
from offload_core.reading.scan.read import entry_reader

BLOCK_BYTES = 64 << 20
TARGETS = {100: 0.4, 1024: 0.6, 65536: 0.9}


def run(_: Path) -> Iterator[Result]:
    """Per entry size: the payload column, and all columns, against both peers."""
    with one_core():
        for size, target in TARGETS.items():
            block = block_of(random_entries(size), BLOCK_BYTES)
            count = block.indexed.end_entry_id or 0
            source = block.data[: block.payload_bytes]
            for peer_name, piece in (("memcpy", len(source)), ("memcpy in the cache", BATCH_BYTES)):
                warm = np.ones(piece, dtype=np.uint8)
                for columns in (["value"], None):
                    ours, peer, ratio = seconds_side_by_side(
                        lambda block=block, columns=columns: read(block, columns),
                        lambda source=source, warm=warm: copy(source, warm),
                        rounds=15,
                    )
                    what = "value" if columns else f"all {len(ENTRY_COLUMNS)} columns"
                    yield Result(
                        name=f"entries of {size:,} B, {what}",
                        ours=f"{block.payload_bytes / ours / 1e9:.1f} GB/s, {count / ours / 1e6:.1f} M/s",
                        peer=f"{peer_name} {block.payload_bytes / peer / 1e9:.1f} GB/s",
                        ratio=ratio,
                        limit=target if peer_name == "memcpy" else None,
                    )


def read(block: Block, columns: list[str] | None) -> None:
    """Decode the whole block."""
    extent = extent_over(block)
    reader = entry_reader(extent, arrow_schema("entries", columns))
    cursor = EntryCursor(extent)
    cursor.feed(block.indexed, block.data, 0)
    rows = sum(batch.num_rows for batch in reader(cursor))
    if rows != block.indexed.end_entry_id:
        raise AssertionError(f"{rows} entries")


def copy(source: np.ndarray, target: np.ndarray) -> None:
    """memcpy, a target's size at a time."""
    for start in range(0, len(source), len(target)):
        piece = source[start : start + len(target)]
        np.copyto(target[: len(piece)], piece)
