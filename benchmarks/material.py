"""What the benchmarks read: blocks in memory, and ledgers in a local tier. Records are JSON."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np
import numpy.typing as npt
from entries import batch_entry, entry, ledger_metadata

from offload_core.format.codec.block_layout import BlockHeader
from offload_core.format.codec.blocks import write_block
from offload_core.format.codec.index import BlockEntry, BlockTable, IndexedBlock, LedgerIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.pip17 import BlockPlan, pack_pip17_index, plan_blocks
from offload_core.reading.scan.tasks import ScanExtent
from pulsar_offload import TierReader, open_tier

DISTINCT = 64
"""So many different entries are repeated."""

LEDGER_ID = 7


def json_record(number: int, size: int, rng: random.Random) -> bytes:
    """A JSON record of exactly `size` bytes."""
    fields = [f'"id":{number}', f'"user":"user-{rng.randrange(100_000):05d}"']
    while sum(map(len, fields)) + len(fields) + 1 < size - 40:
        name = rng.choice(("price", "amount", "city", "status", "device", "session"))
        fields.append(
            f'"{name}{len(fields)}":"{rng.choice(("open", "closed", "Berlin", "Oslo"))}-{rng.randrange(10**9)}"'
        )
    text = "{" + ",".join(fields)
    return (text[: size - 2].ljust(size - 2, " ") + '"}').encode()[:size]


def message_entries(size: int, per_batch: int, compression: int) -> list[bytes]:
    """Distinct entries of `per_batch` messages (1: not batched) of `size` bytes."""
    rng = random.Random(size)
    made = []
    for i in range(DISTINCT):
        records = [json_record(i * per_batch + j, size, rng) for j in range(per_batch)]
        options = {
            "compression": compression,
            "producer_name": "standalone-0-1",
            "sequence_id": i * per_batch,
        }
        made.append(batch_entry(records, **options) if per_batch > 1 else entry(records[0], **options))
    return made


def random_entries(size: int) -> list[bytes]:
    """Distinct entries of `size` random bytes."""
    rng = random.Random(size)
    return [rng.randbytes(size) for _ in range(DISTINCT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block in memory, its place in an index, and the payload bytes of its entries."""

    data: npt.NDArray[np.uint8]
    indexed: IndexedBlock
    payload_bytes: int


def block_of(entries: Sequence[bytes], total: int) -> Block:
    """One block with about `total` bytes of `entries`, repeated."""
    repeated = list(_repeat(entries, total))
    lengths = np.array([len(data) for data in repeated], dtype=np.int64)
    (plan,) = plan_blocks(lengths, 2 * total + 4096)
    data = _pack(repeated, plan)
    indexed = IndexedBlock(
        part_number=1, offset=0, length=len(data), first_entry_id=0, end_entry_id=len(repeated)
    )
    return Block(data=data, indexed=indexed, payload_bytes=int(lengths.sum()))


def extent_over(block: Block) -> ScanExtent:
    """The extent of a scan that reads just this block."""
    return ScanExtent(
        topic="persistent://bench/marks/topic",
        partition=-1,
        key=ObjectKey(folder="", uuid=UUID(int=LEDGER_ID), ledger_id=LEDGER_ID, is_index=False),
        ledger=LedgerIndex(
            ledger_id=LEDGER_ID,
            metadata=LedgerInfo(ledger_id=LEDGER_ID),
            blocks=BlockTable.of([block.indexed]),
        ),
    )


def write_ledger(folder: Path, entries: Sequence[bytes], total: int, max_block_bytes: int) -> TierReader:
    """A tier with one ledger of about `total` bytes of `entries`, repeated, block by block."""
    tier = open_tier(folder)
    repeated = list(_repeat(entries, total))
    lengths = np.array([len(data) for data in repeated], dtype=np.int64)
    key = ObjectKey(folder="", uuid=UUID(int=LEDGER_ID), ledger_id=LEDGER_ID, is_index=False)
    about = {
        "managedledgername": "bench/marks/persistent/topic",
        "s3managedledgeroffloaderformatversion": "1",
    }
    upload = tier.store.begin_data(key.data_key, user_metadata=about)
    blocks, receipts, offset = [], [], 0
    for part, plan in enumerate(plan_blocks(lengths, max_block_bytes), start=1):
        receipts.append(tier.store.write_block(upload, part, offset, memoryview(_pack(repeated, plan))))
        blocks.append(BlockEntry(first_entry_id=plan.first, part_number=part, offset=offset))
        offset += plan.block_length
    tier.store.commit_data(upload, receipts)
    metadata = ledger_metadata(repeated)
    tier.store.write_index(key.index_key, pack_pip17_index(metadata, blocks, offset), user_metadata=about)
    return tier


def _repeat(entries: Sequence[bytes], total: int) -> Iterator[bytes]:
    used = 0
    for data in itertools.cycle(entries):
        if used + len(data) > total and used:
            return
        used += len(data)
        yield data


def _pack(entries: Sequence[bytes], plan: BlockPlan) -> npt.NDArray[np.uint8]:
    some = entries[plan.first : plan.last]
    values = np.frombuffer(b"".join(some), dtype=np.uint8)
    borders = np.concatenate([[0], np.cumsum([len(data) for data in some])]).astype(np.int64)
    header = BlockHeader(
        object_format=ObjectFormat.PIP17,
        block_length=plan.block_length,
        first_entry_id=plan.first,
        ledger_id=None,
    )
    out = np.empty(plan.block_length, dtype=np.uint8)
    write_block(out, header, values, borders, 0, len(some))
    return out
