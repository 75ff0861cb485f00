"""What a task read, and what it took: logged at its end, and handed to whoever asked."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

from offload_hooks.counts import StoreCounts, counting

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """What a task has done, to its end or to where it was stopped.

    Attributes:
        rows: rows that were given.
        bytes: stored bytes that were read: of blocks, indexes and checksums.
        ranges: requests for them.
        retries: calls that the layer `retry` made again. What a store's own client repeats is not seen.
        seconds: the time that reading took, without what is done with the batches in between.
    """

    rows: int = 0
    bytes: int = 0
    ranges: int = 0
    retries: int = 0
    seconds: float = 0.0


Report = Callable[[TaskMetrics], None]
"""Is called once per task, at its end, where it was read."""


def measured(
    batches: Generator[pa.RecordBatch, None, None], report: Report | None = None
) -> Iterator[pa.RecordBatch]:
    """The same batches; at their end, or where they are dropped, what they took is logged, and given to `report`."""
    counts = StoreCounts()
    context = counting(counts)
    rows, seconds = 0, 0.0
    try:
        while True:
            began = time.perf_counter()
            batch = context.run(next, batches, None)
            seconds += time.perf_counter() - began
            if batch is None:
                return
            rows += batch.num_rows
            yield batch
    finally:
        with contextlib.ExitStack() as last:
            last.callback(context.run, batches.close)
            metrics = TaskMetrics(
                rows=rows, bytes=counts.bytes, ranges=counts.ranges, retries=counts.retries, seconds=seconds
            )
            fields = asdict(metrics)
            # `context` is what Spark keeps of a worker's log record beside its text.
            _log.info(
                "a task gave %d rows of %d bytes in %d ranges, with %d retries, in %.3f s",
                *fields.values(),
                extra=fields | {"context": fields},
            )
            if report is not None:
                report(metrics)
