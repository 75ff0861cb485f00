"""`read_dask`: offloaded topics as a Dask DataFrame, whose partitions are the tasks of a scan.

Columns have pandas' Arrow types: others would differ between partitions with nulls and without.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from offload_core.interfaces.engines.engine_scan import EngineScan, TaskReading
from offload_core.reading.scan import ScanTask
from offload_core.reading.scan.scanning import require_library

if TYPE_CHECKING:
    import pandas as pd
    from dask.dataframe import DataFrame


def read_dask(url: str | os.PathLike[str], topics: str | Iterable[str] = (), **options: Any) -> DataFrame:
    """Offloaded topics as a Dask DataFrame; columns that a query does not use are not made.

    It plans at once: what is offloaded later is not in the DataFrame.

    Args:
        url: where the tier is, as `open_tier` takes it.
        topics: as `scan` takes them.
        options: keywords of `scan` and `open_tier`; `min_partitions` and `task_bytes` give the number of partitions.

    Raises:
        MissingExtraError: Dask is not installed. Others: those of `open_tier` and `scan`; of partitions those of
            `read_task`.
    """
    require_library("dask")
    import dask.dataframe

    reading, tasks = EngineScan.of(url, topics, options).plan()
    return dask.dataframe.from_map(
        functools.partial(_partition, reading),
        tasks,
        meta=_pandas(reading.schema.empty_table()),
        label="pulsar-offload",
    )


def _partition(reading: TaskReading, task: ScanTask, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """The rows of a task, of the columns that Dask asks for."""
    return _pandas(reading.of_columns(columns).read_table(task))


def _pandas(table: pa.Table) -> pd.DataFrame:
    import pandas as pd

    return table.to_pandas(types_mapper=pd.ArrowDtype)
