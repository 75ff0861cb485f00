"""Export: plan new blocks, pass tasks to workers, and commit the files they wrote in order of positions.

What is committed is the beginning of each topic. So the state of an export is one position per topic; what a killed
export has written besides is not visible, and is written again.
A target is a folder's path or URL, `iceberg:CATALOG/NAMESPACE.TABLE`, or `delta:PATH`.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import pyarrow as pa

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.messages.message_columns import MESSAGE_COLUMNS
from offload_core.metadata.catalogue import TierReader, TopicName
from offload_core.reading.export.export_files import (
    NEEDED_COLUMNS,
    ExportProgress,
    ExportReport,
    FileFormat,
    FilePlace,
    ParquetOptions,
    Target,
    TaskResult,
)
from offload_core.reading.export.folder_target import FolderTarget
from offload_core.reading.export.written_files import WrittenFiles
from offload_core.reading.scan import (
    DEFAULT_TASK_BYTES,
    Position,
    ReadOptions,
    Scan,
    ScanExtent,
    ScanOptions,
    ScanTask,
    read_task,
    scan,
)
from offload_core.reading.scan.extents import extents_ahead
from offload_core.storage.executors import Executor, ThreadExecutor
from offload_core.storage.tier import Tier, open_store
from offload_hooks.errors import MissingExtraError, OptionError

_TABLES = {
    "iceberg": ("offload_core.reading.export.iceberg_target", "open_iceberg"),
    "delta": ("offload_core.reading.export.delta_target", "DeltaTarget"),
}


def open_target(
    to: str | os.PathLike[str], options: Mapping[str, Any], kind: FileFormat = "parquet"
) -> Target:
    """Open a target.

    Args:
        to: a path or URL whose scheme picks a driver, `iceberg:CATALOG/NAMESPACE.TABLE`, or `delta:` before a path or
            URL of a table.
        options: of a folder those of its driver, of Iceberg the catalog's properties, of Delta its storage options.
        kind: of files in a folder; those of tables are always Parquet.

    Raises:
        OptionError, UnknownPluginError, MissingExtraError.
    """
    if kind not in get_args(FileFormat):
        expected = ", ".join(get_args(FileFormat))
        raise OptionError("an export knows no such format", expected=expected, found=repr(kind))
    text = os.fspath(to)
    table, separator, rest = text.partition(":")
    if not separator or table not in _TABLES:
        return FolderTarget(open_store(text, **options), kind)
    if kind != "parquet":
        raise OptionError(f"the files of a {table} table are Parquet", expected="format parquet", found=kind)
    if not rest:
        raise OptionError(
            f"which {table} table?", expected="iceberg:CATALOG/NAMESPACE.TABLE or delta:PATH", found=text
        )
    module, opener = _TABLES[table]
    try:
        opened = getattr(importlib.import_module(module), opener)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"a target of {table} needs the module {error.name!r}, which is not installed",
            hint=f"Install it: pip install 'pulsar-offload[{table}]'",
        ) from error
    target: Target = opened(rest, {name: str(value) for name, value in options.items()})
    return target


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTask:
    """Read and write one task; picklable where the Tier is.

    Attributes:
        columns: those to write, None for all that are read.
    """

    tier: Tier
    read: ReadOptions
    place: FilePlace
    kind: FileFormat
    parquet: ParquetOptions
    columns: tuple[str, ...] | None

    def __call__(self, task: ScanTask) -> TaskResult:
        """Errors: those of `read_task`, and `StoreError` of the target."""
        extents = tuple(extents_ahead(self.tier, task.extents, self.read.fail_on_data_loss))
        with WrittenFiles(self.place, self.kind, self.parquet, self.columns) as files:
            for batch in read_task(self.tier, replace(task, extents=extents), self.read):
                files.write(batch)
            written = files.finish()
            return TaskResult(
                files=written, reached=_reached(extents, files.last), data_bytes=task.data_bytes
            )


def _reached(extents: Sequence[ScanExtent], last: Mapping[str, Position]) -> dict[TopicName, Position]:
    reached: dict[TopicName, Position] = {}
    for extent in extents:
        position = position_after(extent, last.get(extent.topic or ""))
        if extent.topic is not None and position is not None:
            reached[TopicName(extent.topic)] = position
    return reached


def position_after(extent: ScanExtent, last: Position | None) -> Position | None:
    """The position after an extent whose last row was at `last`; None if nothing was read and its end is not known.

    A ledger in an object of its own is closed: after its end comes the next ledger, whichever that is. A streaming
    ledger may grow, and one that is read hot while it is written.
    """
    end = extent.blocks[-1].end_entry_id if extent.blocks else None
    if end is None:
        of_extent = last is not None and last.ledger_id == extent.ledger_id
        return Position(extent.ledger_id, last.entry_id + 1) if last is not None and of_extent else None
    if extent.stop_entry_id is not None and extent.stop_entry_id < end:
        if extent.stop_batch:
            return Position(extent.ledger_id, extent.stop_entry_id - 1, extent.stop_batch)
        return Position(extent.ledger_id, extent.stop_entry_id)
    if _gets_no_more(extent) and extent.stop_entry_id == end and not extent.stop_batch:
        return Position(extent.ledger_id + 1, 0)
    return Position(extent.ledger_id, end)


def _gets_no_more(extent: ScanExtent) -> bool:
    if extent.hot is None:
        return extent.object_format is not ObjectFormat.STREAMING
    return isinstance(extent.ledger.metadata, LedgerInfo) and extent.ledger.metadata.is_closed


Plan = Callable[[Mapping[TopicName, Position]], Scan]
"""Plans what to read after these positions."""

Listener = Callable[[ExportProgress], None]


def export(
    tier: TierReader,
    to: str | os.PathLike[str],
    topics: str | Iterable[str] = (),
    options: ScanOptions | None = None,
    *,
    to_options: Mapping[str, Any] | None = None,
    format: FileFormat = "parquet",  # noqa: A002
    parquet: ParquetOptions | None = None,
    file_bytes: int = DEFAULT_TASK_BYTES,
    executor: Executor | None = None,
    follow_s: float | None = None,
    ended: threading.Event | None = None,
    listener: Listener | None = None,
    **keywords: Any,
) -> ExportReport:
    """Export messages to files of Parquet, CSV or JSON lines, an Iceberg or a Delta table (docs/export.md).

    Only what is new since the last export to the same place is, each message once, however that ended.

    Args:
        tier: where to read.
        to: a folder's path or URL, `iceberg:CATALOG/NAMESPACE.TABLE`, or `delta:PATH`.
        topics: which topics, as of `scan`.
        options: how to read them, without an end in time.
        to_options: of a folder its driver's options, of Iceberg the catalog's properties, of Delta its storage options.
        format: of the files in a folder: `parquet`, `csv` or `jsonl`; those of tables are Parquet.
        parquet: how files of Parquet are written.
        file_bytes: about this many stored bytes make a file of each topic and day in them.
        executor: runs the tasks; None for one thread for each core.
        follow_s: seconds between searches for new ledgers, until `ended` is set; None exports once.
        ended: once set, no further file begins; the export returns when files under way are committed.
        listener: called once all is planned, and after each task.
        keywords: fields of `ScanOptions`, in place of those of `options`.

    Raises:
        MissingExtraError, FormatError, StoreError: of either side; committed files stay. Others: as `scan`.
    """
    asked = (options or ScanOptions()).having(**keywords)
    columns = asked.columns
    wanted = None if columns is None else [*columns, *(n for n in NEEDED_COLUMNS if n not in columns)]

    def plan(resume: Mapping[TopicName, Position]) -> Scan:
        return scan(tier, topics, asked.having(columns=wanted), resume=resume, task_bytes=file_bytes)

    if parquet is not None and format != "parquet":
        raise OptionError("options of Parquet, and another format", expected="format parquet", found=format)
    target = open_target(to, to_options or {}, format)
    ended = ended or threading.Event()
    total = ExportReport()
    try:
        while True:
            report = _export_once(
                plan,
                target,
                executor=executor or ThreadExecutor(),
                kind=format,
                parquet=parquet or ParquetOptions(),
                columns=columns,
                stop=ended,
                listener=listener,
            )
            total = total.plus(report)
            if follow_s is None or ended.wait(follow_s):
                return total
    finally:
        target.close()


def _export_once(
    plan: Plan,
    target: Target,
    *,
    executor: Executor,
    kind: FileFormat,
    parquet: ParquetOptions,
    columns: Sequence[str] | None,
    stop: threading.Event,
    listener: Listener | None,
) -> ExportReport:
    """Export messages since the target's last commit; once `stop` is set no further task begins."""
    parquet.check()
    since = target.load()
    scan = plan(since)
    if any(extent.topic is None for task in scan.planned for extent in task.extents):
        raise OptionError(
            "objects that name no topic cannot be exported",
            hint="Give the managed ledgers' records, which name it.",
        )
    if missing := [name for name in NEEDED_COLUMNS if name not in scan.schema.names]:
        raise OptionError(
            "only messages can be exported", expected="level messages", found=f"no {missing[0]}"
        )
    if scan.options.times is not None and scan.options.times.stop_ms is not None:
        raise OptionError(
            "an export cannot end at a time",
            expected="a stop at positions",
            hint="Messages are not sorted by time, so the next export could not go on where this one ended.",
        )
    schema, fixed = _columns(scan.schema, columns)
    target.check_columns(schema, fixed)
    if not scan.tasks:
        target.settle()
        return ExportReport(since=since)
    work = WriteTask(
        tier=scan.tier,
        read=scan.options,
        place=target.place(schema),
        kind=kind,
        parquet=parquet,
        columns=None if columns is None else tuple(columns),
    )
    total_bytes = sum(task.data_bytes for task in scan.tasks)
    committed = seen = ExportReport()

    def report() -> None:
        if listener is not None:
            listener(
                ExportProgress(
                    done_bytes=seen.data_bytes,
                    total_bytes=total_bytes,
                    rows=seen.rows,
                    files=seen.files,
                    size_bytes=seen.size_bytes,
                )
            )

    report()
    waiting: list[TaskResult] = []
    for result in executor.run(work, _until(stop, scan.tasks)):
        waiting.append(result)
        seen = seen.plus(result.report)
        if seen.data_bytes - committed.data_bytes >= target.commit_bytes:
            _commit(target, waiting)
            committed, waiting = seen, []
        report()
    if waiting:
        _commit(target, waiting)
    target.settle()
    return replace(seen, complete=seen.data_bytes == total_bytes, since=since)


def _columns(schema: pa.Schema, asked: Sequence[str] | None) -> tuple[pa.Schema, Sequence[str]]:
    """The schema of what is written, and the columns that all exports to a target have in common."""
    if asked is not None:
        return pa.schema([schema.field(name) for name in asked]), asked
    return schema, [name for name in schema.names if name in MESSAGE_COLUMNS]


def _commit(target: Target, results: Sequence[TaskResult]) -> None:
    reached: dict[TopicName, Position] = {}
    for result in results:
        reached.update(result.reached)
    target.commit(tuple(file for result in results for file in result.files), reached)


def _until(stop: threading.Event, tasks: Iterable[ScanTask]) -> Iterator[ScanTask]:
    for task in tasks:
        if stop.is_set():
            return
        yield task
