"""Options that commands have in common, as groups; errors as one line; sizes and durations as they are typed.

`command` makes a function a command. A parameter of it that is an `OptionGroup` becomes the group's options, which come
after the command's own in its help.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import stamina
import typer
from typer.models import ArgumentInfo

from offload_core.interfaces.cli.command_help import is_usage_error
from offload_core.interfaces.cli.terminal import err, print_failure, print_unexpected, printable
from offload_core.metadata.catalogue import Records, TierReader, TopicName, open_records, open_tier
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.storage.executors import Executor, ProcessExecutor, ThreadExecutor
from offload_hooks.errors import (
    MissingExtraError,
    OffloadError,
    OptionError,
    UnknownLedgerError,
    UnknownPluginError,
    UnknownTopicError,
)
from offload_hooks.shown_urls import masked

if TYPE_CHECKING:  # imported by commands that change something
    from offload_core.writing.audit import FileAuditLog

# --- options of several commands ---------------------------------------------------------------

Prefix = Annotated[str, typer.Option(help="Only objects whose keys begin with this.")]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC|PATTERN",
        help="Only this topic, or all its partitions; also a namespace, a tenant, or a pattern: acme/cold/*; may be "
        "given again.",
    ),
]
Namespaces = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace", metavar="TENANT/NAMESPACE", help="Only topics of this namespace; may be given again."
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
AllowEmpty = Annotated[
    bool, typer.Option("--allow-empty", help="Do not fail if there is nothing to look at.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Debug = Annotated[bool, typer.Option("--debug", help="Show the whole trace of an error.")]


Hot = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:OPTION=VALUE,…]",
        help="With --records: the store of ledgers that are not offloaded yet: bookkeeper:url=zk://zk-1:2181, for "
        "instance.",
    ),
]


class OptionGroup:
    """Options that several commands have: the parameters of its constructor.

    Attributes:
        title: of the group in help, for options that name no other.
    """

    __slots__ = ()
    title: ClassVar[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierOptions(OptionGroup):
    """The tier that a command works on."""

    title = "How the tier is opened"

    url: Annotated[
        str,
        typer.Argument(help="The tier: a URL (file:///data/tier), a path or its name.", show_default=False),
    ]
    driver: Annotated[
        str | None, typer.Option(help="A driver's name, instead of the one of the URL's scheme.")
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="NAME=VALUE", help="An option of the driver; may be given again."
        ),
    ] = None
    layer: Annotated[
        list[str] | None,
        typer.Option(
            "--layer",
            metavar="NAME[:OPTION=VALUE,…]",
            help="A layer before the driver, instead of its default ones; may be given again, outermost first.",
        ),
    ] = None

    def open(self, hot: str | None = None) -> TierReader:
        """Open the tier, together with a hot one."""
        options = named(self.option, "the driver")
        return open_tier(self.url, driver=self.driver, layers=self.layer, hot=hot, **options)


RecordsOpener = Callable[[], AbstractContextManager[Records]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions(OptionGroup):
    """Managed ledgers' records, and where they are."""

    title = "Managed ledgers' records"

    records: Annotated[
        str | None,
        typer.Option(
            metavar="[TOPIC=]PATH",
            help="Managed ledgers' records that say what there is, instead of a listing: a file, a folder tree, or a "
            "URL: also of a broker's admin REST (http:, https:) or a ZooKeeper (zk:).",
        ),
    ] = None
    records_option: Annotated[
        list[str] | None,
        typer.Option(
            "--records-option",
            metavar="NAME=VALUE",
            help="An option of --records' place; may be given again.",
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return the options of the records' place."""
        return named(self.records_option, "the records")

    def opener(self, tier: TierReader) -> RecordsOpener | None:
        """Return what opens the records; None if none are given."""
        if self.records is None:
            return None
        return partial(open_records, self.records, tier.store, tier.options, self.given())

    def read(self, tier: TierReader) -> Mapping[TopicName, ManagedLedgerInfo] | None:
        """Read all records; None if none are given."""
        return None if self.records is None else tier.records(self.records, self.given())

    def require(self, why: str) -> str:
        """Return the records' URL; refuse a command without it (`OptionError`)."""
        if self.records is None:
            raise OptionError(why, expected="--records URL")
        return self.records

    def require_for(self, hot: str | None) -> None:
        """Refuse a hot tier without records (`OptionError`)."""
        if hot is not None:
            self.require("the ledgers of a hot tier are named by records")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions(OptionGroup):
    """Consent to changes, and the log of them."""

    title = "Consent"

    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Do it; needs --audit-log. Without it the command shows what it would do."
        ),
    ] = False
    audit_log: Annotated[
        Path | None,
        typer.Option(
            "--audit-log",
            metavar="FILE",
            help="Where each change is recorded before it is made; needed with --yes.",
        ),
    ] = None

    def open_log(self) -> FileAuditLog | None:
        """Open the audit log; None for a dry run.

        Raises:
            OptionError: `--yes` without `--audit-log`.
            StoreError: the file cannot be written.
        """
        if not self.yes:
            return None
        from offload_core.writing.audit import FileAuditLog

        if self.audit_log is None:
            raise OptionError("each change is recorded", expected="--audit-log FILE")
        log = FileAuditLog(self.audit_log)
        log.check_writable()
        return log

    def show_next_step(self, would_change: object) -> None:
        """Print what does it, after a dry run that found something to be done."""
        if would_change and not self.yes:
            err.print("this was a dry run: --yes --audit-log FILE does it", highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorOptions(OptionGroup):
    """Threads, processes or Spark, for a command with much work."""

    title = "Where the work is done"

    master: Annotated[
        str | None,
        typer.Option(
            help="A Spark master, or a Spark Connect server (sc://host:port): its executors do the work."
        ),
    ] = None
    workers: Annotated[int | None, typer.Option(min=1, help="So many at once; one a core by default.")] = None
    processes: Annotated[bool, typer.Option("--processes", help="Processes instead of threads.")] = False

    @contextmanager
    def open(self) -> Iterator[Executor]:
        """Start what does the work.

        Raises:
            OptionError: `--master` with `--workers` or `--processes`. MissingExtraError: Spark is not installed.
            OffloadError: the Spark Connect server does not answer.
        """
        if self.master is None:
            yield ProcessExecutor(self.workers) if self.processes else ThreadExecutor(self.workers)
            return
        if self.processes or self.workers is not None:
            raise OptionError(
                "Spark decides how much runs at once", expected="--master without --workers, --processes"
            )
        try:
            from offload_core.interfaces.engines.spark.executor import SparkExecutor, start_session
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"--master needs the module {error.name!r}, which is not installed",
                hint="Install it: pip install 'pulsar-offload[spark]'",
            ) from error
        session = start_session(self.master)
        try:
            yield SparkExecutor(session)
        finally:
            session.stop()


# --- commands ----------------------------------------------------------------------------------

_Function = Callable[..., None]


def command(*, failed: int = 1) -> Callable[[_Function], _Function]:
    """Make a function a command: its groups become options, and its errors one line.

    Args:
        failed: the exit code of an error that is not the caller's.
    """

    def decorate(function: _Function) -> _Function:
        own: list[inspect.Parameter] = []
        groups: dict[str, tuple[type[OptionGroup], list[inspect.Parameter]]] = {}
        for each in inspect.signature(function, eval_str=True).parameters.values():
            if isinstance(each.annotation, type) and issubclass(each.annotation, OptionGroup):
                groups[each.name] = each.annotation, group_parameters(each.annotation)
            else:
                own.append(each.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        # in help the options of a tier, which come first here, are last
        grouped = [each for _, parameters in reversed(groups.values()) for each in parameters]
        debug = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Debug)

        @functools.wraps(function)
        def run(debug: bool = False, **given: Any) -> None:
            with _reported(debug, failed=failed):
                values = {
                    name: group(**{each.name: given.pop(each.name) for each in parameters})
                    for name, (group, parameters) in groups.items()
                }
                function(**values, **given)

        arguments = [each for each in grouped if _is_argument(each)]
        options = [each for each in grouped if not _is_argument(each)]
        run.__signature__ = inspect.Signature([*arguments, *own, *options, debug])  # type: ignore[attr-defined]
        return run

    return decorate


def group_parameters(group: type[OptionGroup]) -> list[inspect.Parameter]:
    """Return the options of a group, as parameters, with the title under which help shows each."""
    parameters = inspect.signature(group, eval_str=True).parameters.values()
    return [
        each.replace(annotation=titled(each.annotation, _title(each) or group.title)) for each in parameters
    ]


def titled(annotation: Any, title: str) -> Any:
    """Put an option under a title in help."""
    kind, option = annotation.__origin__, copy.copy(annotation.__metadata__[0])
    option.rich_help_panel = title
    return Annotated[kind, option]


def _title(parameter: inspect.Parameter) -> str | None:
    title: str | None = parameter.annotation.__metadata__[0].rich_help_panel
    return title


def _is_argument(parameter: inspect.Parameter) -> bool:
    return any(isinstance(each, ArgumentInfo) for each in getattr(parameter.annotation, "__metadata__", ()))


# --- errors ------------------------------------------------------------------------------------

_CALLERS_ERRORS = (OptionError, UnknownPluginError, UnknownTopicError, UnknownLedgerError, FileNotFoundError)
"""Wrong options, and names of what does not exist: a tier's root and an object are files that are not found."""


@contextmanager
def _reported(debug: bool, *, failed: int = 1) -> Iterator[None]:
    """Turn errors into one line and an exit code: 2 for wrong options and names, `failed` for all else."""
    handler: logging.Handler = logging.StreamHandler()
    if err.is_terminal:
        from rich.logging import RichHandler

        handler = RichHandler(console=err, show_time=False, show_level=False, show_path=False)
    handler.setFormatter(_OneLine("%(message)s"))
    stamina.instrumentation.set_on_retry_hooks([])  # the layer `retry` logs it with hook and key
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        yield
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the exit
        raise typer.Exit(1) from None
    except Exception as error:
        if isinstance(error, (typer.Exit, typer.Abort)) or is_usage_error(error):
            raise
        if debug:
            sys.stderr.write(masked("".join(traceback.format_exception(error))))
        elif isinstance(error, OffloadError):
            print_failure(masked(str(error.name_options(option_words))))
        elif isinstance(error, OSError):
            print_failure(masked(str(error)))
        else:
            print_unexpected(error)
        raise typer.Exit(2 if isinstance(error, _CALLERS_ERRORS) else failed) from None


def flag(word: str) -> str:
    """An option of the Spark source as one of the command line."""
    return "--" + re.sub("([A-Z])", r"-\1", word).lower()


def option_words(name: str, value: str | None) -> str:
    """An option as it is typed; of a driver as its `--option`."""
    from offload_core.reading.scan.options import WORDS

    if name.startswith("storage."):
        return f"--option {name.removeprefix('storage.')}={value or '…'}"
    typed = flag(WORDS[name][0] if name in WORDS else name)  # a driver of others may name any
    if value in ("true", "false"):
        return typed if value == "true" else f"--no-{typed.removeprefix('--')}"
    return typed + (f" {value}" if value else "")


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(masked(f"offload: {record.levelname.lower()}: {super().format(record)}"))


# --- values as they are typed ------------------------------------------------------------------


def named(options: Sequence[str] | None, whose: str) -> dict[str, Any]:
    """Parse options of the form NAME=VALUE."""
    found: dict[str, Any] = {}
    for option in options or ():
        name, separator, value = option.partition("=")
        if not name or not separator:
            raise OptionError(
                f"an option of {whose} has another form", expected="NAME=VALUE", found=repr(name)
            )
        found[name] = value
    return found


_AMOUNT = re.compile(r"(?P<number>-?[0-9]{1,18})\s*(?P<unit>[a-zA-Z]*)")
_SIZES = {"": 1, "b": 1} | {
    f"{letter}{rest}": base**power
    for power, letter in enumerate("kmgt", 1)
    for rest, base in (("b", 1000), ("ib", 1024), ("", 1024))
}
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_size(text: str) -> int:
    """Parse a size: in kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (of 1024), or a number of bytes.

    A letter alone is one of 1024, as `pulsar-admin` takes it. Negative ones have no unit, and mean none.
    """
    return _parse(
        text, _SIZES, "a size", "10MB, 1GiB (1G as in pulsar-admin is the same) or a number of bytes"
    )


def parse_seconds(text: str) -> int:
    """Parse a duration in seconds, as `pulsar-admin` takes it. Negative ones have no unit, and mean none."""
    return _parse(text, _SECONDS, "a duration", "300, 5m, 2h or 1d")


def _parse(text: str, units: dict[str, int], what: str, expected: str) -> int:
    match = _AMOUNT.fullmatch(text.strip())
    unit = None if match is None else units.get(match["unit"].lower())
    if match is None or unit is None or (match["unit"] and match["number"].startswith("-")):
        raise OptionError(f"this is not {what}", expected=expected, found=text)
    return int(match["number"]) * unit
