"""A batch query of the data source: planned on the driver with the filters that Spark pushes down, read by executors.

Spark applies the filters to the rows again. Source: docs/spark.md, Filters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from offload_core.interfaces.engines.spark.query_errors import explained, explained_rows
from offload_core.interfaces.engines.spark.source_options import SourceOptions
from offload_core.interfaces.engines.spark.spark_types import spark_schema
from offload_core.interfaces.engines.spark.task_reader import TaskReader
from offload_core.reading.scan import Condition, Operator, Report, ScanTask
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


class OffloadPartition(InputPartition):
    """One scan task. `histories` are the schemas of topics that the reader did not know when it was made."""

    def __init__(self, task: ScanTask, histories: Mapping[str, SchemaHistory] | None = None) -> None:
        super().__init__(task)
        self.task = task
        self.histories = dict(histories or {})


class OffloadReader(DataSourceReader):
    """The reader of a batch query."""

    def __init__(self, options: SourceOptions, schema: StructType, report: Report | None = None) -> None:
        self.tasks = TaskReader(options, tuple(schema.fieldNames()), report)
        expected = spark_schema(self.tasks.read_options.schema)
        for wanted, field in zip(schema, expected, strict=True):
            if wanted.dataType != field.dataType:
                raise OptionError(
                    f"column {wanted.name!r} has another type than the schema asks for",
                    expected=field.dataType.simpleString(),
                    found=wanted.dataType.simpleString(),
                )

    @property
    def pushFilters(self) -> PushFilters:  # noqa: N802 - PySpark's name
        """The filters that Spark pushes down."""
        return PushFilters(functools.partial(setattr, self.tasks, "conditions"))

    @explained
    def partitions(self) -> list[InputPartition]:
        """The scan's tasks; Spark takes nothing but a list."""
        # Of no partition at all Spark makes one of its own, which cannot be read.
        return [OffloadPartition(task) for task in self.tasks.tasks() or (ScanTask(extents=()),)]

    @explained_rows
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The record batches of one task, read where this is called."""
        if not isinstance(partition, OffloadPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        return self.tasks.read(partition.task, partition.histories)
