"""The Spark source on `local[2]` against a source that yields prebuilt Arrow batches of the same schema and size.

Both hand over the same number of rows, in as many partitions; the query consumes every column and writes nothing. With
the default isolation; the same is measured against `uncommitted`, which looks for no transactions.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from benchmarks.material import message_entries, write_ledger
from benchmarks.measure import Result, seconds_side_by_side
from offload_core.format.messages.compression import Compression
from offload_core.format.messages.message_columns import arrow_schema
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.interfaces.engines.spark.spark_types import spark_schema
from pulsar_offload import TierReader, scan

PAYLOAD_BYTES = 1 << 30
BLOCK_BYTES = 64 << 20
PARTITIONS = 8
CASES = ((Compression.NONE, 0.8), (Compression.LZ4, 0.7))


class PrebuiltSource(DataSource):
    """Yields the batches of an Arrow file, made once, over and over until it has given its share of rows."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "prebuilt"

    def schema(self) -> StructType:
        """The same as ours."""
        return spark_schema(arrow_schema("messages"))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """See `PrebuiltReader`."""
        return PrebuiltReader(self.options)


class PrebuiltReader(DataSourceReader):
    """Options `path` (an Arrow stream file), `rows`, `partitions`."""

    def __init__(self, options: dict[str, str]) -> None:
        self._path = options["path"]
        self._rows = int(options["rows"])
        self._partitions = int(options["partitions"])

    def partitions(self) -> list[InputPartition]:
        """As many as asked for."""
        return [InputPartition(i) for i in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """This partition's share of rows."""
        with pa.memory_map(self._path) as file:
            batches = list(pa.ipc.open_stream(file.read_buffer()))
        share = self._rows // self._partitions + (partition.value < self._rows % self._partitions)
        while share:
            for batch in batches:
                batch = batch.slice(0, share)
                share -= batch.num_rows
                yield batch
                if not share:
                    return


def run(folder: Path) -> Iterator[Result]:
    """One result per compression."""
    spark = start()
    spark.dataSource.register(PulsarOffloadDataSource)
    spark.dataSource.register(PrebuiltSource)
    for compression, target in CASES:
        place = folder / "spark"
        shutil.rmtree(place, ignore_errors=True)
        entries = message_entries(1024, 100, compression)
        stored = PAYLOAD_BYTES * sum(map(len, entries)) // (len(entries) * 100 * 1024)
        tier = write_ledger(place / "tier", entries, stored, min(BLOCK_BYTES, stored // PARTITIONS + 65536))
        rows, tasks = prebuild(tier, place / "batches.arrow")

        def read(isolation: str, path: Path = place / "tier") -> None:
            consume(spark, "pulsar_offload", path=path, minPartitions=PARTITIONS, isolation=isolation)

        ours, peer, ratio = seconds_side_by_side(
            lambda read=read: read("committed"),
            lambda place=place, rows=rows, tasks=tasks: consume(
                spark, "prebuilt", path=str(place / "batches.arrow"), rows=rows, partitions=tasks
            ),
            rounds=7,
        )
        yield Result(
            name=f"Spark local[2], 1 KiB messages, 100 per batch, {compression.name}, {tasks} partitions",
            ours=f"{rows / ours / 1e3:.0f} k rows/s",
            peer=f"prebuilt batches {rows / peer / 1e3:.0f} k rows/s",
            ratio=ratio,
            limit=target,
        )
        ours, peer, ratio = seconds_side_by_side(
            lambda read=read: read("committed"), lambda read=read: read("uncommitted"), rounds=7
        )
        yield Result(
            name=f"the same, {compression.name}, `committed` against `uncommitted`",
            ours=f"{rows / ours / 1e3:.0f} k rows/s",
            peer=f"{rows / peer / 1e3:.0f} k rows/s",
            ratio=ratio,
            limit=1 / 1.05,
        )
        shutil.rmtree(place)
    spark.stop()


def start() -> SparkSession:
    """A quiet session on loopback."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def prebuild(tier: TierReader, path: Path) -> tuple[int, int]:
    """Write the first batches of a scan (about 16 MiB) to a file; the scan's rows and tasks."""
    planned = scan(tier, min_partitions=PARTITIONS, isolation="uncommitted")
    rows, kept = 0, []
    for batch in planned:
        rows += batch.num_rows
        if len(kept) < 16:
            kept.append(batch)
    with pa.ipc.new_stream(path, planned.schema) as file:
        for batch in kept:
            file.write_batch(batch)
    return rows, len(planned.tasks)


def consume(spark: SparkSession, source: str, **options: object) -> None:
    """Read all rows and columns."""
    reader = spark.read.format(source)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    reader.load().write.format("noop").mode("overwrite").save()
