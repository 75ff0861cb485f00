"""`read_offloaded`: offloaded topics as a DataFrame by `mapInArrow`, on every Spark from 3.5 on, Connect included.

A DataFrame of tasks, one in each partition, is mapped to their rows. Source: docs/spark.md.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from offload_core.interfaces.engines.spark.metrics import ReadMetrics
from offload_core.interfaces.engines.spark.source_options import option_texts, parse_options
from offload_core.interfaces.engines.spark.spark_types import spark_schema
from offload_core.interfaces.engines.spark.task_reader import TaskReader
from offload_core.interfaces.engines.spark.versions import any_pandas, for_workers


def read_offloaded(
    spark: SparkSession,
    path: str | os.PathLike[str] | None = None,
    *,
    metrics: ReadMetrics | None = None,
    **options: object,
) -> DataFrame:
    """Read offloaded topics as `spark.read.format("pulsar_offload").options(**options).load(path)` does.

    Needs no Python data source, so that it serves Spark 3.5 as well. It plans at once: what is offloaded later is not
    in the DataFrame. Options have their names of docs/spark.md; those with a dot, such as `storage.region`, are given
    by `**{"storage.region": "eu-west-1"}`. Tasks add what they read to `metrics`, of `measure_reads`.

    Raises:
        OffloadError: as `scan`; of tasks as `read_task`.
    """
    texts = option_texts(path, options)
    reader = TaskReader(parse_options(texts), None, None if metrics is None else metrics.report)
    planned = reader.tasks()
    if metrics is not None:
        metrics.planned_bytes += sum(task.data_bytes for task in planned)
    tasks = [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(planned)]
    with any_pandas():
        frame = spark.createDataFrame(tasks, "number int, task binary")
        if len(tasks) > 1:
            frame = frame.repartitionByRange(len(tasks), "number")
        return frame.mapInArrow(
            for_workers(_Reading(reader, texts)), spark_schema(reader.read_options.schema)
        )


_IN_PLAN = {
    word.lower(): word
    for word in (
        *("topic", "topics", "subscribe", "topicsPattern", "subscribePattern", "ledger", "level", "columns"),
        *("startingOffsets", "endingOffsets", "startingTime", "endingTime"),
        *("startingTimestamp", "endingTimestamp", "isolation"),
    )
}
"""The options that say what is read, and nothing of places and keys."""


class _Reading:
    """Reads the tasks in some batches; its name, in Spark's plan, says what is read. Places are not shown."""

    def __init__(self, reader: TaskReader, texts: Mapping[str, str]) -> None:
        self._reader = reader
        given = [f"{_IN_PLAN[name]}={text}" for name, text in texts.items() if name in _IN_PLAN]
        self.__name__ = f"pulsar_offload[{'; '.join(given) or 'all topics'}]"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("task"):
                yield from self._reader.read(pickle.loads(task.as_py()))  # noqa: S301 - from the application's driver
