"""Messages of a block in memory to Arrow batches, checksums on. There is no peer in Python: the rates are absolute."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.material import Block, block_of, extent_over, message_entries
from benchmarks.measure import Result, one_core, seconds_side_by_side
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.extent import EntryCursor
from offload_core.format.messages.compression import Compression
from offload_core.format.messages.message_columns import MESSAGE_COLUMNS, arrow_schema
from offload_core.format.messages.message_decoder import BATCH_BYTES
from offload_core.reading.scan.tasks import ReadOptions
from offload_core.reading.scan.windows import message_decoder

BLOCK_BYTES = 32 << 20

CASES = (
    (100, 100, Compression.NONE, "M/s", 12.0),
    (1024, 100, Compression.NONE, "GB/s", None),
    (1024, 100, Compression.LZ4, "GB/s", 1.3),
    (1024, 100, Compression.ZSTD, "GB/s", None),
    (1024, 100, Compression.SNAPPY, "GB/s", None),
    (1024, 100, Compression.ZLIB, "GB/s", None),
    (1024, 1, Compression.NONE, "GB/s", None),
    (1024, 1, Compression.LZ4, "GB/s", None),
)


def run(_: Path) -> Iterator[Result]:
    """Two results per case: `value` alone, and all default columns. The ratio is the rate itself."""
    with one_core():
        for size, per_batch, compression, unit, target in CASES:
            block = block_of(message_entries(size, per_batch, compression), BLOCK_BYTES)
            data = block.data.tobytes()
            for columns in (["value"], None):
                messages = read(block, columns)
                ours, peer, _ = seconds_side_by_side(
                    lambda block=block, columns=columns: read(block, columns),
                    lambda data=data: crc32c(data),
                    rounds=7,
                )
                rate = messages / ours / 1e6 if unit == "M/s" else messages * size / ours / 1e9
                what = "value" if columns else f"all {len(MESSAGE_COLUMNS)} columns"
                batch = f"{per_batch} per batch" if per_batch > 1 else "not batched"
                yield Result(
                    name=f"messages of {size:,} B, {batch}, {compression.name}, {what}: {unit}",
                    ours=f"{messages / ours / 1e6:.2f} M/s, {messages * size / ours / 1e9:.2f} GB/s",
                    peer=f"CRC-32C of the block alone: {len(block.data) / peer / 1e9:.1f} GB/s",
                    ratio=rate,
                    limit=target,
                )


def read(block: Block, columns: list[str] | None) -> int:
    """Decode the whole block; the number of messages."""
    extent = extent_over(block)
    decoder = message_decoder(extent, arrow_schema("messages", columns), ReadOptions())
    cursor = EntryCursor(extent)
    cursor.feed(block.indexed, block.data, 0)
    return sum(
        batch.num_rows for located in cursor.located(BATCH_BYTES) for batch in decoder.decode(*located)
    )
