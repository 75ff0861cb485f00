"""The export itself: plan what is new, hand tasks to workers, commit in order of positions what they wrote.

What is committed is a beginning of each topic's positions. So the state of an export is one position a topic, and all
that a killed one has written besides is not seen by anybody and written again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from offload_core.metadata.catalogue import TierReader, TopicName
from offload_core.reading.export.model import (
    ExportProgress,
    ExportReport,
    ParquetOptions,
    Target,
    TaskResult,
)
from offload_core.reading.export.opening import open_target
from offload_core.reading.export.partitions import NEEDED_COLUMNS
from offload_core.reading.export.task import WriteTask
from offload_core.reading.scan import DEFAULT_TASK_BYTES, Position, Scan, ScanOptions, ScanTask, scan
from offload_core.storage.executors import Executor, ThreadExecutor
from offload_hooks.errors import OptionError

Plan = Callable[[Mapping[TopicName, Position]], Scan]
"""What is to be read after these positions."""

Listener = Callable[[ExportProgress], None]


def export(
    tier: TierReader,
    to: str | os.PathLike[str],
    topics: str | Iterable[str] = (),
    options: ScanOptions | None = None,
    *,
    to_options: Mapping[str, Any] | None = None,
    parquet: ParquetOptions | None = None,
    file_bytes: int = DEFAULT_TASK_BYTES,
    executor: Executor | None = None,
    follow_s: float | None = None,
    ended: threading.Event | None = None,
    listener: Listener | None = None,
    **keywords: Any,
) -> ExportReport:
    """Export messages to Parquet files, an Iceberg or a Delta table (docs/export.md).

    Only what is new since the last export to the same place is, each message once, however that ended.

    Args:
        tier: where to read.
        to: a folder's path or URL, `iceberg:CATALOG/NAMESPACE.TABLE`, or `delta:PATH`.
        topics, options: which topics, and how to read them: as of `scan`, without an end in time.
        to_options: of a folder its driver's options, of Iceberg the catalog's properties, of Delta its storage options.
        parquet: how files are written.
        file_bytes: about this many stored bytes make a file of each topic and day in them.
        executor: who does the work; None for a thread a core.
        follow_s: look for what is new after so many seconds, again and again, until `ended` is set.
        ended: once it is set no further file begins, and the export returns when those under way are committed.
        listener: called once all is planned, and after each task.
        keywords: fields of `ScanOptions`, in place of those of `options`.

    Raises:
        As `scan`, and MissingExtraError, FormatError, and StoreError of either side; what is committed stays so.
    """
    asked = (options or ScanOptions()).having(**keywords)
    columns = asked.columns
    wanted = None if columns is None else [*columns, *(n for n in NEEDED_COLUMNS if n not in columns)]

    def plan(resume: Mapping[TopicName, Position]) -> Scan:
        return scan(tier, topics, asked.having(columns=wanted), resume=resume, task_bytes=file_bytes)

    target = open_target(to, to_options or {})

    def once() -> ExportReport:
        return export_once(
            plan,
            target,
            executor=executor or ThreadExecutor(),
            parquet=parquet or ParquetOptions(),
            columns=columns,
            stop=ended,
            listener=listener,
        )

    try:
        if follow_s is None:
            return once()
        return follow_export(once, interval_s=follow_s, stop=ended or threading.Event())
    finally:
        target.close()


def export_once(
    plan: Plan,
    target: Target,
    *,
    executor: Executor,
    parquet: ParquetOptions,
    columns: Sequence[str] | None = None,
    stop: threading.Event | None = None,
    listener: Listener | None = None,
) -> ExportReport:
    """Export what is new since the target's last commit.

    Args:
        columns: those to write; None for all of the scan.
        stop: once it is set no further task begins; those under way are committed.
        listener: told once all is planned, and after each task.

    Raises:
        OptionError, StoreError, FormatError, DataLossError: what was committed before stays so.
    """
    parquet.check()
    scan = plan(target.load())
    if any(run.topic is None for task in scan.planned for run in task.runs):
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
    if not scan.tasks:
        return ExportReport()
    schema = scan.schema
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    work = WriteTask(
        tier=scan.tier,
        read=scan.options,
        place=target.place(schema),
        parquet=parquet,
        columns=None if columns is None else tuple(columns),
    )
    total_bytes = sum(task.data_bytes for task in scan.tasks)
    committed = seen = ExportReport()

    def tell() -> None:
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

    tell()
    waiting: list[TaskResult] = []
    for result in executor.run(work, _until(stop, scan.tasks)):
        waiting.append(result)
        seen = seen.plus(result)
        if seen.data_bytes - committed.data_bytes >= target.commit_bytes:
            _commit(target, waiting)
            committed, waiting = seen, []
        tell()
    if waiting:
        _commit(target, waiting)
    return replace(seen, complete=seen.data_bytes == total_bytes)


def _commit(target: Target, results: Sequence[TaskResult]) -> None:
    reached: dict[TopicName, Position] = {}
    for result in results:
        reached.update(result.reached)
    target.commit(tuple(file for result in results for file in result.files), reached)


def follow_export(
    once: Callable[[], ExportReport], *, interval_s: float, stop: threading.Event
) -> ExportReport:
    """Export again and again, `interval_s` seconds after one another, until `stop` is set; all together."""
    total = ExportReport()
    while True:
        report = once()
        total = ExportReport(
            rows=total.rows + report.rows,
            files=total.files + report.files,
            size_bytes=total.size_bytes + report.size_bytes,
            data_bytes=total.data_bytes + report.data_bytes,
            complete=report.complete,
        )
        if stop.wait(interval_s):
            return total


def _until(stop: threading.Event | None, tasks: Iterable[ScanTask]) -> Iterator[ScanTask]:
    for task in tasks:
        if stop is not None and stop.is_set():
            return
        yield task
