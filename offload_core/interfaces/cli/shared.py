"""What all commands share: arguments of a tier, errors as one line, bytes and times for people."""

from __future__ import annotations

import errno
import logging
import os
import stat
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import stamina
import typer
from rich.console import Console
from rich.filesize import decimal
from rich.logging import RichHandler
from rich.table import Table
from rich.text import Text

from offload_core.metadata.catalogue import TierReader, open_tier
from offload_hooks.errors import (
    OffloadError,
    OptionError,
    UnknownLedgerError,
    UnknownPluginError,
    UnknownTopicError,
)
from offload_hooks.private_files import replacing
from offload_hooks.shown_urls import masked

if TYPE_CHECKING:  # imported by commands that change something
    from offload_core.writing.audit import FileAuditLog

_ASKED_WRONGLY = (OptionError, UnknownPluginError, UnknownTopicError, UnknownLedgerError, FileNotFoundError)
"""What makes no sense, and names of what is not there: a tier's root and an object are files that are not found."""

Url = Annotated[
    str, typer.Argument(help="The tier: a URL (file:///data/tier) or a path.", show_default=False)
]
Driver = Annotated[str | None, typer.Option(help="A driver's name, instead of the one of the URL's scheme.")]
StorageOptions = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="NAME=VALUE", help="An option of the driver; may be given again."),
]
Layers = Annotated[
    list[str] | None,
    typer.Option(
        "--layer",
        metavar="NAME[:OPTION=VALUE,…]",
        help="A layer before the driver, instead of its default ones; may be given again, outermost first.",
    ),
]
Prefix = Annotated[str, typer.Option(help="Only objects whose keys begin so.")]
TopicGlobs = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="PATTERN",
        help="Only topics of such names: acme/cold/*, a topic with its partitions, a tenant, a namespace; may be given "
        "again.",
    ),
]
TopicNames = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Only this topic, or all its partitions; may be given again."),
]
Namespaces = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace", metavar="TENANT/NAMESPACE", help="Only topics of this namespace; may be given again."
    ),
]
Records = Annotated[
    str | None,
    typer.Option(
        metavar="[TOPIC=]PATH",
        help="Managed ledgers' records that say what there is, instead of a listing: a file, a folder tree, or a URL: "
        "also of a broker's admin REST (http:, https:) or a ZooKeeper (zk:).",
    ),
]
RecordsOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--records-option", metavar="NAME=VALUE", help="An option of --records' place; may be given again."
    ),
]
Schemas = Annotated[
    str | None,
    typer.Option(
        metavar="PATH|URL|JSON|PROVIDER",
        help="Who knows the topics' schemas: saved ones, a literal one, or a provider's name. Payloads become columns.",
    ),
]
KeyProvider = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:OPTION=VALUE,…]",
        help="Who has the keys of encrypted messages: pem:directory=/keys, for instance.",
    ),
]
Yes = Annotated[
    bool,
    typer.Option("--yes", help="Do it; needs --audit-log. Without it what would be done is shown, and why."),
]
AuditLogFile = Annotated[
    Path | None,
    typer.Option(
        "--audit-log",
        metavar="FILE",
        help="Where each change is recorded before it is made; needed with --yes.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")]

_READER_WAIT_S = 5
"""How long a pipe that no process reads yet is waited for."""

# Lines are broken for people only: what goes into a pipe or file is for `grep`.
out = Console(width=None if sys.stdout.isatty() else 100_000)
"""What was asked for goes here."""
err = Console(stderr=True)
"""Errors, warnings and progress go here."""


@contextmanager
def reported(debug: bool, *, failed: int = 1) -> Iterator[None]:
    """Errors become one readable line and an exit code: 2 for what was asked for wrongly, `failed` for all else.

    Wrong is also the name of something that does not exist.
    """
    handler: logging.Handler = logging.StreamHandler()
    if err.is_terminal:
        handler = RichHandler(console=err, show_time=False, show_path=False)
    handler.setFormatter(_OneLine("%(message)s"))
    stamina.instrumentation.set_on_retry_hooks([])  # the layer `retry` says it with hook and key
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        yield
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the exit
        raise typer.Exit(1) from None
    except (OffloadError, OSError) as error:
        if debug:
            sys.stderr.write(masked("".join(traceback.format_exception(error))))
        else:
            err.print(
                printable(masked(f"offload: {error}")),
                style="red",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        raise typer.Exit(2 if isinstance(error, _ASKED_WRONGLY) else failed) from None


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """A file that a user wants output in: replaced when it is whole. A pipe or terminal that is there is written to.

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


def audit_of(yes: bool, path: Path | None) -> FileAuditLog | None:
    """Where changes are recorded; None in a dry run.

    Raises:
        OptionError: it is to be done, and there is no such place.
        StoreError: the file cannot be written.
    """
    if not yes:
        return None
    from offload_core.writing.audit import FileAuditLog

    if path is None:
        raise OptionError("each change is recorded", expected="--audit-log FILE")
    log = FileAuditLog(path)
    log.check_writable()
    return log


def opened(
    url: str, driver: str | None, options: Sequence[str] | None, layers: Sequence[str] | None = None
) -> TierReader:
    """The tier that the arguments name."""
    return open_tier(url, driver=driver, layers=layers, **named(options, "the driver"))


def named(options: Sequence[str] | None, whose: str) -> dict[str, Any]:
    """Options of the form NAME=VALUE by their names."""
    found: dict[str, Any] = {}
    for option in options or ():
        name, separator, value = option.partition("=")
        if not name or not separator:
            raise OptionError(
                f"an option of {whose} has another form", expected="NAME=VALUE", found=repr(name)
            )
        found[name] = value
    return found


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
    """A table of these columns, some of them to the right; what is too wide is folded, and nothing is left out."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(masked(super().format(record)))


def size(count: int | None) -> str:
    """Bytes for people."""
    return "–" if count is None else decimal(count)


def time(moment: datetime) -> str:
    """A time for people, in UTC."""
    return f"{moment:%Y-%m-%d %H:%MZ}"
