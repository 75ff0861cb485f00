"""One big ledger by two workers against one: processes, threads of one process, and Spark's workers.

The ledger is planned as tasks of some blocks each, which the workers share. Of Spark, whose JVM takes a part of the
work, one core for all of it is held against two.
The machine's own limit is measured in turn with them: two processes that do nothing but compute, against one.

And how long a fresh process takes to the first batch of a Spark partition, its kernels compiled before by another.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from benchmarks.material import message_entries, write_ledger
from benchmarks.measure import Result, seconds_side_by_side
from benchmarks.spark import consume, start
from offload_core.format.messages.compression import Compression
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.reading.scan import ReadOptions, Scan, ScanTask, read_task
from offload_core.storage.tier import Tier
from pulsar_offload import scan

PAYLOAD_BYTES = 1 << 30
BLOCK_BYTES = 16 << 20
TASKS = 16
ROUNDS = 7
TARGET = 1.7
FIRST_BATCH_S = 2.0
COMPRESSIONS = (Compression.LZ4, Compression.ZSTD)
SPAWN = multiprocessing.get_context("spawn")

Seconds = Callable[[], float]


def run(folder: Path) -> Iterator[Result]:
    """Four results per compression."""
    spark = start()
    spark.dataSource.register(PulsarOffloadDataSource)
    place = folder / "workers"
    with ExitStack() as stack:
        processes = [stack.enter_context(ProcessPoolExecutor(n, mp_context=SPAWN)) for n in (1, 2)]
        threads = [stack.enter_context(ThreadPoolExecutor(n)) for n in (1, 2)]
        computing = [functools.partial(compute_by, pool) for pool in processes]
        for compression in COMPRESSIONS:
            shutil.rmtree(place, ignore_errors=True)
            entries = message_entries(1024, 100, compression)
            stored = PAYLOAD_BYTES * sum(map(len, entries)) // (len(entries) * 100 * 1024)
            tier = write_ledger(place, entries, stored, BLOCK_BYTES)
            scanned = scan(tier, isolation="uncommitted", min_partitions=TASKS)
            kinds: tuple[tuple[str, list[Seconds], float | None], ...] = (
                ("processes", [functools.partial(scan_by, pool, scanned) for pool in processes], TARGET),
                (
                    "threads of one process",
                    [functools.partial(scan_by, pool, scanned) for pool in threads],
                    None,
                ),
                (
                    "Spark, on one core and on two",
                    [functools.partial(query_by, spark, place, n) for n in (1, 2)],
                    TARGET,
                ),
            )
            for kind, reading, target in kinds:
                yield compared(f"{compression.name}, {kind}", scanned.tasks, [*reading, *computing], target)
            yield first_batch(place, compression)
    shutil.rmtree(place)
    spark.stop()


def compared(
    name: str, tasks: Sequence[ScanTask], measured: Sequence[Seconds], target: float | None
) -> Result:
    """Medians of rounds of: one worker, two workers; one process that computes, two of them."""
    for seconds in measured:
        seconds()  # not counted: workers start, and load their kernels
    rounds = [[seconds() for seconds in measured] for _ in range(ROUNDS)]
    one, two = (statistics.median(each[i] for each in rounds) for i in (0, 1))
    limit = statistics.median(each[2] / each[3] for each in rounds)
    sizes = [task.data_bytes >> 20 for task in tasks]
    return Result(
        name=f"1 KiB messages, {name}: {len(tasks)} tasks of {min(sizes)} to {max(sizes)} MiB",
        ours=f"two {PAYLOAD_BYTES / two / 1e9:.2f} GB/s, one {PAYLOAD_BYTES / one / 1e9:.2f} GB/s",
        peer=f"only computing: {limit:.2f} ×",
        ratio=statistics.median(each[0] / each[1] for each in rounds),
        limit=target,
    )


def first_batch(place: Path, compression: Compression) -> Result:
    """From the start of a process to a partition's first batch, and to where what it builds on is imported."""
    source = PulsarOffloadDataSource({"path": str(place), "isolation": "uncommitted"})
    reader = source.reader(source.schema())
    work = pickle.dumps((reader, reader.partitions()[0]))
    read = "import pickle, sys; reader, part = pickle.load(sys.stdin.buffer); next(reader.read(part))"
    build_on = "import numba, pyarrow, pyspark.sql.datasource"
    ours, peer, _ = seconds_side_by_side(
        lambda: subprocess.run([sys.executable, "-c", read], input=work, check=True),
        lambda: subprocess.run([sys.executable, "-c", build_on], check=True),
        rounds=ROUNDS,
    )
    return Result(
        name=f"first batch of a fresh process, kernels in the cache, {compression.name}: seconds",
        ours=f"{ours:.2f} s",
        peer=f"imports of numba, pyarrow, pyspark {peer:.2f} s",
        ratio=ours,
        limit=FIRST_BATCH_S,
        at_most=True,
    )


def scan_by(pool: Executor, scanned: Scan) -> float:
    """All tasks of the scan by a pool's workers."""
    began = time.perf_counter()
    for rows in pool.map(functools.partial(read_all, scanned.tier, scanned.options), scanned.tasks):
        assert rows
    return time.perf_counter() - began


def read_all(tier: Tier, options: ReadOptions, task: ScanTask) -> int:
    """The rows of a task, read where this is called; each batch is let go of."""
    return sum(batch.num_rows for batch in read_task(tier, task, options))


def query_by(spark: SparkSession, place: Path, cores: int) -> float:
    """The whole ledger by Spark's two workers, on one core or on two: its JVM works on them as well."""
    pin(range(cores))
    began = time.perf_counter()
    consume(spark, "pulsar_offload", path=str(place), isolation="uncommitted", minPartitions=2)
    return time.perf_counter() - began


def pin(cores: Sequence[int]) -> None:
    """Keep Spark's JVM and its workers, all their threads, to these cores."""
    for process in psutil.Process().children(recursive=True):
        if "java" in process.name() or "pyspark" in " ".join(process.cmdline()):
            for thread in process.threads():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, cores)


def compute_by(pool: Executor) -> float:
    """The same amount of work for a pool's processes, without memory to move."""
    began = time.perf_counter()
    list(pool.map(compute, range(TASKS)))
    return time.perf_counter() - began


def compute(_: int) -> int:
    """A checksum of a small buffer, over and over."""
    data, checksum = bytes(1 << 14), 0
    for _ in range(3000):
        checksum = zlib.crc32(data, checksum)
    return checksum
