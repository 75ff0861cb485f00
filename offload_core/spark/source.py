"""`spark.read.format("pulsar_offload")`: offloaded topics as DataFrames, read by the executors without a broker.

The driver plans (listing or records, and indexes); each partition is a scan task that its executor reads from the store
itself. Nothing but plain values crosses to the executors: each opens the tier anew, once per process.
Source: docs/spark.md.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from offload_core.api import TierReader, open_tier
from offload_core.messages.schema import arrow_schema
from offload_core.scan import ReadOptions, ScanTask, read_task
from offload_core.spark.options import SourceOptions, parse_options
from offload_core.spark.types import spark_schema
from offload_core.tier import Tier
from offload_hooks.errors import OptionError


class PulsarOffloadDataSource(DataSource):
    """The data source `pulsar_offload`; its options are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "pulsar_offload"

    def schema(self) -> StructType:
        """The schema of a query that gives none: the default columns of its level, or those of `columns`."""
        options = parse_options(self.options)
        return spark_schema(arrow_schema(options.level, options.columns))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        return OffloadReader(parse_options(self.options), schema)


class OffloadPartition(InputPartition):
    """One scan task."""

    def __init__(self, task: ScanTask) -> None:
        super().__init__(task)
        self.task = task


class OffloadReader(DataSourceReader):
    """Plans a query's tasks on the driver, and reads one on an executor."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        columns = tuple(schema.fieldNames())
        expected = spark_schema(arrow_schema(options.level, columns))
        for wanted, field in zip(schema, expected, strict=True):
            if wanted.dataType != field.dataType:
                raise OptionError(
                    f"column {wanted.name!r} has another type than the schema asks for",
                    expected=field.dataType.simpleString(),
                    found=wanted.dataType.simpleString(),
                )
        self._options = options
        self._read_options = ReadOptions(
            level=options.level,
            columns=columns,
            verify_checksums=options.verify_checksums,
            max_message_bytes=options.max_message_bytes,
            fail_on_data_loss=options.fail_on_data_loss,
            mode=options.mode,
            key_provider=options.key_provider,
            crypto_failure_action=options.crypto_failure_action,
            chunks=options.chunks,
            chunk_look_back_bytes=options.chunk_look_back_bytes,
            max_pending_chunk_bytes=options.max_pending_chunk_bytes,
        )
        self._read_options.check()
        with _open(options) as tier:
            self._store = pickle.dumps(tier.store)

    def partitions(self) -> list[InputPartition]:
        """The scan's tasks; Spark takes nothing but a list."""
        options, read = self._options, self._read_options
        with _open(options) as tier:
            scan = tier.scan(
                topic=options.topics,
                topics_pattern=options.topics_pattern,
                ledger=options.ledger,
                cluster=options.cluster,
                level=options.level,
                columns=read.columns,
                start=options.starting_offsets,
                stop=options.ending_offsets,
                min_partitions=options.min_partitions,
                task_bytes=options.max_partition_bytes,
                fail_on_data_loss=options.fail_on_data_loss,
                verify_checksums=options.verify_checksums,
                max_message_bytes=options.max_message_bytes,
                mode=read.mode,
                key_provider=read.key_provider,
                crypto_failure_action=read.crypto_failure_action,
                chunks=read.chunks,
                chunk_look_back_bytes=read.chunk_look_back_bytes,
                max_pending_chunk_bytes=read.max_pending_chunk_bytes,
                prefix=options.prefix,
                records=options.records,
            )
            # Of no partition at all Spark makes one of its own, which nobody can read.
            return [OffloadPartition(task) for task in scan.tasks or (ScanTask(runs=()),)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task, read where this is called."""
        if not isinstance(partition, OffloadPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        store = _store_of_process(os.getpid(), self._store)
        return read_task(store, partition.task, self._read_options)


def _open(options: SourceOptions) -> TierReader:
    if options.path is None:
        return open_tier(options.driver or "", layers=options.layers, **options.storage)
    return open_tier(options.path, driver=options.driver, layers=options.layers, **options.storage)


@functools.lru_cache(maxsize=8)
def _store_of_process(process_id: int, store: bytes) -> Tier:
    """The tier of this process: made after the fork, kept for the tasks that follow."""
    del process_id
    tier: Tier = pickle.loads(store)  # noqa: S301 - written by the driver of the same application
    return tier
