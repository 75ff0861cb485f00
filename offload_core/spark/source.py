"""`spark.read.format("pulsar_offload")`: offloaded topics as DataFrames, read by the executors without a broker.

The driver plans (listing or records, and indexes); each partition is a scan task that its executor reads from the store
itself. Nothing but plain values crosses to the executors: each opens the tier anew, once per process.
Source: docs/spark.md.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from offload_core.api import TierReader, open_tier
from offload_core.scan import (
    Condition,
    ReadOptions,
    Report,
    ScanEstimate,
    ScanTask,
    Selection,
    read_task,
    restrict_times,
    select_topics,
    time_range,
)
from offload_core.schemas import Payloads
from offload_core.spark.filters import PushFilters
from offload_core.spark.options import SourceOptions, parse_options
from offload_core.spark.types import spark_batch, spark_schema
from offload_core.spark.versions import check_versions, installed_versions
from offload_core.tier import Tier
from offload_hooks.errors import OptionError
from offload_hooks.schemas import SchemaHistory

_KEEPS_LOGS = "PYSPARK_SPARK_SESSION_UUID"
"""Set by Spark for workers whose log records it keeps (`spark.sql.pyspark.worker.logging.enabled`)."""


class PulsarOffloadDataSource(DataSource):
    """The data source `pulsar_offload`; its options are in docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "pulsar_offload"

    def schema(self) -> StructType:
        """The schema of a query that gives none: the default columns of its level, or those of `columns`."""
        options = parse_options(self.options)
        return spark_schema(_read_options(options, options.columns, lambda: open_source(options)).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch query."""
        return self.batch_reader(schema)

    def batch_reader(self, schema: StructType, report: Report | None = None) -> OffloadReader:
        """The same; its tasks report what they did."""
        return OffloadReader(parse_options(self.options), schema, report)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader of a streaming query."""
        return self.stream_reader(schema)

    def stream_reader(self, schema: StructType, report: Report | None = None) -> DataSourceStreamReader:
        """The same; its tasks report what they did."""
        from offload_core.spark.stream import OffloadStreamReader

        return OffloadStreamReader(parse_options(self.options), schema, report)


class OffloadPartition(InputPartition):
    """One scan task. `histories` are the schemas of topics that the reader did not know when it was made."""

    def __init__(self, task: ScanTask, histories: Mapping[str, SchemaHistory] | None = None) -> None:
        super().__init__(task)
        self.task = task
        self.histories = dict(histories or {})


class OffloadReader(DataSourceReader):
    """Plans a query's tasks on the driver, and reads one on an executor."""

    def __init__(self, options: SourceOptions, schema: StructType, report: Report | None = None) -> None:
        self._options = options
        self._report = report
        self._read_options = _read_options(options, tuple(schema.fieldNames()), lambda: self._tier)
        expected = spark_schema(self._read_options.schema)
        for wanted, field in zip(schema, expected, strict=True):
            if wanted.dataType != field.dataType:
                raise OptionError(
                    f"column {wanted.name!r} has another type than the schema asks for",
                    expected=field.dataType.simpleString(),
                    found=wanted.dataType.simpleString(),
                )
        with self._tier as tier:
            self._store = pickle.dumps(tier.store)
            self._versions = installed_versions(tier.store.spec.driver if tier.store.spec else None)
        self.conditions: tuple[Condition, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: value for name, value in self.__dict__.items() if name != "_tier"}
        return _restored, (self._versions, pickle.dumps(state))

    @functools.cached_property
    def _tier(self) -> TierReader:
        """The tier, for planning; after it was closed it can be used on."""
        return open_source(self._options)

    @property
    def joins_chunks(self) -> bool:
        """Whether messages are put together from chunks."""
        return self._read_options.joins_chunks

    @property
    def payloads(self) -> Payloads | None:
        """How payloads become columns; None if they do not."""
        return self._read_options.payloads

    @property
    def needs_outcomes(self) -> bool:
        """Whether what is read depends on what became of transactions."""
        return self._read_options.needs_outcomes

    @property
    def pushFilters(self) -> PushFilters:  # noqa: N802 - PySpark's name
        """What Spark hands filters down to, where it is told to."""
        return PushFilters(self)

    def partitions(self) -> list[InputPartition]:
        """The scan's tasks; Spark takes nothing but a list."""
        with self._tier as tier:
            # Of no partition at all Spark makes one of its own, which nobody can read.
            tasks = tier.scan(**self._scan_arguments()).tasks or (ScanTask(runs=()),)
            return [OffloadPartition(task) for task in tasks]

    def explain(self) -> ScanEstimate:
        """What the query takes if all of it is read: requests, bytes and partitions (docs/cost.md)."""
        with self._tier as tier:
            return tier.explain_scan(**self._scan_arguments())

    def _scan_arguments(self) -> dict[str, Any]:
        options, read = self._options, self._read_options
        return {
            "topic": options.topics,
            "topics_pattern": options.topics_pattern,
            "ledger": options.ledger,
            "cluster": options.cluster,
            "level": options.level,
            "columns": read.columns,
            "start": options.starting_offsets,
            "stop": options.ending_offsets,
            "start_time": options.starting_time,
            "stop_time": options.ending_time,
            "time_slack_ms": options.time_slack,
            "conditions": self.conditions,
            "min_partitions": options.min_partitions,
            "task_bytes": options.max_partition_bytes,
            "fail_on_data_loss": options.fail_on_data_loss,
            "verify_checksums": options.verify_checksums,
            "max_message_bytes": options.max_message_bytes,
            "isolation": options.isolation,
            "summaries": options.summaries,
            "mode": read.mode,
            "key_provider": read.key_provider,
            "crypto_failure_action": read.crypto_failure_action,
            "chunks": read.chunks,
            "chunk_look_back_bytes": read.chunk_look_back_bytes,
            "max_pending_chunk_bytes": read.max_pending_chunk_bytes,
            "prefix": options.prefix,
            "records": options.records,
            "records_options": options.records_options,
            "schemas": self._read_options.payloads,
        }

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task, read where this is called."""
        if not isinstance(partition, OffloadPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        if _KEEPS_LOGS in os.environ:
            logging.getLogger("offload_core").setLevel(logging.INFO)
        store = _store_of_process(os.getpid(), self._store)
        options = self._options
        # Made where rows are read: Spark copies the reader before it asks for partitions.
        times = time_range(options.starting_time, options.ending_time, options.time_slack)
        read = replace(self._read_options, times=restrict_times(times, self.conditions, options.time_slack))
        if read.payloads is not None and partition.histories:
            read = replace(read, payloads=read.payloads.with_topics(partition.histories))
        return map(spark_batch, read_task(store, partition.task, read, self._report))


def _restored(versions: dict[str, str], state: bytes) -> OffloadReader:
    """The reader, where the driver's versions are such that it can be unpickled and read."""
    check_versions(versions)
    reader = OffloadReader.__new__(OffloadReader)
    reader.__dict__.update(pickle.loads(state))  # noqa: S301 - written by the driver of the same application
    return reader


def _read_options(
    options: SourceOptions, columns: tuple[str, ...] | None, opened: Callable[[], TierReader]
) -> ReadOptions:
    """How the messages are read; the topics' schemas are asked for here, in the tier if they are kept there."""
    read = ReadOptions(
        level=options.level,
        columns=columns,
        verify_checksums=options.verify_checksums,
        max_message_bytes=options.max_message_bytes,
        fail_on_data_loss=options.fail_on_data_loss,
        isolation=options.isolation,
        mode=options.mode,
        key_provider=options.key_provider,
        crypto_failure_action=options.crypto_failure_action,
        chunks=options.chunks,
        chunk_look_back_bytes=options.chunk_look_back_bytes,
        max_pending_chunk_bytes=options.max_pending_chunk_bytes,
    )
    if options.schemas is not None:
        with opened() as tier:
            payloads = tier.payloads(
                options.schemas,
                _topics(options, tier),
                reader_schema=options.reader_schema,
                mode=options.mode,
                corrupt_column=options.corrupt_column,
            )
        read = replace(read, payloads=payloads)
    read.check()
    return read


def _topics(options: SourceOptions, tier: TierReader) -> list[str]:
    """The topics whose schemas are asked for: those that are named, or all that the other options choose."""
    if options.topics:
        return list(options.topics)
    selection = Selection(
        topics_pattern=options.topics_pattern, ledger_id=options.ledger, cluster=options.cluster
    )
    catalogue = tier.look(
        selection,
        prefix=options.prefix,
        records=options.records,
        records_options=options.records_options,
        read_indexes=False,
    )
    topics = select_topics(catalogue, selection)
    return [str(topic.name) for topic in topics if topic.name is not None]


def open_source(options: SourceOptions) -> TierReader:
    """The tier that a query's options name."""
    if options.path is None:
        tier = open_tier(options.driver or "", layers=options.layers, **options.storage)
    else:
        tier = open_tier(options.path, driver=options.driver, layers=options.layers, **options.storage)
    return tier.also(*options.tiers)


@functools.lru_cache(maxsize=8)
def _store_of_process(process_id: int, store: bytes) -> Tier:
    """The tier of this process: made after the fork, kept for the tasks that follow."""
    del process_id
    tier: Tier = pickle.loads(store)  # noqa: S301 - written by the driver of the same application
    return tier
