"""Entries read and blocks written, against Pulsar's own classes in a warm JVM, all in memory.

Reading: the same object, by Pulsar's read handle in batches of 100 with its usual cache of offsets, and by our scan at
level `entries`. Writing: the same entries into blocks; Pulsar's input stream is drained into a buffer of 64 KiB that
stays in the processor's cache, while ours fills a whole block, which is what goes to a store.

Both processes are kept on one core, and take turns.

Upload: a ledger of 1 GiB to an S3 service on this machine, which shares all cores with either. Ours has several parts
on their way at once; Pulsar's offloader sends one after another.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import numpy as np
from oracle import MANAGED_LEDGER, Oracle
from servers.versitygw import Versitygw
from tiers import MemoryDriver

from benchmarks.material import LEDGER_ID, random_entries, write_ledger
from benchmarks.measure import Result, one_core
from benchmarks.stores import in_memory_where_it_can_be
from offload_core.format.codec.block_layout import BlockHeader
from offload_core.format.codec.blocks import write_block
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.codec.pip17 import plan_blocks
from offload_core.reading.scan import Scan
from offload_core.storage.tier import MemoryBudget, Tier, open_store, upload_blocks
from pulsar_offload import TierReader, scan

BLOCK_BYTES = 64 << 20
LEDGER_BYTES = BLOCK_BYTES
UPLOAD_BYTES = 1 << 30
UPLOAD_ENTRY_BYTES = 1024
PARTS = 4
READ_TARGETS = {100: 40.0, 1024: 5.0, 65536: 3.0}
WRITE_TARGETS = {100: 5.0, 1024: 1.0, 65536: 0.3}
UPLOAD_TARGET = 3.0


def run(folder: Path) -> Iterator[Result]:
    """Reading, then writing, by size of entries; the upload."""
    place = in_memory_where_it_can_be(folder)
    try:
        with one_core(), Oracle(place) as oracle:  # the JVM stays on that core as well
            for size, target in READ_TARGETS.items():
                yield reading(oracle, place / f"tier-{size}", size, target)
            for size, target in WRITE_TARGETS.items():
                yield writing(oracle, size, target)
        for signing in ("always", "never"):
            yield uploading(place, signing)
    finally:
        shutil.rmtree(place)


def reading(oracle: Oracle, folder: Path, size: int, target: float) -> Result:
    """A ledger of about 64 MiB, in one block."""
    about = {"s3managedledgeroffloaderformatversion": "1", "managedledgername": MANAGED_LEDGER}
    with write_ledger(folder, random_entries(size), LEDGER_BYTES, BLOCK_BYTES) as tier:
        stored = {listed.key: listed.size_bytes for listed in tier.store.list_objects()}
        objects = {key: bytes(tier.store.read_range(key, 0, length)) for key, length in stored.items()}
    views = {key: memoryview(data) for key, data in objects.items()}  # whose ranges are not copies
    memory = Tier(MemoryDriver(views, metadata=about, make=memoryview, range_bytes=BLOCK_BYTES))
    planned = scan(TierReader(memory), ledger=LEDGER_ID, level="entries")
    count = sum(batch.num_rows for batch in planned)
    name = f"entries of {size:,} B read, all columns"
    return reading_against_java(
        name, oracle, {"tier": {"folder": str(folder)}}, planned, count, count * size, target
    )


def reading_against_java(
    name: str,
    oracle: Oracle,
    place: dict[str, object],
    planned: Scan,
    count: int,
    payload_bytes: int,
    target: float,
) -> Result:
    """Our scan of a ledger against Pulsar's read handle; `place` is where the JVM finds it."""
    request = {
        **place,
        "uuid": str(UUID(int=LEDGER_ID)),
        "ledger": LEDGER_ID,
        "managed_ledger": MANAGED_LEDGER,
    }

    def ours() -> None:
        if sum(batch.num_rows for batch in planned) != count:
            raise AssertionError("entries are missing")

    return against_java(
        name, ours, lambda: oracle.ask("time_reader", **request), count, payload_bytes, target
    )


def writing(oracle: Oracle, size: int, target: float) -> Result:
    """The same entries into blocks of 64 MiB, without a store."""
    count = LEDGER_BYTES // size
    ledger = Ledger.of(size, count)
    out = np.zeros(BLOCK_BYTES, dtype=np.uint8)
    request = {
        "entries": str(ledger.saved(oracle)),
        "count": count,
        "ledger": LEDGER_ID,
        "block_bytes": BLOCK_BYTES,
    }

    def ours() -> None:
        for _ in ledger.blocks(lambda length: out[:length]):
            pass

    return against_java(
        f"entries of {size:,} B written to blocks",
        ours,
        lambda: oracle.ask("time_writer", **request),
        count,
        count * size,
        target,
    )


def uploading(place: Path, payload_signing: str) -> Result:
    """A ledger of entries of 1 KiB, written and uploaded; the service keeps its data in memory where it can.

    Pulsar's offloader signs what it writes. That is most of the arithmetic, on either side; ours can leave it out.
    """
    count = UPLOAD_BYTES // UPLOAD_ENTRY_BYTES
    ledger = Ledger.of(UPLOAD_ENTRY_BYTES, count)
    numbers = itertools.count()
    folder = place / f"signed-{payload_signing}"
    with Versitygw().start(folder) as server, Oracle(place) as oracle:
        server.make_bucket("bench")
        request = {
            "tier": tier_for_java(server),
            "entries": str(ledger.saved(oracle)),
            "count": count,
            "ledger": LEDGER_ID,
            "managed_ledger": MANAGED_LEDGER,
        }
        tier = open_tier_at(server, payload_signing)

        def ours() -> None:
            upload_blocks(
                tier,
                "object",
                ledger.blocks(lambda length: np.empty(length, dtype=np.uint8)),
                block_bytes=BLOCK_BYTES,
                budget=MemoryBudget(PARTS * BLOCK_BYTES),
                parts_in_flight=PARTS,
            )

        with tier:
            return against_java(
                f"1 GiB of entries of {UPLOAD_ENTRY_BYTES:,} B to S3, {PARTS} parts at once, signed: {payload_signing}",
                ours,
                lambda: oracle.ask("offload", uuid=str(UUID(int=next(numbers))), **request),
                count,
                UPLOAD_BYTES,
                UPLOAD_TARGET,
                warm_rounds=1,
                rounds=3,
            )


def tier_for_java(server: Versitygw) -> dict[str, str]:
    """The service's bucket, as the JVM is told of it."""
    return {
        "endpoint": server.endpoint,
        "bucket": "bench",
        "region": server.region,
        "access_key": server.root.access_key,
        "secret_key": server.root.secret_key,
    }


def open_tier_at(server: Versitygw, payload_signing: str) -> Tier:
    """A tier of ours in that bucket."""
    return open_store(
        "s3://bench/ours",
        endpoint_url=server.endpoint,
        region=server.region,
        access_key_id=server.root.access_key,
        secret_access_key=server.root.secret_key,
        payload_signing=payload_signing,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A ledger in memory: payloads (uint8) behind one another, their borders (int64, one more) and lengths (int64)."""

    distinct: list[bytes]
    values: np.ndarray
    borders: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, size: int, count: int) -> Ledger:
        """Entries of `size` random bytes, some of which are repeated."""
        distinct = random_entries(size)
        repeated = (b"".join(distinct) * (count // len(distinct) + 1))[: count * size]
        return cls(
            distinct=distinct,
            values=np.frombuffer(repeated, dtype=np.uint8),
            borders=np.arange(count + 1, dtype=np.int64) * size,
            lengths=np.full(count, size, dtype=np.int64),
        )

    def saved(self, oracle: Oracle) -> Path:
        """The entries that are repeated, for the JVM."""
        return oracle.save((LEDGER_ID, i, payload) for i, payload in enumerate(self.distinct))

    def blocks(self, made: Callable[[int], np.ndarray]) -> Iterator[np.ndarray]:
        """The blocks of a PIP-17 object, each written into what `made` gives for its length."""
        for plan in plan_blocks(self.lengths, BLOCK_BYTES):
            header = BlockHeader(
                object_format=ObjectFormat.PIP17,
                block_length=plan.block_length,
                first_entry_id=plan.first,
                ledger_id=None,
            )
            out = made(plan.block_length)
            write_block(out, header, self.values, self.borders, plan.first, plan.last)
            yield out


def against_java(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], dict[str, float]],
    count: int,
    payload_bytes: int,
    target: float,
    *,
    warm_rounds: int = 4,
    rounds: int = 7,
) -> Result:
    """Ours and the JVM's in turn, when both are warm. The JVM measures itself, so the pipe to it costs it nothing.

    Ours is done as often in a row as makes the two take about as long, so that both get their share of a busy machine.
    """
    for _ in range(warm_rounds):
        ours_once = seconds_of(ours, 1)
        theirs_once = theirs()["seconds"]
    times = max(1, round(theirs_once / ours_once))
    pairs = [(seconds_of(ours, times), theirs()["seconds"]) for _ in range(rounds)]

    def rate(seconds: float) -> str:
        return f"{payload_bytes / seconds / 1e9:.2f} GB/s, {count / seconds / 1e6:.2f} M/s"

    return Result(
        name=name,
        ours=rate(statistics.median(mine for mine, _ in pairs)),
        peer=f"Java {rate(statistics.median(other for _, other in pairs))}",
        ratio=statistics.median(other / mine for mine, other in pairs),
        limit=target,
    )


def seconds_of(call: Callable[[], object], times: int) -> float:
    """Mean seconds of one call, of so many in a row."""
    began = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times
