"""`offload cat`: messages or entries of a topic or ledger, as a table, JSON lines or a Parquet file.

`offload head`: the first messages of each topic.
"""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.table import Table
from rich.text import Text

from offload_core.format.messages.json_rows import json_lines, json_text, python_rows
from offload_core.format.messages.message_columns import Level
from offload_core.interfaces.cli.command_options import TierOptions, command, option_words
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.scan_options import MessagesRead
from offload_core.interfaces.cli.terminal import err, out, output_file, print_table, printable
from offload_core.metadata.catalogue import Topic
from offload_core.reading.scan import Scan, select_catalogue, select_topics
from offload_core.reading.scan import scan as scan_tier
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import OffloadError, OptionError

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
_TOPICS_AT_ONCE = 16


class RowFormat(str, enum.Enum):
    """Format of rows."""

    TABLE = "table"
    JSONL = "jsonl"
    PARQUET = "parquet"


@command()
def cat(
    where: TierOptions,
    scan: MessagesRead,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")] = None,
    format_: Annotated[
        RowFormat, typer.Option("--format", "-f", help="How to write rows.")
    ] = RowFormat.TABLE,
    output: Annotated[Path | None, typer.Option(help="Write to this file.", dir_okay=False)] = None,
) -> None:
    """Print or write the messages, or the stored entries, of topics or of one ledger.

    Examples:
        offload cat s3://bucket/prefix --topic acme/cold/orders --limit 10
        offload cat s3://bucket/prefix -t acme/cold/orders --start-time 2026-01-01T00:00:00Z --format jsonl
        offload cat s3://bucket/prefix -t acme/cold/orders --schemas schemas/ -f parquet --output orders.parquet
    """
    options = scan.options()
    if not scan.topics and options.topics_pattern is None and options.ledger is None:
        raise OptionError("nothing to read is named", expected="--topic, --topics-pattern or --ledger")
    if format_ is RowFormat.PARQUET and output is None:
        raise OptionError("Parquet goes to a file", expected="--output FILE")
    if format_ is RowFormat.TABLE and output is not None:
        raise OptionError("a table is for the terminal", expected="--format jsonl or parquet with --output")
    drop = _LEAST_NEEDED if options.columns is None else ()
    with scan.open(where) as tier:
        if options.columns is None and options.schemas is None:
            options = options.having(columns=_columns(options.level, format_))
        with long_work("planning"):
            rows = scan_tier(tier, scan.chosen(tier), options, task_bytes=_TASK_BYTES)
        if format_ is RowFormat.TABLE:
            shown = _TABLE_ROWS if limit is None else limit
            print_messages(rows.schema, _batches(rows, limit, shown=False), shown, drop)
        elif format_ is RowFormat.PARQUET and output is not None:
            write_parquet(rows.schema, _batches(rows, limit, shown=True), output)
        else:
            in_sight = output is not None or not sys.stdout.isatty()
            write_jsonl(_batches(rows, limit, shown=in_sight), output)


class HeadFormat(str, enum.Enum):
    """Format of the rows of several topics."""

    TABLE = "table"
    JSONL = "jsonl"


@command()
def head(
    where: TierOptions,
    scan: MessagesRead,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Of each topic at most so many rows.")
    ] = 5,
    format_: Annotated[
        HeadFormat, typer.Option("--format", "-f", help="How to write rows.")
    ] = HeadFormat.TABLE,
) -> None:
    """Show the first messages of each topic: one listing for all, and one small range of each.

    Without --topic and --topics-pattern of all. A topic that cannot be read is reported, and the command ends with 1.

    Examples:
        offload head s3://bucket/prefix
        offload head s3://bucket/prefix --topics-pattern '.*/orders.*' --limit 3
    """
    options = scan.options()
    drop = _LEAST_NEEDED if options.columns is None else ()
    with scan.open(where) as tier:
        if options.columns is None and options.schemas is None:
            options = options.having(columns=_columns(options.level, RowFormat(format_)))
        selection = options.selection(scan.chosen(tier))
        catalogue = select_catalogue(tier, selection, options, read_indexes=False)
        alone = options.having(prefix="", records=None, records_options=None, topics_pattern=None)

        def read(topic: Topic) -> tuple[Topic, pa.Table | OffloadError]:
            names = () if topic.name is None else topic.name.full
            try:
                rows = scan_tier(tier, names, alone, catalogue=replace(catalogue, topics=(topic,)))
                return topic, rows.head(limit)
            except OffloadError as error:
                return topic, error

        topics = select_topics(catalogue, selection)
        if not topics:
            raise OptionError("no topic is here", found=str(tier.store))
        has_failed = False
        heads = bounded_map(read, topics, at_once=_TOPICS_AT_ONCE, name="offload-head")
        with contextlib.closing(heads):
            for topic, found in heads:
                if isinstance(found, OffloadError):
                    has_failed = True
                    err.print(Text(f"{topic.label}: {found.name_options(option_words)}"))
                elif format_ is HeadFormat.JSONL:
                    write_jsonl(found.to_batches(), None)
                else:
                    out.print(Text(topic.label, style="bold"))
                    print_messages(found.schema, found.to_batches(), limit, drop)
                    out.print()
        if has_failed:
            raise typer.Exit(1)


def _columns(level: Level, format_: RowFormat) -> tuple[str, ...] | None:
    """The columns that a table of messages has room for; None for the level's own."""
    return _TABLE_COLUMNS if format_ is RowFormat.TABLE and level == "messages" else None


def _batches(scan: Scan, limit: int | None, *, shown: bool) -> Iterator[pa.RecordBatch]:
    """The scan's batches up to `limit` rows, with a bar of progress on a terminal."""
    left = sys.maxsize if limit is None else limit
    with long_work("reading", shown=shown) as work:
        work.update(whole_bytes=scan.data_bytes)
        for task, batches in scan.parts():
            for batch in batches if left > 0 else ():
                yield batch.slice(0, left)
                left -= batch.num_rows
                if left <= 0:
                    return
            work.advance(task.data_bytes)


_SHOWN_CHARACTERS = 60

_LEAST_NEEDED = (
    "__batchIndex", "__messageProperties", "__partition", "__sequenceId", "__producerName", "__eventTime",
    "__messageId", "__topic", "__publishTime", "__key",
)  # fmt: skip
_NAMES_AND_NUMBERS = ("__ledgerId", "__entryId", "__batchIndex", "__publishTime", "__key", "__topic")


def print_messages(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], limit: int, drop: Sequence[str]
) -> None:
    """Print at most `limit` rows, and a note if there are more; see `print_table` for `drop`."""
    table = Table(*schema.names, box=None, pad_edge=False)
    prose = [name for name in schema.names if name not in _NAMES_AND_NUMBERS]
    for count, row in enumerate(python_rows(batches)):
        if count == limit:
            print_table(table, drop=drop, prose=prose)
            err.print(
                f"{limit} rows are shown; there are more. Ask with --limit, or write all with --format."
            )
            return
        table.add_row(*(Text(_shown(row[name])) for name in schema.names))
    print_table(table, drop=drop, prose=prose)


def write_jsonl(batches: Iterable[pa.RecordBatch], output: Path | None) -> None:
    """Write one JSON object a line, to `output` or the standard output."""
    lines = json_lines(batches)
    if output is None:
        for line in lines:
            sys.stdout.write(line)
        sys.stdout.flush()
        return
    with output_file(output) as file:
        file.writelines(line.encode() for line in lines)


def write_parquet(schema: pa.Schema, batches: Iterable[pa.RecordBatch], output: Path) -> None:
    """Write a Parquet file (zstd)."""
    with output_file(output) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bytes):
        value = _text_of(value)
    elif isinstance(value, dict | list):
        value = json_text(value)
    text = printable(str(value))
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"


def _text_of(data: bytes) -> str:
    try:
        text = " ".join(data[: 4 * _SHOWN_CHARACTERS].decode().split())
    except UnicodeDecodeError:
        return data[:_SHOWN_CHARACTERS].hex()
    return text if text.isprintable() else data[:_SHOWN_CHARACTERS].hex()
