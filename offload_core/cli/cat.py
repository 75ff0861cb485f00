"""`offload cat`: messages or entries of a topic or ledger, as a table, JSON lines or a Parquet file."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from offload_core.cli.rows import print_table, write_jsonl, write_parquet
from offload_core.cli.shared import (
    Debug,
    Driver,
    KeyProvider,
    Layers,
    Prefix,
    Records,
    RecordsOptions,
    Schemas,
    StorageOptions,
    Url,
    err,
    named,
    opened,
    reported,
)
from offload_core.messages.schema import Level
from offload_core.scan import Scan, parse_offsets, parse_time
from offload_hooks.errors import OptionError

_TABLE_ROWS = 20
_TABLE_COLUMNS = (
    "__ledgerId",
    "__entryId",
    "__batchIndex",
    "__publishTime",
    "__key",
    "value",
    "__messageProperties",
)
_TASK_BYTES = 16 << 20


class Format(enum.StrEnum):
    """How rows are written."""

    TABLE = "table"
    JSONL = "jsonl"
    PARQUET = "parquet"


class LevelName(enum.StrEnum):
    """What a row is."""

    MESSAGES = "messages"
    ENTRIES = "entries"


class ModeName(enum.StrEnum):
    """What becomes of messages that cannot be read."""

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class IsolationName(enum.StrEnum):
    """Which messages of transactions are read."""

    COMMITTED = "committed"
    UNCOMMITTED = "uncommitted"


def cat(
    url: Url,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="A topic; may be given again.")
    ] = None,
    ledger: Annotated[
        int | None, typer.Option(min=0, help="Only this ledger; a topic is not needed then.")
    ] = None,
    level: Annotated[LevelName, typer.Option(help="What a row is.")] = LevelName.MESSAGES,
    cluster: Annotated[str | None, typer.Option(help="Only what this Pulsar cluster offloaded.")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns, with commas between; as in Spark.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")] = None,
    format_: Annotated[Format, typer.Option("--format", "-f", help="How to write rows.")] = Format.TABLE,
    output: Annotated[Path | None, typer.Option(help="Write to this file.", dir_okay=False)] = None,
    start: Annotated[
        str, typer.Option(help="Where to start: earliest, or positions or message ids as JSON.")
    ] = "earliest",
    stop: Annotated[
        str, typer.Option(help="Where to stop: latest, or positions or message ids as JSON.")
    ] = "latest",
    start_time: Annotated[
        str | None, typer.Option(help="Only messages published from then on: ISO 8601 with a zone, or ms.")
    ] = None,
    stop_time: Annotated[
        str | None, typer.Option(help="Only messages published before then: ISO 8601 with a zone, or ms.")
    ] = None,
    isolation: Annotated[
        IsolationName, typer.Option(help="Of transactions: what a consumer sees, or all messages.")
    ] = IsolationName.COMMITTED,
    summaries: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Keep ledgers' summaries there, to look up transactions only once."
        ),
    ] = None,
    prefix: Prefix = "",
    records: Records = None,
    records_option: RecordsOptions = None,
    schemas: Schemas = None,
    reader_schema: Annotated[
        str | None, typer.Option(help="Resolve to this version of the schema, or to this definition.")
    ] = None,
    mode: Annotated[
        ModeName, typer.Option(help="What becomes of messages that cannot be read.")
    ] = ModeName.FAILFAST,
    key_provider: KeyProvider = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    debug: Debug = False,
) -> None:
    """Print or write the messages (or stored entries) of topics, or of one ledger."""
    with reported(debug):
        if not topic and ledger is None:
            raise OptionError("what is to be read?", expected="--topic or --ledger")
        if format_ is Format.PARQUET and output is None:
            raise OptionError("Parquet is written to a file", expected="--output FILE")
        if format_ is Format.TABLE and output is not None:
            raise OptionError(
                "a table is for the terminal", expected="--format jsonl or parquet with --output"
            )
        row_level: Level = "entries" if level is LevelName.ENTRIES else "messages"
        with opened(url, driver, option, layer) as tier:
            scan = tier.scan(
                topic=tuple(topic or ()),
                ledger=ledger,
                cluster=cluster,
                level=row_level,
                columns=_columns(columns, row_level, None if schemas else format_),
                start=parse_offsets(start, "--start"),
                stop=parse_offsets(stop, "--stop"),
                start_time=None if start_time is None else parse_time(start_time, "--start-time"),
                stop_time=None if stop_time is None else parse_time(stop_time, "--stop-time"),
                task_bytes=_TASK_BYTES,
                isolation="committed" if isolation is IsolationName.COMMITTED else "uncommitted",
                summaries=summaries,
                prefix=prefix,
                records=records,
                records_options=named(records_option, "the records"),
                schemas=schemas,
                reader_schema=reader_schema,
                mode=mode.value,
                key_provider=key_provider,
            )
            if format_ is Format.TABLE:
                print_table(
                    scan.schema, _rows(scan, limit, shown=False), _TABLE_ROWS if limit is None else limit
                )
            elif format_ is Format.PARQUET and output is not None:
                write_parquet(scan.schema, _rows(scan, limit, shown=True), output)
            else:
                write_jsonl(_rows(scan, limit, shown=output is not None or not sys.stdout.isatty()), output)


def _columns(given: str | None, level: Level, format_: Format | None) -> tuple[str, ...] | None:
    """The columns named, or those that a table of messages has room for; None for the level's own."""
    if given is not None:
        return tuple(name.strip() for name in given.split(","))
    return _TABLE_COLUMNS if format_ is Format.TABLE and level == "messages" else None


def _rows(scan: Scan, limit: int | None, *, shown: bool) -> Iterator[pa.RecordBatch]:
    """The scan's batches up to `limit` rows, with a bar on a terminal that tells how much has been read."""
    left = sys.maxsize if limit is None else limit
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=err,
        disable=not (shown and err.is_terminal),
        transient=True,
    ) as progress:
        bar = progress.add_task("reading", total=scan.data_bytes)
        for task, batches in scan.parts():
            for batch in batches:
                if left <= 0:
                    return
                yield batch.slice(0, left)
                left -= batch.num_rows
            progress.advance(bar, task.data_bytes)
