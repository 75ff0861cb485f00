"""A group of commands that are imported when they are called; to list them their names and first lines are enough."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCommand:
    """A command of the first level, and where it is.

    Attributes:
        module: which has it.
        function: of that module: the command itself, or if `is_group` what makes the `Typer` of its commands.
        help: the first line of its own help.
    """

    name: str
    module: str
    function: str
    help: str
    is_group: bool = False

    def load(self) -> Any:
        """The command itself, with all its options."""
        found = getattr(import_module(self.module), self.function)
        if self.is_group:
            return get_group(found())
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(found)
        return get_command(alone)


def group_class(commands: tuple[LateCommand, ...]) -> type[TyperGroup]:
    """The class of a group that has stand-ins of these, and calls the commands themselves."""
    by_name = {each.name: each for each in commands}

    class Late(TyperGroup):
        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, found, rest = super().resolve_command(ctx, args)
            return name, found if name is None or found is None else by_name[name].load(), rest

    return Late


def add_late(app: typer.Typer, commands: tuple[LateCommand, ...]) -> None:
    """Add stand-ins, which are seen in the help and in completion."""
    for each in commands:
        app.command(each.name, help=each.help)(_stand_in)


def _stand_in() -> None:
    raise AssertionError("the command itself is called")
