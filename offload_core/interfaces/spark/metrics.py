"""Add up what the tasks of Spark queries read, on the driver, by Spark's accumulators.

Accumulators reach a data source only inside its class, which Spark hands to the workers by value if it is made in a
function. So the source is registered anew, under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pyspark.accumulators import Accumulator
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offload_core.interfaces.spark.source import PulsarOffloadDataSource
from offload_core.reading.scan import TaskMetrics
from offload_hooks.errors import OptionError


class ReadMetrics:
    """Totals over all tasks of this session's queries from when it was made; picklable, to be added to by tasks.

    A task that Spark runs twice (again after a failure, or speculatively) counts twice, and so does a query whose
    result is asked for twice. A task that Spark breaks off, as for a LIMIT, may not count at all.
    """

    def __init__(self, totals: Mapping[str, Accumulator[float]]) -> None:
        self._totals = dict(totals)

    def __call__(self, metrics: TaskMetrics) -> None:
        """Add what one task has done; where tasks run."""
        self._totals["tasks"].add(1)
        for each in fields(metrics):
            self._totals[each.name].add(getattr(metrics, each.name))

    @property
    def tasks(self) -> int:
        """The number of tasks that have ended."""
        return int(self._totals["tasks"].value)

    @property
    def total(self) -> TaskMetrics:
        """The sum of their metrics; on the driver only."""
        values: dict[str, Any] = {each.name: self._totals[each.name].value for each in fields(TaskMetrics)}
        return TaskMetrics(**values)


def measure_reads(session: SparkSession) -> ReadMetrics:
    """Register the source `pulsar_offload` so that its queries add to what this returns.

    Raises:
        OptionError: the session is one of Spark Connect, which has no accumulators.
    """
    try:
        context = session.sparkContext
    except PySparkException as error:
        raise OptionError(
            "reads are added up by Spark's accumulators",
            expected="a classic session",
            found="one of Spark Connect, which has none",
            hint="Keep the workers' logs, and sum what they have of each task: docs/spark.md, Metrics.",
        ) from error
    names = ("tasks", *(each.name for each in fields(TaskMetrics)))
    metrics = ReadMetrics({name: context.accumulator(0.0 if name == "seconds" else 0) for name in names})

    class MeasuredDataSource(PulsarOffloadDataSource):
        """The source whose tasks report to accumulators."""

        report = metrics

    session.dataSource.register(MeasuredDataSource)
    return metrics
