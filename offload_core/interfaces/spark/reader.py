"""A batch query: planned on the driver, read by the executors.

The driver plans (listing or records, and indexes) with the filters that Spark pushes down, which Spark applies to the
rows again. Each partition is a scan task that its executor reads from the store itself. Only plain values cross to the
executors: each opens the tier anew, once per process. Source: docs/spark.md, Filters.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from offload_core.interfaces.spark.source_options import SourceOptions, open_source, read_options
from offload_core.interfaces.spark.spark_types import spark_batch, spark_schema
from offload_core.interfaces.spark.versions import check_versions, installed_versions
from offload_core.metadata.catalogue import TierReader
from offload_core.reading.scan import (
    Condition,
    Operator,
    Report,
    Scan,
    ScanEstimate,
    ScanTask,
    explain_scan,
    read_task,
    scan,
)
from offload_core.reading.scan.scanning import read_options as options_of
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError
from offload_hooks.schemas import SchemaHistory

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_OPERATORS = {
    "EqualTo": Operator.EQUAL,
    "EqualNullSafe": Operator.EQUAL,
    "In": Operator.IN,
    "GreaterThan": Operator.GREATER,
    "GreaterThanOrEqual": Operator.GREATER_OR_EQUAL,
    "LessThan": Operator.LESS,
    "LessThanOrEqual": Operator.LESS_OR_EQUAL,
    "StringStartsWith": Operator.STARTS_WITH,
    "StringEndsWith": Operator.ENDS_WITH,
    "StringContains": Operator.CONTAINS,
}
"""By the names of PySpark's filters, which came with Spark 4.1."""


def conditions_of(filters: Iterable[Filter]) -> tuple[Condition, ...]:
    """The conditions that filters stand for, without those that are none (on parts of a column, on nulls)."""
    found = (_condition(each) for each in filters)
    return tuple(condition for condition in found if condition is not None)


def _condition(given: Filter) -> Condition | None:
    is_negated = type(given).__name__ == "Not"
    inner: Filter = given.child if is_negated else given  # type: ignore[attr-defined]
    operator = _OPERATORS.get(type(inner).__name__)
    attribute, value = getattr(inner, "attribute", ()), getattr(inner, "value", None)
    values: tuple[object, ...] = tuple(value) if isinstance(value, tuple | list) else (value,)
    # What is compared with null holds for nothing, negated or not: such a filter is left to Spark.
    if operator is None or len(attribute) != 1 or None in values:
        return None
    return Condition(
        column=str(*attribute),
        operator=operator,
        value=values if operator is Operator.IN else value,
        is_negated=is_negated,
    )


class PushFilters:
    """The method `pushFilters` of a reader, as far as PySpark's planner can see the one that every reader has.

    PySpark refuses a reader that has a `pushFilters` of its own while `spark.sql.python.filterPushdown.enabled` is
    off, and checks `__func__` for that; where it is on, it calls this.

    Args:
        take: given the conditions that filters stand for.
    """

    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", lambda _, filters: filters))

    def __init__(self, take: Callable[[tuple[Condition, ...]], None]) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of the filters; all of them are given back, for Spark to apply them."""
        self._take(conditions_of(filters))
        return filters


_Plan = TypeVar("_Plan", Scan, ScanEstimate)

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
        self.read_options = read_options(options, tuple(schema.fieldNames()), lambda: self._tier)
        expected = spark_schema(self.read_options.schema)
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
    def pushFilters(self) -> PushFilters:  # noqa: N802 - PySpark's name
        """The filters that Spark pushes down."""
        return PushFilters(functools.partial(setattr, self, "conditions"))

    def partitions(self) -> list[InputPartition]:
        """The scan's tasks; Spark takes nothing but a list."""
        with self._tier as tier:
            # Of no partition at all Spark makes one of its own, which cannot be read.
            tasks = self._planned(tier, scan).tasks or (ScanTask(extents=()),)
            return [OffloadPartition(task) for task in tasks]

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

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task, read where this is called."""
        if not isinstance(partition, OffloadPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        if _KEEPS_LOGS in os.environ:
            logging.getLogger("offload_core").setLevel(logging.INFO)
        store = _store_of_process(os.getpid(), self._store)
        # Made where rows are read: Spark copies the reader before it asks for partitions.
        times = options_of(self._options.scan, conditions=self.conditions).times
        read = replace(self.read_options, times=times)
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
