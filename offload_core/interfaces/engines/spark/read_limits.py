"""PySpark's limits of micro-batches, which came with Spark 4.2. Before it a micro-batch takes all there is."""

from __future__ import annotations

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    ARE_THERE = True
    """True if Spark asks a stream for its limits."""
except ImportError:
    ARE_THERE = False

    class ReadLimit:  # type: ignore[no-redef]
        """As PySpark's."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """As PySpark's."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Of no effect: Spark ends such a query after what there is when it begins."""


__all__ = [
    "ARE_THERE",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]
