"""`read_daft`: offloaded topics as a Daft DataFrame, whose partitions are the tasks of a scan."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from offload_core.interfaces.engines.engine_scan import EngineScan
from offload_core.reading.scan.scanning import require_library

if TYPE_CHECKING:
    from daft import DataFrame


def read_daft(url: str | os.PathLike[str], topics: str | Iterable[str] = (), **options: Any) -> DataFrame:
    """Offloaded topics as a Daft DataFrame, planned when it is read; columns that a query does not use are not made.

    Args:
        url: where the tier is, as `open_tier` takes it.
        topics: as `scan` takes them.
        options: keywords of `scan` and `open_tier`; `min_partitions` and `task_bytes` give the number of tasks.

    Raises:
        MissingExtraError: Daft is not installed. Others: those of `open_tier` and `scan`, here and when it is read; of
            tasks those of `read_task`.
    """
    require_library("daft")
    from offload_core.interfaces.engines.daft_source import OffloadedSource

    return OffloadedSource(EngineScan.of(url, topics, options)).read()
