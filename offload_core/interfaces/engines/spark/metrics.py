"""Add up what the tasks of Spark queries read, on the driver, by one of Spark's accumulators.

Accumulators reach a data source only inside its class, which Spark hands to the workers by value if it is made in a
function. So the source is registered anew, under its own name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from offload_core.reading.scan import ReadProgress, TaskMetrics
from offload_hooks.errors import OptionError

_log = logging.getLogger(__name__)

ReadListener = Callable[[ReadProgress], None]


@dataclass(frozen=True, slots=True)
class _Totals:
    """The number of tasks, and the sum of their metrics."""

    tasks: int = 0
    metrics: TaskMetrics = field(default_factory=TaskMetrics)


class _Sum(AccumulatorParam[_Totals]):
    """Adds totals; on the driver, where Spark adds those of each task as it ends, it tells `heard`."""

    def __init__(self, heard: Callable[[_Totals], None] | None = None) -> None:
        self._heard = heard

    def __reduce__(self) -> tuple[type[_Sum], tuple[()]]:
        return _Sum, ()

    def zero(self, value: _Totals) -> _Totals:
        """Nothing."""
        del value
        return _Totals()

    def addInPlace(self, value1: _Totals, value2: _Totals) -> _Totals:  # noqa: N802 - Spark's name
        """The sum of both."""
        totals = _Totals(value1.tasks + value2.tasks, value1.metrics.plus(value2.metrics))
        if self._heard is not None:
            self._heard(totals)
        return totals


class _Report:
    """Adds what one task has done, where tasks run."""

    def __init__(self, totals: Accumulator[_Totals]) -> None:
        self._totals = totals

    def __call__(self, metrics: TaskMetrics) -> None:
        self._totals.add(_Totals(1, metrics))


class ReadMetrics:
    """Totals over all tasks of this session's queries from when it was made.

    A task that Spark runs twice (again after a failure, or speculatively) counts twice, and so does a query whose
    result is asked for twice. A task that Spark breaks off, as for a LIMIT, may not count at all.

    Attributes:
        report: what tasks call; picklable.
        planned_bytes: stored bytes of the tasks of each `read_offloaded` that was given this.
    """

    def __init__(self, context: SparkContext, listener: ReadListener | None = None) -> None:
        self._listener = listener
        self._totals = context.accumulator(_Totals(), _Sum(self._tell))
        self.report = _Report(self._totals)
        self.planned_bytes = 0

    @property
    def tasks(self) -> int:
        """The number of tasks that have ended."""
        return self._totals.value.tasks

    @property
    def total(self) -> TaskMetrics:
        """The sum of their metrics."""
        return self._totals.value.metrics

    def _tell(self, totals: _Totals) -> None:
        """Tell the listener; Spark's thread, which adds up, must not end by its errors."""
        if self._listener is None:
            return
        read = totals.metrics
        try:
            self._listener(
                ReadProgress(done_bytes=read.bytes, total_bytes=self.planned_bytes, rows=read.rows)
            )
        except Exception:
            _log.exception("the listener of reads failed, and is told no more")
            self._listener = None


def measure_reads(session: SparkSession, listener: ReadListener | None = None) -> ReadMetrics:
    """Register the source `pulsar_offload` so that its queries add to what this returns.

    `listener` is called with the progress each time a task has ended; `ProgressBar` is one.

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
    metrics = ReadMetrics(context, listener)
    if hasattr(session, "dataSource"):  # from Spark 4.0 on
        _register(session, metrics)
    return metrics


def _register(session: SparkSession, metrics: ReadMetrics) -> None:
    from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource

    class MeasuredDataSource(PulsarOffloadDataSource):
        """The source whose tasks report to an accumulator."""

        report = metrics.report

    session.dataSource.register(MeasuredDataSource)
