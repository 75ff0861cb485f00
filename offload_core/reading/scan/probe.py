"""When the first entries of a block were published: one small range of it, and no payload decompressed.

Source: docs/spark.md, Time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offload_core.format.codec.block_header import BLOCK_HEADER_BYTES
from offload_core.format.codec.cursor import open_cursor
from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.frames import FRAME_HEADER_BYTES, PADDING
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.messages.kernels import entries
from offload_core.format.messages.kernels import fields as f
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError

PROBE_BYTES = 16 << 10
"""What is read of a block at first; more only where no entry's metadata is whole in it."""

_GROWTH = 8
_MOST_ENTRIES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A block's first entry, and the earliest and latest publish time (ms) of the first entries that a probe saw."""

    entry_id: int
    earliest_ms: int
    latest_ms: int


def probe_block(tier: Tier, extent: LedgerExtent, block: IndexedBlock) -> Probe | None:
    """The publish times of a block's first entries; None if it does not tell (bytes that are not right, for one).

    What is wrong with a block is not said here, but where it is read.

    Raises:
        StoreError: the store fails.
    """
    size = min(block.length, PROBE_BYTES)
    while True:
        data = tier.read_range(extent.data_key, block.offset, size)
        if extent.marks.has_gaps and data[BLOCK_HEADER_BYTES:][: len(PADDING)] == PADDING:
            return None  # a filter left nothing of it, and its padding may be long
        try:
            found = _look(data, extent, block)
        except FormatError:
            return None
        if found is not None or size == block.length:
            return found
        size = min(block.length, size * _GROWTH)


def _look(data: memoryview, extent: LedgerExtent, block: IndexedBlock) -> Probe | None:
    sequence_file = extent.sequence_file
    cursor = open_cursor(
        data,
        extent.object_format,
        extent.ledger.ledger_id,
        block,
        sequence_file=sequence_file,
        gaps=extent.marks.skips_ids,
        more=len(data) < block.length,
    )
    entry_ids, offsets, lengths = (np.empty(_MOST_ENTRIES, dtype=np.int64) for _ in range(3))
    count = cursor.locate(entry_ids, offsets, lengths, PROBE_BYTES)
    # Of a block the index says where it begins, with or without that entry.
    first = int(entry_ids[0]) if count and sequence_file is not None else block.first_entry_id
    if not count and sequence_file is None and cursor.starved:
        # The first entry goes on behind the window, its metadata perhaps not.
        count = 1
        offsets[0] = BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES
        lengths[0] = len(cursor.array) - offsets[0]
    table = np.empty((count, f.E_FIELDS), dtype=np.int64)
    right = entries.read_entries(cursor.array, offsets, lengths, count, 0, table) if count else 0
    if not right:
        return None
    times = table[:right, f.E_PUBLISH_TIME]
    return Probe(entry_id=first, earliest_ms=int(times.min()), latest_ms=int(times.max()))
