"""A scan: which tasks read what was asked for, and their batches.

The tasks are planned when the scan is made; they are picklable, and any process that has the Tier can read one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from offload_core.scan.read import read_task
from offload_core.scan.tasks import ReadOptions, ScanTask
from offload_core.tier import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Tasks over a Tier; iterate over its record batches, or hand `tasks` to workers."""

    tier: Tier
    tasks: tuple[ScanTask, ...]
    options: ReadOptions

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches."""
        return self.options.schema

    @property
    def data_bytes(self) -> int:
        """Bytes that a full read fetches."""
        return sum(task.data_bytes for task in self.tasks)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """All batches, task after task, in order of topics and positions."""
        for task in self.tasks:
            yield from read_task(self.tier, task, self.options)

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches as Arrow's own reader, which Arrow, DuckDB, Polars and others take."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All rows in memory."""
        return pa.Table.from_batches(iter(self), schema=self.schema)
