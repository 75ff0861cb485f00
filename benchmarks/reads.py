"""Cold reads of single entries from a real S3 service on this machine: ranges that they ask for, and their time.

A ledger of 256 MiB in entries of 1 KiB, blocks of 64 MiB, windows of 1 MiB. The peer of the times is one request for a
range of 1 MiB by the same driver, which any such read takes at least. `as Pulsar writes` is the same object with its
index as Pulsar would have written it, without our entry directory. A first read is that of a new reader with an empty
memory, without its opening (three requests).
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from servers.versitygw import Versitygw

from benchmarks.measure import Result, seconds_side_by_side
from benchmarks.stores import in_memory_where_it_can_be, opened
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import OffloadContext
from offload_core.reading.read_handles import ColdReader, ColdReaders, ReadMemory
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Tier
from offload_core.writing.offload import LedgerOffloader
from offload_hooks.counts import StoreCounts, counting

MIB = 1 << 20
ENTRY_BYTES = 1024
ENTRIES = 256 * 1000
BATCH = [random.Random(i).randbytes(ENTRY_BYTES) for i in range(1000)]
READS = 400
FIRST_READS = 60
ROUNDS = 5
WITH_DIRECTORY, AS_PULSAR = UUID(int=1), UUID(int=2)


def run(folder: Path) -> Iterator[Result]:
    """Ranges and times of random reads, of both kinds of object; reading on and on."""
    place = in_memory_where_it_can_be(folder)
    try:
        with Versitygw().start(place / "server") as server:
            server.make_bucket("bench")
            with opened(server) as tier:
                ledger_id = offload(tier, place)
                for name, attempt, limit in (
                    ("with a directory", WITH_DIRECTORY, 2.0),
                    ("as Pulsar writes", AS_PULSAR, None),
                ):
                    yield from random_reads(tier, ledger_id, name, attempt, limit)
                yield sequential(tier, ledger_id)
    finally:
        shutil.rmtree(place)


def offload(tier: Tier, place: Path) -> int:
    """The ledger, offloaded twice; of the second copy the directory is taken away."""
    hot = FileLedgerStore(place / "hot", sync="never")
    writer = hot.create({})
    for _ in range(ENTRIES // len(BATCH)):
        writer.append_batch(BATCH)
    writer.close()
    for attempt in (WITH_DIRECTORY, AS_PULSAR):
        done = LedgerOffloader(tier).offload(hot.open(writer.ledger_id), attempt, {})
    hot.close()
    stat = tier.stat(done.index_key)
    index = bytearray(tier.read_range(done.index_key, 0, stat.size_bytes))
    blocks_end = 32 + int.from_bytes(index[28:32], "big") + 20 * int.from_bytes(index[24:28], "big")
    index[4:8] = blocks_end.to_bytes(4, "big")
    tier.write_index(done.index_key, bytes(index[:blocks_end]), user_metadata=stat.user_metadata)
    return writer.ledger_id


def reader_of(tier: Tier, ledger_id: int, attempt: UUID) -> ColdReader:
    """A new reader with a memory of its own."""
    readers = ColdReaders(KnownTiers(tier), memory=ReadMemory(64 * MIB))
    return readers.read_offloaded(ledger_id, OffloadContext(uuid=attempt, complete=True), None)


def one_read(reader: ColdReader, entry_id: int) -> tuple[int, float]:
    """How many ranges it took, and how many seconds."""
    counts, began = StoreCounts(), time.perf_counter()
    batch = counting(counts).run(reader.read, entry_id, entry_id)
    seconds = time.perf_counter() - began
    assert batch[0] == BATCH[entry_id % len(BATCH)]
    return counts.ranges, seconds


def random_reads(
    tier: Tier, ledger_id: int, name: str, attempt: UUID, limit: float | None
) -> Iterator[Result]:
    """Entries at random, by one reader; and the first read of new readers."""
    rng = random.Random(2)
    entry_ids = [rng.randrange(ENTRIES) for _ in range(READS)]
    reader = reader_of(tier, ledger_id, attempt)
    one_read(reader, 0)
    many = [one_read(reader, entry_id) for entry_id in entry_ids]
    first = [one_read(reader_of(tier, ledger_id, attempt), each) for each in entry_ids[:FIRST_READS]]
    peer = statistics.median(one_range(tier, ledger_id, rng) for _ in range(READS))
    for what, reads in ((f"{READS} random reads", many), ("first read", first)):
        ranges, seconds = ([each[i] for each in reads] for i in range(2))
        yield Result(
            name=f"{what}, {name}: ranges, p50",
            ours=f"{statistics.median(ranges):g}, mean {statistics.mean(ranges):.2f}, most {max(ranges)}",
            peer="",
            ratio=statistics.median(ranges),
            limit=limit,
            at_most=True,
        )
        typical = statistics.median(seconds)
        yield Result(
            name=f"{what}, {name}: time, p50",
            ours=f"{typical * 1e3:.1f} ms",
            peer=f"one range {peer * 1e3:.1f} ms",
            ratio=peer / typical,
        )


def one_range(tier: Tier, ledger_id: int, rng: random.Random) -> float:
    """Seconds of the peer."""
    began = time.perf_counter()
    tier.read_range(f"{WITH_DIRECTORY}-ledger-{ledger_id}", rng.randrange(250) * MIB, MIB)
    return time.perf_counter() - began


def sequential(tier: Tier, ledger_id: int) -> Result:
    """All entries in batches of 1 MiB, the next window fetched meanwhile; the peer fetches the same windows in turn."""
    key = f"{WITH_DIRECTORY}-ledger-{ledger_id}"
    length = tier.stat(key).size_bytes

    def ours() -> None:
        reader, begin = reader_of(tier, ledger_id, WITH_DIRECTORY), 0
        while begin < ENTRIES:
            begin = reader.read(begin, ENTRIES - 1).stop_entry_id

    def peer() -> None:
        for offset in range(0, length, MIB):
            tier.read_range(key, offset, min(MIB, length - offset))

    mine, theirs, ratio = seconds_side_by_side(ours, peer, rounds=ROUNDS)
    return Result(
        name="one entry after the other",
        ours=f"{length / 1e6 / mine:.0f} MB/s",
        peer=f"its ranges alone {length / 1e6 / theirs:.0f} MB/s",
        ratio=ratio,
    )
