"""`read_ray` and `OffloadedDatasource`: offloaded topics as a Ray Dataset, whose read tasks are the tasks of a scan."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from offload_core.interfaces.engines.engine_scan import EngineScan, TaskReading
from offload_core.reading.scan import ScanTask
from offload_core.reading.scan.scanning import require_library

require_library("ray")

from ray.data import Dataset, Datasource, ReadTask, read_datasource  # noqa: E402 - if it is installed
from ray.data.block import BlockMetadata  # noqa: E402

if TYPE_CHECKING:
    from ray.data import DataContext


def read_ray(url: str | os.PathLike[str], topics: str | Iterable[str] = (), **options: Any) -> Dataset:
    """Offloaded topics as a Ray Dataset: `ray.data.read_datasource` of an `OffloadedDatasource`.

    Errors: those of `OffloadedDatasource`.
    """
    return read_datasource(OffloadedDatasource(url, topics, **options))


class OffloadedDatasource(Datasource):  # type: ignore[misc]  # untyped here
    """Offloaded topics as a data source of Ray, planned when Ray asks for its tasks.

    Args:
        url: where the tier is, as `open_tier` takes it.
        topics: as `scan` takes them.
        options: keywords of `scan` and `open_tier`; `min_partitions` is the least number of tasks, if Ray asks for
            fewer.

    Raises:
        MissingExtraError: Ray is not installed; where this is imported. Others: those of `open_tier` and `scan`; of
            tasks those of `read_task`.
    """

    def __init__(self, url: str | os.PathLike[str], topics: str | Iterable[str] = (), **options: Any) -> None:
        super().__init__()
        self._source = EngineScan.of(url, topics, options)
        with self._source.planned() as planned:
            self._data_bytes = planned.data_bytes

    def estimate_inmemory_data_size(self) -> int:
        """The stored bytes: what they decompress to is not known."""
        return self._data_bytes

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,  # noqa: ARG002 - Ray's signature
    ) -> list[ReadTask]:
        """The tasks of the scan: as many as Ray asks for, if there are enough blocks."""
        least = max(parallelism, self._source.options.get("min_partitions", 1))
        reading, tasks = self._source.plan(min_partitions=least)
        return [
            ReadTask(
                functools.partial(_blocks, reading, task),
                BlockMetadata(num_rows=None, size_bytes=task.data_bytes, exec_stats=None),
                schema=reading.schema,
                per_task_row_limit=per_task_row_limit,
            )
            for task in tasks
        ]


def _blocks(reading: TaskReading, task: ScanTask) -> Iterator[pa.Table]:
    for batch in reading.read(task):
        yield pa.Table.from_batches([batch])
