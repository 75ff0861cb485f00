"""What a worker does: read a scan task, write its rows to files, and say how far each topic is done with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.export.model import FilePlace, ParquetOptions, TaskResult
from offload_core.reading.export.parquet_files import ParquetFiles
from offload_core.reading.scan import Position, ReadOptions, Run, ScanTask, read_task
from offload_core.reading.scan.runs import runs_ahead
from offload_core.storage.tier import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Read and write one task; picklable where the Tier is.

    Attributes:
        columns: those to write, None for all that are read.
    """

    tier: Tier
    read: ReadOptions
    place: FilePlace
    parquet: ParquetOptions
    columns: tuple[str, ...] | None

    def __call__(self, task: ScanTask) -> TaskResult:
        """Errors: those of `read_task`, and `StoreError` of the target."""
        runs = tuple(runs_ahead(self.tier, task.runs, self.read.fail_on_data_loss))
        with ParquetFiles(self.place, self.parquet, self.columns) as files:
            for batch in read_task(self.tier, replace(task, runs=runs), self.read):
                files.write(batch)
            written = files.finish()
            return TaskResult(files=written, reached=_reached(runs, files.last), data_bytes=task.data_bytes)


def _reached(runs: Sequence[Run], last: Mapping[str, Position]) -> dict[TopicName, Position]:
    reached: dict[TopicName, Position] = {}
    for run in runs:
        position = position_after(run, last.get(run.topic or ""))
        if run.topic is not None and position is not None:
            reached[TopicName(run.topic)] = position
    return reached


def position_after(run: Run, last: Position | None) -> Position | None:
    """Where to go on after a run whose last row was at `last`; None if nothing was read and its end is not known.

    A ledger in an object of its own is closed: after its end comes the next ledger, whichever that is. A streaming
    ledger may grow.
    """
    end = run.blocks[-1].end_entry_id if run.blocks else None
    if end is None:
        of_run = last is not None and last.ledger_id == run.ledger_id
        return Position(run.ledger_id, last.entry_id + 1) if last is not None and of_run else None
    if run.stop_entry_id is not None and run.stop_entry_id < end:
        if run.stop_batch:
            return Position(run.ledger_id, run.stop_entry_id - 1, run.stop_batch)
        return Position(run.ledger_id, run.stop_entry_id)
    if run.object_format is not ObjectFormat.STREAMING and run.stop_entry_id == end and not run.stop_batch:
        return Position(run.ledger_id + 1, 0)
    return Position(run.ledger_id, end)
