"""A batch query: planned on the driver, read by the executors.

The driver plans (listing or records, and indexes); each partition is a scan task that its executor reads from the store
itself. Nothing but plain values crosses to the executors: each opens the tier anew, once per process.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from offload_core.api import TierReader
from offload_core.scan import Condition, Report, ScanEstimate, ScanTask, read_task, restrict_times, time_range
from offload_core.schemas import Payloads
from offload_core.spark.filters import PushFilters
from offload_core.spark.opening import open_source, read_options
from offload_core.spark.options import SourceOptions
from offload_core.spark.types import spark_batch, spark_schema
from offload_core.spark.versions import check_versions, installed_versions
from offload_core.tier import Tier
from offload_hooks.errors import OptionError
from offload_hooks.schemas import SchemaHistory

_KEEPS_LOGS = "PYSPARK_SPARK_SESSION_UUID"
"""Set by Spark for workers whose log records it keeps (`spark.sql.pyspark.worker.logging.enabled`)."""


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
        self._read_options = read_options(options, tuple(schema.fieldNames()), lambda: self._tier)
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
        return PushFilters(self._push)

    def _push(self, conditions: tuple[Condition, ...]) -> None:
        self.conditions = conditions

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


@functools.lru_cache(maxsize=8)
def _store_of_process(process_id: int, store: bytes) -> Tier:
    """The tier of this process: made after the fork, kept for the tasks that follow."""
    del process_id
    tier: Tier = pickle.loads(store)  # noqa: S301 - written by the driver of the same application
    return tier
