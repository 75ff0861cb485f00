"""`offload cat`: messages or entries of a topic or ledger, as a table, JSON lines or a Parquet file."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer

from offload_core.format.messages.message_columns import Level
from offload_core.interfaces.cli.progress import byte_bar
from offload_core.interfaces.cli.reading.rows import print_table, write_jsonl, write_parquet
from offload_core.interfaces.cli.reading.scan_options import MessagesRead, reads_messages
from offload_core.interfaces.cli.shared import (
    Debug,
    Driver,
    Layers,
    StorageOptions,
    Url,
    reported,
)
from offload_core.reading.scan import Scan
from offload_core.reading.scan import scan as scan_tier
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


@reads_messages()
def cat(
    url: Url,
    scan: MessagesRead,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="At most so many rows.")] = None,
    format_: Annotated[Format, typer.Option("--format", "-f", help="How to write rows.")] = Format.TABLE,
    output: Annotated[Path | None, typer.Option(help="Write to this file.", dir_okay=False)] = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    debug: Debug = False,
) -> None:
    """Print or write the messages (or stored entries) of topics, or of one ledger."""
    with reported(debug):
        options = scan.options()
        if not scan.topics and options.topics_pattern is None and options.ledger is None:
            raise OptionError("what is to be read?", expected="--topic, --topics-pattern or --ledger")
        if format_ is Format.PARQUET and output is None:
            raise OptionError("Parquet is written to a file", expected="--output FILE")
        if format_ is Format.TABLE and output is not None:
            raise OptionError(
                "a table is for the terminal", expected="--format jsonl or parquet with --output"
            )
        with scan.opened(url, driver, option, layer) as tier:
            if options.columns is None and options.schemas is None:
                options = options.having(columns=_columns(options.level, format_))
            rows = scan_tier(tier, scan.topics, options, task_bytes=_TASK_BYTES)
            if format_ is Format.TABLE:
                shown = _TABLE_ROWS if limit is None else limit
                print_table(rows.schema, _batches(rows, limit, shown=False), shown)
            elif format_ is Format.PARQUET and output is not None:
                write_parquet(rows.schema, _batches(rows, limit, shown=True), output)
            else:
                in_sight = output is not None or not sys.stdout.isatty()
                write_jsonl(_batches(rows, limit, shown=in_sight), output)


def _columns(level: Level, format_: Format) -> tuple[str, ...] | None:
    """The columns that a table of messages has room for; None for the level's own."""
    return _TABLE_COLUMNS if format_ is Format.TABLE and level == "messages" else None


def _batches(scan: Scan, limit: int | None, *, shown: bool) -> Iterator[pa.RecordBatch]:
    """The scan's batches up to `limit` rows, with a bar on a terminal that tells how much has been read."""
    left = sys.maxsize if limit is None else limit
    with byte_bar(shown=shown) as progress:
        bar = progress.add_task("reading", total=scan.data_bytes)
        for task, batches in scan.parts():
            for batch in batches:
                if left <= 0:
                    return
                yield batch.slice(0, left)
                left -= batch.num_rows
            progress.advance(bar, task.data_bytes)
