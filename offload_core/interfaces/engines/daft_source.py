"""Topics as a source of Daft, whose tasks are the tasks of a scan.

Imported where Daft is installed, which the tests' environment has not: so `read_daft` is in a module of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from daft import Schema
from daft.io.pushdowns import Pushdowns
from daft.io.source import DataSource, DataSourceTask
from daft.recordbatch import RecordBatch

from offload_core.interfaces.engines.engine_scan import EngineScan, TaskReading
from offload_core.reading.scan import ScanTask


class OffloadedSource(DataSource):  # type: ignore[misc]  # untyped here
    """Topics as a source of Daft, planned when it is read."""

    def __init__(self, source: EngineScan) -> None:
        self._source = source
        with source.planned() as planned:
            self._schema = planned.schema

    @property
    def name(self) -> str:
        """The name that plans show."""
        return "pulsar-offload"

    @property
    def schema(self) -> Schema:
        """The columns."""
        return Schema.from_pyarrow_schema(self._schema)

    async def get_tasks(self, pushdowns: Pushdowns) -> AsyncIterator[DataSourceTask]:
        """The tasks of the scan, of the columns that a query uses."""
        reading, tasks = self._source.plan()
        if pushdowns.columns is not None:
            used = {*pushdowns.columns, *pushdowns.filter_required_column_names()}
            reading = reading.of_columns([name for name in self._schema.names if name in used])
        for task in tasks:
            yield _OffloadedTask(reading, task)


class _OffloadedTask(DataSourceTask):  # type: ignore[misc]  # untyped here
    """One task of a scan."""

    def __init__(self, reading: TaskReading, task: ScanTask) -> None:
        self._reading = reading
        self._task = task

    @property
    def schema(self) -> Schema:
        """The columns that are read."""
        return Schema.from_pyarrow_schema(self._reading.schema)

    async def read(self) -> AsyncIterator[RecordBatch]:
        """The record batches of the task."""
        for batch in self._reading.read(self._task):
            yield RecordBatch.from_arrow_record_batches([batch], batch.schema)
