"""Output of commands: text that cannot steer a terminal, tables, sizes, JSON as it is made, files."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from textwrap import wrap
from time import monotonic, sleep
from typing import Any, BinaryIO

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from offload_core.metadata.catalogue.summaries import bytes_text
from offload_hooks.private_files import replacing
from offload_hooks.shown_urls import masked

_READER_WAIT_S = 5
"""The time to wait for a process that reads a pipe."""

# Lines are broken for people only: what goes into a pipe or file is for `grep`.
out = Console(width=None if sys.stdout.isatty() else 100_000)
"""Results go here."""
err = Console(stderr=True)
"""Errors, warnings and progress go here."""


def printable(text: str) -> str:
    """Text that may come from a store, with what could steer the terminal escaped, line breaks as well."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_LONGEST_CELL = 2000
"""Characters: more than any key of a store has. All rows of a table are as wide as its longest cell."""


def cell(text: str | None) -> Text:
    """Text for a table, as it is: no markup, nothing that steers the terminal; what is far too long is cut."""
    shown = printable((text or "")[:_LONGEST_CELL])
    return Text(f"{shown}… ({len(text)} characters)" if text and len(text) > _LONGEST_CELL else shown)


def table_of(*names: str, right: Collection[str] = ()) -> Table:
    """A table of these columns, some of them to the right."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in right else "left")
    return table


_LEAST_PROSE = 20
"""Characters of a line of text that is folded, at least."""
_BETWEEN = 2
"""Blanks between two columns, and before what stands below a row."""


def print_table(table: Table, *, drop: Collection[str] = (), prose: Collection[str] = ()) -> None:
    """Print a table whose names, keys and numbers are never broken.

    Args:
        drop: columns that a terminal may have no room for: the first ones go first. What is too wide then runs over.
        prose: columns whose text is folded to the room that there is; where there is none, it stands below its row.
    """
    for column in table.columns:
        column.no_wrap, column.overflow = str(column.header) not in prose, "fold"
    if not out.is_terminal:
        out.print(table, crop=False)
        return
    table, below = _fitted(table, drop), []
    if _least(table) > out.width:
        below = [column for column in table.columns if not column.no_wrap]
        for column in below:
            table = _without(table, str(column.header))
        table.width = _least(table)
    _print_rows(table, below)


def _fitted(table: Table, drop: Collection[str]) -> Table:
    for column in table.columns:
        column.max_width = _widest(column)
        column.min_width = column.max_width if column.no_wrap else min(column.max_width, _LEAST_PROSE)
    for name in drop:
        if _least(table) <= out.width:
            break
        table = _without(table, name)
    most = _with_gaps(column.max_width or 0 for column in table.columns)
    table.width = max(_least(table), min(most, out.width))
    return table


def _least(table: Table) -> int:
    return _with_gaps(column.min_width or 0 for column in table.columns)


def _widest(column: Column) -> int:
    wide = out.options.update(width=_WIDEST)
    return max(Measurement.get(out, wide, each).maximum for each in (column.header, *column.cells))


_WIDEST = 100_000


def _with_gaps(widths: Iterable[int]) -> int:
    return sum(each + _BETWEEN for each in widths) - _BETWEEN


def _print_rows(table: Table, below: Sequence[Column]) -> None:
    """Print lines without the blanks at their ends, which would run over, and after each row what stands below it."""
    lines = iter(out.render_lines(table, out.options.update(width=table.width or out.width), pad=False))
    texts = zip(*(column.cells for column in below), strict=True)
    cells = zip(*(column.cells for column in table.columns), strict=True)
    if table.show_header:
        _print_line(next(lines, []))
    for row, of_row in zip(cells, texts, strict=True) if below else ():
        for line in islice(lines, max(str(each).count("\n") + 1 for each in row)):
            _print_line(line)
        for column, text in zip(below, of_row, strict=True):
            if str(text):
                _print_folded(out, f"{' ' * _BETWEEN}{column.header}: {text}")
    for line in lines:
        _print_line(line)


def _print_line(segments: Sequence[Segment]) -> None:
    text = Text.assemble(*((each.text, each.style or "") for each in segments))
    text.rstrip()
    out.print(text, soft_wrap=True)


def _print_folded(console: Console, text: str, style: str = "") -> None:
    """Print a line; on a terminal it is folded between words, and goes on where it began."""
    if console.is_terminal:
        indent = " " * (len(text) - len(text.lstrip(" ")))
        lines = wrap(
            text, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        text = "\n".join(lines)
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _without(table: Table, name: str) -> Table:
    kept = [column for column in table.columns if str(column.header) != name]
    less = Table(box=None, pad_edge=False, show_header=table.show_header, style=table.style)
    for column in kept:
        less.add_column(
            column.header,
            justify=column.justify,
            no_wrap=column.no_wrap,
            overflow=column.overflow,
            min_width=column.min_width,
            max_width=column.max_width,
        )
    for row in zip(*(column.cells for column in kept), strict=True):
        less.add_row(*row)
    return less


def size(count: int | None) -> str:
    """Bytes as text."""
    return "–" if count is None else bytes_text(count)


def time(moment: datetime) -> str:
    """A time as text, in UTC."""
    return f"{moment:%Y-%m-%d %H:%MZ}"


def duration(seconds: float) -> str:
    """A time that something took as text, as bars show it."""
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


def id_ranges(ids: Sequence[int]) -> str:
    """Ascending ids in short: those that follow one another as first and last, as in `3, 5–9`."""
    firsts = [i for i, each in enumerate(ids) if not i or each != ids[i - 1] + 1]
    pairs = ((ids[begin], ids[end - 1]) for begin, end in pairwise([*firsts, len(ids)]))
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in pairs)


def warn(what: str) -> None:
    """Print a warning on the standard error."""
    print_note(f"offload: warning: {what}", "yellow")


def print_line(text: str, style: str = "") -> None:
    """Print a line; on a terminal it is folded between words."""
    _print_folded(out, printable(text), style)


def print_note(text: str, style: str = "") -> None:
    """Print a line on the standard error, as `print_line` does."""
    _print_folded(err, printable(text), style)


def print_failure(text: str) -> None:
    """Print in red what failed, on the standard error."""
    print_note(f"offload: {text}", "red")


def print_unexpected(error: BaseException) -> None:
    """Print an error that nothing in the program expects: in one line, and where its trace is."""
    print_failure(masked(f"unexpected {type(error).__name__}: {error}"))
    print_failure("this is a fault of pulsar-offload; please report it with what --debug prints")


def print_streamed(value: Any) -> None:
    """Print a value as JSON while it is made: an iterator in it is a list, a line for each item; functions are called
    when it is their turn."""
    _print(value)
    typer.echo()


def _print(value: Any) -> None:
    if isinstance(value, Iterator):
        _print_items("[", value, "]")
    elif callable(value):
        _print(value())
    elif isinstance(value, Mapping) and any(isinstance(each, Iterator) for each in value.values()):
        typer.echo("{", nl=False)
        for number, (name, each) in enumerate(value.items()):
            typer.echo(f"{', ' if number else ''}{json.dumps(name)}: ", nl=False)
            _print(each)
        typer.echo("}", nl=False)
    else:
        typer.echo(json.dumps(value), nl=False)


def _print_items(opening: str, items: Iterator[Any], closing: str) -> None:
    separator = f"{opening}\n"
    for item in items:
        typer.echo(separator, nl=False)
        _print(item)
        separator = ",\n"
    typer.echo(closing if separator == ",\n" else f"{opening}{closing}", nl=False)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """A file that a user wants output in: replaced when it is whole. An existing pipe or terminal is written to.

    Raises:
        OSError: it cannot be written; `ENXIO` for a pipe that no process reads, after some seconds.
    """
    kind = stat.S_IFMT(path.stat().st_mode) if path.exists() else 0
    if kind not in (stat.S_IFIFO, stat.S_IFCHR):
        with replacing(path) as file:
            yield file
        return
    descriptor = _opened_pipe(path)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        yield file


def _opened_pipe(path: Path) -> int:
    until = monotonic() + _READER_WAIT_S
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO or monotonic() > until:
                raise
            sleep(0.01)
