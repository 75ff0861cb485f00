"""`read_offloaded`: offloaded topics as a DataFrame by `mapInArrow`, on every Spark from 3.5 on, Connect included.

A DataFrame of tasks, one in each partition, is mapped to their rows. Source: docs/spark.md.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from offload_core.interfaces.spark.source_options import option_texts, parse_options
from offload_core.interfaces.spark.spark_types import spark_schema
from offload_core.interfaces.spark.task_reader import TaskReader
from offload_core.interfaces.spark.versions import any_pandas


def read_offloaded(
    spark: SparkSession, path: str | os.PathLike[str] | None = None, **options: object
) -> DataFrame:
    """Read offloaded topics as `spark.read.format("pulsar_offload").options(**options).load(path)` does.

    Needs no Python data source, so that it serves Spark 3.5 as well. It plans at once: what is offloaded later is not
    in the DataFrame. Options have their names of docs/spark.md; those with a dot, such as `storage.region`, are given
    by `**{"storage.region": "eu-west-1"}`.

    Raises:
        As `scan`; tasks as `read_task`.
    """
    reader = TaskReader(parse_options(option_texts(path, options)), None)
    tasks = [(number, bytearray(pickle.dumps(task))) for number, task in enumerate(reader.tasks())]
    with any_pandas():
        frame = spark.createDataFrame(tasks, "number int, task binary")
        if len(tasks) > 1:
            frame = frame.repartitionByRange(len(tasks), "number")
        return frame.mapInArrow(functools.partial(_read, reader), spark_schema(reader.read_options.schema))


def _read(reader: TaskReader, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of the tasks in some batches."""
    for batch in batches:
        for task in batch.column("task"):
            yield from reader.read(pickle.loads(task.as_py()))  # noqa: S301 - from the driver of the same application
