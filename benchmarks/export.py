"""Export of a topic to Parquet (zstd) against Spark's own way, `write.parquet` from our source: two cores each.

Ours by two threads, which is the default, by two processes and by Spark's executors; at our default level of zstd (1),
whose files are no larger than Spark's here, and at Spark's (3). Both read the same tier and write all columns; the rows
are compared once, column by column.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import psutil
import pyarrow.dataset as ds
from pyspark.sql import SparkSession

import pulsar_offload
from benchmarks.material import message_entries, write_ledger
from benchmarks.measure import Result, seconds_side_by_side
from benchmarks.spark import start
from offload_core.format.messages.compression import Compression
from offload_core.interfaces.engines.spark.executor import SparkExecutor
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.reading.export import ParquetOptions
from offload_core.storage.executors import Executor, ProcessExecutor, ThreadExecutor
from pulsar_offload import TierReader

PAYLOAD_BYTES = 1 << 30
BLOCK_BYTES = 16 << 20
TASK_BYTES = 64 << 20
TARGET = 1.8
SPARK_LEVEL = 3


def run(folder: Path) -> Iterator[Result]:
    """One result per executor."""
    place = folder / "export"
    shutil.rmtree(place, ignore_errors=True)
    entries = message_entries(1024, 100, Compression.LZ4)
    stored = PAYLOAD_BYTES * sum(map(len, entries)) // (len(entries) * 100 * 1024)
    tier = write_ledger(place / "tier", entries, stored, BLOCK_BYTES)
    spark = start()
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    spark.dataSource.register(PulsarOffloadDataSource)
    cases: tuple[tuple[str, Executor, int | None, float | None], ...] = (
        ("two threads, level 1 (the defaults)", ThreadExecutor(2), None, TARGET),
        ("two threads, level 3", ThreadExecutor(2), SPARK_LEVEL, None),
        ("two processes, level 1", ProcessExecutor(2), None, None),
        ("two processes, level 3", ProcessExecutor(2), SPARK_LEVEL, None),
        ("Spark's executors, level 3", SparkExecutor(spark), SPARK_LEVEL, None),
    )
    for name, executor, level, target in cases:
        our_cost: list[float] = []
        peer_cost: list[float] = []
        ours, peer, ratio = seconds_side_by_side(
            lambda executor=executor, level=level, cost=our_cost: metered(
                lambda: export(tier, place / "ours", executor, level), cost
            ),
            lambda cost=peer_cost: metered(
                lambda: write_by_spark(spark, place / "tier", place / "spark"), cost
            ),
            rounds=3,
        )
        rows = check_same(place / "ours", place / "spark")
        sizes = [
            sum(path.stat().st_size for path in (place / out).rglob("*.parquet")) for out in ("ours", "spark")
        ]
        yield Result(
            name=f"export of 1 KiB messages to Parquet, {name}",
            ours=f"{rows / ours / 1e3:.0f} k rows/s, {median(our_cost) / rows * 1e6:.1f} s/M, {sizes[0] >> 20} MiB",
            peer=f"write.parquet {rows / peer / 1e3:.0f} k rows/s, {median(peer_cost) / rows * 1e6:.1f} s/M, "
            f"{sizes[1] >> 20} MiB",
            ratio=ratio,
            limit=target,
        )
    spark.stop()
    shutil.rmtree(place)


def metered(work: Callable[[], None], cost: list[float]) -> None:
    """Do the work, and note the processor time that this process and all below it have spent meanwhile."""
    before = processor_seconds()
    work()
    cost.append(processor_seconds() - before)


def processor_seconds() -> float:
    """What this process and all below it have spent, those included that have ended."""
    here = psutil.Process()
    total = 0.0
    for process in (here, *here.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def export(tier: TierReader, out: Path, executor: Executor, level: int | None) -> None:
    """Our way."""
    shutil.rmtree(out, ignore_errors=True)
    parquet = ParquetOptions(compression_level=level)
    pulsar_offload.export(
        tier, out, executor=executor, file_bytes=TASK_BYTES, parquet=parquet, isolation="uncommitted"
    )


def write_by_spark(spark: SparkSession, tier: Path, out: Path) -> None:
    """Spark's way."""
    reader = spark.read.format("pulsar_offload").option("maxPartitionBytes", str(TASK_BYTES))
    frame = reader.option("isolation", "uncommitted").load(str(tier))
    frame.write.mode("overwrite").option("compression", "zstd").parquet(str(out))


def check_same(ours: Path, theirs: Path) -> int:
    """The number of rows, which are the same in all columns."""
    order = [(name, "ascending") for name in ("__ledgerId", "__entryId", "__batchIndex")]
    names = ds.dataset(theirs, format="parquet").schema.names
    rows = 0
    for name in names:
        columns = list(dict.fromkeys([*(name for name, _ in order), name]))
        a, b = (
            ds.dataset(out, format="parquet", partitioning=partitioning)
            .to_table(columns=columns)
            .sort_by(order)[name]
            for out, partitioning in ((ours, "hive"), (theirs, None))
        )
        if not a.equals(b.cast(a.type)):
            raise AssertionError(f"column {name} differs")
        rows = len(a)
    return rows
