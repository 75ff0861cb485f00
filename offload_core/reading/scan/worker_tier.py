"""A tier for the workers of a scan: it crosses to other processes as bytes, and each of them opens it once."""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from offload_core.reading.scan.read import Report, read_task
from offload_core.reading.scan.tasks import ReadOptions, ScanTask
from offload_core.storage.tier import Tier

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class WorkerTier:
    """A tier as its names and options, which are not shown: they may be secret."""

    packed: bytes = field(repr=False)

    @classmethod
    def of(cls, tier: Tier) -> Self:
        """The tier, to be read by other processes.

        Raises:
            OptionError: it was made of a driver object.
        """
        return cls(pickle.dumps(tier))

    def read(
        self, task: ScanTask, options: ReadOptions, report: Report | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The record batches of a task, read where this is called. Errors: those of `read_task`."""
        return read_task(_tier_of_process(os.getpid(), self.packed), task, options, report)


@functools.lru_cache(maxsize=8)
def _tier_of_process(process_id: int, packed: bytes) -> Tier:
    """The tier of this process: made after the fork, kept for the tasks that follow."""
    del process_id
    tier: Tier = pickle.loads(packed)  # noqa: S301 - written by the process that planned the scan
    return tier
