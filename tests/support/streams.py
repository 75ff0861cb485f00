"""The reader of a stream driven by hand as Spark does: offsets, plans, micro-batches."""

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.interfaces.engines.spark.source_options import parse_options
from offload_core.interfaces.engines.spark.stream import OffloadStreamReader

PLACE = ("__ledgerId", "__entryId", "__batchIndex")


class Query:
    """A streaming query over the tier at `root`: its checkpoint, and the rows that came."""

    def __init__(self, root: Path, *, columns: Sequence[str] = PLACE, **options: object):
        self._columns = tuple(columns)
        self._options = {
            "path": str(root),
            "columns": ",".join(columns),
            "refreshIntervalMs": "1",
            "startingOffsets": "earliest",
            **{name: str(value) for name, value in options.items()},
        }
        self._reader: OffloadStreamReader | None = None
        self.offset: dict[str, Any] | None = None
        self.rows: list[tuple[Any, ...]] = []

    @property
    def reader(self) -> OffloadStreamReader:
        """The reader of this process."""
        if self._reader is None:
            source = PulsarOffloadDataSource(self._options)
            self._reader = OffloadStreamReader(parse_options(self._options), source.schema())
        return self._reader

    def restart(self, **options: object):
        """End the process; the next one has these options more."""
        if self._reader is not None:
            self._reader.stop()
        self._reader = None
        self._options |= {name: str(value) for name, value in options.items()}

    def trigger(self) -> bool:
        """One micro-batch; whether there was one."""
        start, end = self.next_offset()
        if start == end:
            return False
        found = self.read(start, end)
        self.rows += found
        self.offset = end
        return True

    def next_offset(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The offsets at which the next micro-batch begins and ends."""
        start = self.reader.initialOffset() if self.offset is None else self.offset
        start = json.loads(json.dumps(start))
        return start, self.reader.latestOffset(start, self.reader.getDefaultReadLimit())

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Any, ...]]:
        """The rows between two offsets, planned anew; partitions and reader cross to another process."""
        partitions = self.reader.partitions(start, end)
        partitions, read = pickle.loads(cloudpickle.dumps((partitions, self.reader.read)))
        return [
            tuple(row[name] for name in self._columns)
            for partition in partitions
            for batch in read(partition)
            for row in batch.to_pylist()
        ]

    def run(self) -> list[tuple[Any, ...]]:
        """All that there is; the rows that came now."""
        before = len(self.rows)
        while self.trigger():
            pass
        return self.rows[before:]
