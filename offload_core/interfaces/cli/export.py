"""`offload export`: topics to files of Parquet, CSV or JSON lines, an Iceberg or a Delta table, once or on and on."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from offload_core.interfaces.cli.command_options import ExecutorOptions, TierOptions, command, named
from offload_core.interfaces.cli.long_work import LongWork, long_work
from offload_core.interfaces.cli.scan_options import ExportedMessages
from offload_core.interfaces.cli.terminal import print_note, size
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.reading.export import ExportReport, FileFormat, ParquetOptions
from offload_core.reading.export import export as export_topics
from offload_core.reading.scan import DEFAULT_TASK_BYTES
from offload_hooks.errors import DataLossError, FormatError, OptionError, StoreError


@command()
def export(
    where: TierOptions,
    scan: ExportedMessages,
    executors: ExecutorOptions,
    to: Annotated[
        str,
        typer.Option(
            metavar="DIR|URL|iceberg:CATALOG/NAMESPACE.TABLE|delta:PATH",
            help="Where to: a folder of files, or a table.",
        ),
    ],
    to_option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An option of the target; may be given again."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with new messages, until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0, help="With --follow: seconds between two rounds.")] = 60.0,
    format_: Annotated[
        FileFormat, typer.Option("--format", "-f", help="Of the files in a folder.")
    ] = "parquet",
    compression: Annotated[str | None, typer.Option(help="Of Parquet files; zstd without it.")] = None,
    compression_level: Annotated[int | None, typer.Option(help="The compression's level.")] = None,
    file_bytes: Annotated[
        int, typer.Option(min=1, help="About so many stored bytes of a topic make a file.")
    ] = DEFAULT_TASK_BYTES,
    row_group_bytes: Annotated[
        int | None,
        typer.Option(min=1, help="About so many bytes in memory make a row group; 64 MiB without it."),
    ] = None,
) -> None:
    """Export topics, each message once: what is new since the last export, however that ended.

    One that is ended by a signal before all is exported that was there ends with 130 (Ctrl-C) or 143 (SIGTERM).

    Examples:
        offload export s3://bucket/prefix --topic acme/cold/orders --to exported/
        offload export s3://bucket/prefix --topic acme/cold/orders --to delta:lake/orders
        offload export s3://bucket/prefix --topic acme/cold/orders --to exported-csv/ --format csv
    """
    options = scan.options()
    if not scan.topics and options.topics_pattern is None:
        raise OptionError("no topic is named", expected="--topic or --topics-pattern")
    chosen: dict[str, Any] = {
        "compression": compression,
        "compression_level": compression_level,
        "row_group_bytes": row_group_bytes,
    }
    parquet = {name: value for name, value in chosen.items() if value is not None}
    with (
        scan.open(where) as tier,
        executors.open() as executor,
        long_work("exporting", logs=True) as work,
        _ended_by_signal(work) as ended,
        _says_how_to_go_on(),
    ):
        report = export_topics(
            tier,
            to,
            scan.chosen(tier),
            options,
            to_options=named(to_option, "the target"),
            follow_s=interval if follow else None,
            ended=ended.event,
            executor=executor,
            listener=lambda now: work.update(
                f"{now.rows:,} rows", done_bytes=now.done_bytes, whole_bytes=now.total_bytes
            ),
            format=format_,
            parquet=ParquetOptions(**parquet) if parquet else None,
            file_bytes=file_bytes,
        )
    _say(report)
    if not report.complete:
        raise typer.Exit(128 + (ended.number or signal.SIGINT))


def _say(report: ExportReport) -> None:
    if report.complete and not report.files:
        print_note(_nothing_new(report))
        return
    cut = "" if report.complete else "; stopped before the end, the next export goes on from there"
    files = count_text(report.files, "file")
    print_note(f"{count_text(report.rows, 'row')} in {files}, {size(report.size_bytes)}{cut}")


def _nothing_new(report: ExportReport) -> str:
    if len(report.since) != 1:
        return (
            "nothing new since the last export"
            if report.since
            else "nothing to export: there are no messages"
        )
    [(topic, position)] = report.since.items()
    return f"nothing new: {topic} is exported up to {position.ledger_id}:{position.entry_id}"


@contextlib.contextmanager
def _says_how_to_go_on() -> Iterator[None]:
    """Print, for an export that fails, also the state of the files that it wrote."""
    try:
        yield
    except (StoreError, FormatError, DataLossError) as error:
        if not isinstance(error, FileNotFoundError):
            print_note("broken off: what was committed stays, the next export goes on from there")
        raise


@dataclass
class _Ended:
    """Set by a signal.

    Attributes:
        number: the signal's; None as long as there was none.
    """

    event: threading.Event
    number: int | None = None


@contextlib.contextmanager
def _ended_by_signal(work: LongWork) -> Iterator[_Ended]:
    """Set a flag at the first SIGINT or SIGTERM; the second one ends the process as always."""
    ended = _Ended(threading.Event())
    before: dict[int, Any] = {}

    def end(number: int, _: object) -> None:
        ended.number = number
        ended.event.set()
        signal.signal(number, before[number])
        print_note(f"ending after what is under way; once more to break off. {work.state()}")

    for kind in (signal.SIGINT, signal.SIGTERM):
        before[kind] = signal.signal(kind, end)
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
