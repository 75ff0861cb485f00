"""A query by time that touches 1 % of a topic of 4 GiB: which part of the topic's bytes it reads, planning included.

The topic has ledgers of 512 MiB in blocks of 64 MiB, as Pulsar writes them by default, and spans a week. Its bytes are
made where they are read, so that it takes no memory; the store asks for ranges as S3 does.
"""

from __future__ import annotations

import random
import statistics
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from entries import entry, ledger_metadata, single
from tiers import MemoryDriver, Names

from benchmarks.material import json_record
from benchmarks.measure import Result
from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, BlockHeader, pack_block_header, padding
from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_core.storage.tier import Tier
from pulsar_offload import TierReader, scan

LEDGERS = 8
BLOCKS = 8
BLOCK_BYTES = 64 << 20
WEEK_MS = 7 * 24 * 3600 * 1000
BEGIN_MS = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1000
QUERIES = 25
PART = 0.01


def run(folder: Path) -> Iterator[Result]:
    """The mean and the most of queries at many places."""
    del folder
    driver, ledger = topic()
    total = sum(len(data) for key, data in driver.objects.items() if not key.endswith("-index"))
    entries = LEDGERS * ledger.entries
    parts = []
    with TierReader(Tier(driver)) as tier:
        for number in range(QUERIES):
            start = BEGIN_MS + int(WEEK_MS * (1 - PART) * number / (QUERIES - 1))
            stop = start + int(WEEK_MS * PART)
            driver.reads.clear()
            planned = scan(tier, columns=["__publishTime"], start_time=start, stop_time=stop)
            rows = planned.to_table().num_rows / ledger.messages
            if abs(rows - entries * PART) > 1:
                raise AssertionError(f"{rows} entries instead of {entries * PART:.0f}")
            parts.append(100 * sum(length for _, _, length in driver.reads) / total)
    name = f"1 % of the time of {total / 2**30:.1f} GiB, blocks of 64 MiB, {QUERIES} queries: % of the bytes"
    mean = statistics.mean(parts)
    yield Result(name=f"{name}, mean", ours=f"{mean:.2f} %", peer="", ratio=mean, limit=3, at_most=True)
    yield Result(
        name=f"{name}, most", ours=f"{max(parts):.2f} %", peer="", ratio=max(parts), limit=3, at_most=True
    )


def topic() -> tuple[MemoryDriver, MadeLedger]:
    """A store with the topic, and one of its ledgers."""
    objects: dict[str, object] = {}
    for number in range(LEDGERS):
        ledger = MadeLedger(number)
        key = ObjectKey(folder="", uuid=UUID(int=number), ledger_id=number, is_index=False)
        blocks = [
            BlockEntry(first_entry_id=i * ledger.entries_per_block, part_number=i + 1, offset=i * BLOCK_BYTES)
            for i in range(BLOCKS)
        ]
        metadata = ledger_metadata([b""] * ledger.entries)
        objects[key.data_key] = ledger
        objects[key.index_key] = pack_pip17_index(metadata, blocks, len(ledger))
    driver = MemoryDriver(
        objects,  # type: ignore[arg-type]
        metadata=Names().as_metadata("data"),
        range_bytes=8 << 20,
        ranges_ahead=8,
    )
    return driver, ledger


class MadeLedger:
    """The bytes of a data object that are made when they are asked for; all entries are equally long."""

    messages = 62
    """To a batch."""

    def __init__(self, number: int) -> None:
        rng = random.Random(7)
        self._batch = b"".join(single(json_record(i, 1024, rng)) for i in range(self.messages))
        self._number = number
        self._frame_bytes = 12 + len(self._stamped(BEGIN_MS))
        self.entries_per_block = (BLOCK_BYTES - BLOCK_HEADER_BYTES) // self._frame_bytes
        self.entries = BLOCKS * self.entries_per_block

    def __len__(self) -> int:
        """All blocks, padding of the last included."""
        return BLOCKS * BLOCK_BYTES

    def __getitem__(self, wanted: slice) -> bytes:
        """Some bytes."""
        parts = []
        place: int = wanted.start
        while place < wanted.stop:
            block, within = divmod(place, BLOCK_BYTES)
            first = block * self.entries_per_block
            frame = (within - BLOCK_HEADER_BYTES) // self._frame_bytes
            if within < BLOCK_HEADER_BYTES:
                header = BlockHeader(
                    object_format=ObjectFormat.PIP17,
                    block_length=BLOCK_BYTES,
                    first_entry_id=first,
                    ledger_id=None,
                )
                part, begins = pack_block_header(header), 0
            elif frame < self.entries_per_block:
                data = self._entry(first + frame)
                part = struct.pack(">iq", len(data), first + frame) + data
                begins = BLOCK_HEADER_BYTES + frame * self._frame_bytes
            else:
                begins = BLOCK_HEADER_BYTES + self.entries_per_block * self._frame_bytes
                part = padding(BLOCK_BYTES - begins)
            part = part[within - begins : within - begins + wanted.stop - place]
            parts.append(part)
            place += len(part)
        return b"".join(parts)

    def _entry(self, entry_id: int) -> bytes:
        place = self._number * self.entries + entry_id
        return self._stamped(BEGIN_MS + WEEK_MS * place // (LEDGERS * self.entries))

    def _stamped(self, publish_time_ms: int) -> bytes:
        return entry(self._batch, num_messages_in_batch=self.messages, publish_time=publish_time_ms)
