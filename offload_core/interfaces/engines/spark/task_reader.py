"""Plan a query's tasks on the driver, and read one of them on an executor: what all ways to read from Spark share.

The driver plans (listing or records, and indexes). Each task is read by its executor from the store itself. Only plain
values cross to the executors: each opens the tier anew, once per process.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from offload_core.interfaces.engines.spark.source_options import SourceOptions, open_source, read_options
from offload_core.interfaces.engines.spark.spark_types import spark_batch
from offload_core.interfaces.engines.spark.versions import check_versions, installed_versions
from offload_core.metadata.catalogue import TierReader
from offload_core.reading.scan import Condition, Report, Scan, ScanEstimate, ScanTask, explain_scan, scan
from offload_core.reading.scan.scanning import read_options as options_of
from offload_core.reading.scan.scanning import read_store
from offload_core.reading.scan.worker_tier import WorkerTier
from offload_hooks.schemas import SchemaHistory

_Plan = TypeVar("_Plan", Scan, ScanEstimate)

_KEEPS_LOGS = "PYSPARK_SPARK_SESSION_UUID"
"""Set by Spark for workers whose log records it keeps (`spark.sql.pyspark.worker.logging.enabled`)."""


class TaskReader:
    """Plans the tasks of a query, and reads one; picklable.

    Args:
        columns: the columns to make; None for those of the options.
        report: called with the metrics of each task, where it is read.

    Attributes:
        read_options: how messages are read.
        conditions: what is left out by Spark's filters.
    """

    def __init__(
        self, options: SourceOptions, columns: Sequence[str] | None, report: Report | None = None
    ) -> None:
        self._options = options
        self._report = report
        wanted = options.scan.columns if columns is None else columns
        self.read_options = read_options(options, wanted, lambda: self._tier)
        with self._tier as tier:
            self._worker_tier = WorkerTier.of(read_store(tier, options.scan))
            self._versions = installed_versions(tier.store.spec.driver if tier.store.spec else None)
        self.conditions: tuple[Condition, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: value for name, value in self.__dict__.items() if name != "_tier"}
        return _restored, (self._versions, pickle.dumps(state))

    @functools.cached_property
    def _tier(self) -> TierReader:
        """The tier, for planning; after it was closed it can be used on."""
        return open_source(self._options)

    def tasks(self) -> Sequence[ScanTask]:
        """The tasks of the query.

        Raises:
            As `scan`.
        """
        with self._tier as tier:
            return self._planned(tier, scan).tasks

    def explain(self) -> ScanEstimate:
        """Estimate the cost of the query if all of it is read: requests, bytes and partitions (docs/cost.md)."""
        with self._tier as tier:
            return self._planned(tier, explain_scan)

    def _planned(self, tier: TierReader, plan: Callable[..., _Plan]) -> _Plan:
        read = self.read_options
        return plan(
            tier,
            self._options.topics,
            self._options.scan.having(columns=read.columns, schemas=read.payloads),
            conditions=self.conditions,
            min_partitions=self._options.min_partitions,
            task_bytes=self._options.max_partition_bytes,
        )

    def read(
        self, task: ScanTask, histories: Mapping[str, SchemaHistory] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The record batches of one task, read where this is called.

        `histories` are the schemas of topics that this reader did not know when it was made.
        """
        if _KEEPS_LOGS in os.environ:
            logging.getLogger("offload_core").setLevel(logging.INFO)
        # Made where rows are read: Spark copies the reader before it asks for partitions.
        times = options_of(self._options.scan, conditions=self.conditions).times
        read = replace(self.read_options, times=times)
        if read.payloads is not None and histories:
            read = replace(read, payloads=read.payloads.with_topics(histories))
        return map(spark_batch, self._worker_tier.read(task, read, self._report))


def _restored(versions: dict[str, str], state: bytes) -> TaskReader:
    """The reader, where the driver's versions are such that it can be unpickled and read."""
    check_versions(versions)
    reader = TaskReader.__new__(TaskReader)
    reader.__dict__.update(pickle.loads(state))  # noqa: S301 - written by the driver of the same application
    return reader
