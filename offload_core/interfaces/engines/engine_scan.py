"""A scan as engines run it: its options are kept, its tier is opened when it is planned, and again by workers.

Source: docs/how-to/without-spark.md.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from offload_core.metadata.catalogue import TierReader, open_tier
from offload_core.reading.scan import ReadOptions, Scan, ScanOptions, ScanTask, scan
from offload_core.reading.scan.worker_tier import WorkerTier
from offload_hooks.errors import OptionError

if TYPE_CHECKING:
    from typing_extensions import Self

_OF_SCAN = {each.name for each in fields(ScanOptions)} | (
    inspect.signature(scan).parameters.keys() - {"tier", "topics", "keywords"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReading:
    """What a worker needs to read any task of a scan; picklable."""

    tier: WorkerTier
    options: ReadOptions

    @property
    def schema(self) -> pa.Schema:
        """The schema of all batches."""
        return self.options.schema

    def of_columns(self, columns: Sequence[str] | None) -> TaskReading:
        """The reading of these columns only; of all for None."""
        return (
            self if columns is None else replace(self, options=replace(self.options, columns=tuple(columns)))
        )

    def read(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        """The record batches of a task. Errors: those of `read_task`."""
        return self.tier.read(task, self.options)

    def read_table(self, task: ScanTask) -> pa.Table:
        """All rows of a task."""
        return pa.Table.from_batches(self.read(task), schema=self.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineScan:
    """The topics of a tier, and how they are read; picklable. Places and options are not shown: they may be secret.

    Attributes:
        options: keywords of `scan`.
        storage: keywords of `open_tier`.
    """

    url: str | os.PathLike[str] = field(repr=False)
    topics: str | tuple[str, ...]
    options: Mapping[str, Any] = field(repr=False)
    storage: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(
        cls, url: str | os.PathLike[str], topics: str | Iterable[str], keywords: Mapping[str, Any]
    ) -> Self:
        """The scan of these keywords: what is none of `scan` is one of `open_tier`."""
        return cls(
            url=url,
            topics=topics if isinstance(topics, str) else tuple(topics),
            options={name: value for name, value in keywords.items() if name in _OF_SCAN},
            storage={name: value for name, value in keywords.items() if name not in _OF_SCAN},
        )

    @contextmanager
    def planned(self, **changed: Any) -> Iterator[Scan]:
        """The scan, while its tier is open; `changed` are keywords of `scan` in place of its own.

        Raises:
            As `open_tier` and `scan`.
        """
        with self._opened() as tier:
            yield scan(tier, self.topics, **{**self.options, **changed})

    def plan(self, **changed: Any) -> tuple[TaskReading, tuple[ScanTask, ...]]:
        """How workers read, and what: at least one task, which reads nothing if there is nothing to read.

        Raises:
            As `planned` and `Scan.tasks`.
        """
        with self.planned(**changed) as planned:
            reading = TaskReading(tier=WorkerTier.of(planned.tier), options=planned.options)
            return reading, planned.tasks or (ScanTask(extents=()),)

    def _opened(self) -> TierReader:
        try:
            return open_tier(self.url, **self.storage)
        except OptionError:
            # A word that is nearly one of a scan's is meant for it, whatever the driver makes of it.
            ScanOptions().having(
                **{
                    name: None
                    for name in self.storage
                    if difflib.get_close_matches(name, _OF_SCAN, cutoff=0.8)
                }
            )
            raise
