"""Help as people read it: options in groups, names whole, examples at the end, in plain text that fits 80 columns.

A command's docstring is its help. What follows a line `Examples:` is shown last and as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

_EXAMPLES = "\nExamples:\n"
_NAMES_WIDTH = 30
_KINDS = {
    "<str>": "TEXT",
    "<list[str]>": "TEXT",
    "<int>": "N",
    "<int range>": "N",
    "<float>": "NUMBER",
    "<file>": "FILE",
    "<directory>": "FOLDER",
    "<path>": "PATH",
}
"""The kinds of values, as typer calls them and as help does."""

_KIND = re.compile(r"<[a-z\[\] ]+>$")
_ARGUMENT = re.compile(r"\{([\w|]+)\}|(?<=\[)([a-z]\w*)(?=\])")


def _upper(name: str) -> str:
    return name.upper().replace("_", "-")


def split_help(help_: str | None) -> tuple[str, list[str]]:
    """Split the help of a command into what describes it, and its examples."""
    described, _, examples = (help_ or "").partition(_EXAMPLES)
    return described.strip(), [line.strip() for line in examples.strip().splitlines()]


class HelpedCommand(TyperCommand):
    """A command whose options are in groups, by the `rich_help_panel` of each."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what follows the command's name in its usage; arguments in capitals."""
        return [
            _ARGUMENT.sub(lambda found: _upper(found[1] or found[2]), each)
            for each in super().collect_usage_pieces(ctx)
        ]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the help without its examples."""
        whole, self.help = self.help, split_help(self.help)[0]
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = whole

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, and options by their groups."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is None:
                continue
            names, help_ = record
            if each.param_type_name == "argument":
                title, names = "Arguments", _upper(each.metavar or each.name)
                help_ = help_.removesuffix("[required]").rstrip()
            else:
                title = getattr(each, "rich_help_panel", None) or "Options"
                names = _KIND.sub(lambda kind: _KINDS.get(kind[0], kind[0]), names)
            groups.setdefault(title, []).append((names, help_))
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records, col_max=_NAMES_WIDTH)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples."""
        examples = split_help(self.help)[1]
        if examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {line}\n" for line in examples))
        super().format_epilog(ctx, formatter)


class HelpedGroup(TyperGroup):
    """A group that lists its commands with their first lines whole, in sections if `sections` has their names."""

    sections: Mapping[str, Sequence[str]] = MappingProxyType({})

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands."""
        for title, names in (self.sections or {"Commands": self.list_commands(ctx)}).items():
            with formatter.section(title):
                formatter.write_dl([(name, self._first_line(ctx, name)) for name in names])

    def _first_line(self, ctx: Any, name: str) -> str:
        found = self.get_command(ctx, name)
        assert found is not None
        return " ".join((found.help or "").partition("\n\n")[0].split())

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `help COMMAND` for `COMMAND --help`."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)


def is_usage_error(error: BaseException) -> bool:
    """Return True for an error of typer's: a wrong option or name. Where its class is differs by typer's version."""
    return hasattr(error, "format_message")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"offload {version('pulsar-offload')}")
        raise typer.Exit


def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """See and read what Apache Pulsar offloaded, without a broker."""


class CommandGroup(typer.Typer):
    """Commands with such help. The help of one that is called alone is that of its callback."""

    def __init__(self, help_: str | None = None, *, cls: type[TyperGroup] = HelpedGroup, **more: Any) -> None:
        if help_ is not None:
            more |= {"help": help_, "no_args_is_help": True}
        names = {"help_option_names": ["-h", "--help"]}
        super().__init__(cls=cls, rich_markup_mode=None, context_settings=names, **more)

    def command(self, name: str | None = None, **more: Any) -> Any:
        """See `Typer.command`."""
        return super().command(name, cls=HelpedCommand, **more)
