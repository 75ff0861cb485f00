"""Completion in shells without the import of any command: options by a file, tiers' names, topics by local sidecars.

The file `completions.tsv` is made from the commands themselves (`make reference`). A line without a tab at its start is
a command; each line after it a parameter: kind, names, values, help. Sidecars: docs/formats/sidecar.md.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.resources import files
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Annotated, Any
from urllib.parse import unquote_plus

import typer
from typer.main import get_command, get_group

from offload_core.interfaces.cli.command_help import CommandGroup
from offload_core.storage.named_tiers import named_tiers
from offload_hooks.errors import MetadataError, OptionError
from offload_hooks.json_text import JsonObject

TOPICS = "TOPICS"
"""In place of values: the topics of the tier."""
TIERS = "TIERS"
"""In place of values: the names of tiers in the user's file and the environment."""

_MOST_FILES = 2000
_MOST_S = 0.1
"""A larger tier, or a slower one, has some of its topics completed."""

Outlined = dict[str, list[list[str]]]
"""The parameters of commands, by their whole names."""


def is_completing() -> bool:
    """Return whether a shell asks for completions, by the variable that typer's scripts set."""
    return "_OFFLOAD_COMPLETE" in os.environ


def outline(name: str) -> Any:
    """A command of the first level, with all parameters, that does nothing."""
    commands = _read(name)
    if list(commands) == [name]:
        alone = CommandGroup(add_completion=False)
        alone.command(name)(_function(commands[name]))
        return get_command(alone)
    group = CommandGroup(add_completion=False)
    group.callback()(_function(commands.pop(name, [])))
    for whole, parameters in commands.items():
        group.command(whole.removeprefix(f"{name} "))(_function(parameters))
    return get_group(group)


def _read(name: str) -> Outlined:
    commands: Outlined = {}
    parameters: list[list[str]] = []
    text = files("offload_core.interfaces.cli").joinpath("completions.tsv").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("\t"):
            parameters.append(line[1:].split("\t"))
        else:
            parameters = []
            if line == name or line.startswith(f"{name} "):
                commands[line] = parameters
    return commands


def _function(parameters: list[list[str]]) -> Callable[..., None]:
    def does_nothing(**_: object) -> None: ...

    does_nothing.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(number, *each) for number, each in enumerate(parameters)]
    )
    return does_nothing


def _parameter(number: int, kind: str, names: str, values: str, help_: str) -> inspect.Parameter:
    more: dict[str, Any] = {"help": help_}
    if values:
        more["autocompletion"] = {TOPICS: _topics, TIERS: _tiers}.get(values) or _values(values.split("|"))
    if kind == "argument":
        name, annotation = names, Annotated[str | None, typer.Argument(**more)]
    elif kind == "flag":
        name, annotation = f"p{number}", Annotated[bool, typer.Option(*names.split(","), **more)]
    else:
        name, annotation = f"p{number}", Annotated[list[str] | None, typer.Option(*names.split(","), **more)]
    default = False if kind == "flag" else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _values(values: list[str]) -> Callable[[], list[str]]:
    return lambda: values


def _tiers() -> list[str]:
    """The names of tiers; none if there is anything wrong with them."""
    with suppress(OptionError):
        return list(named_tiers())
    return []


def _topics(context: typer.Context) -> list[str]:
    """The topics of a local tier; none where there is no such folder, or anything is wrong with it."""
    # An option without its value, which is completed, ends the parsing: then arguments are left over.
    url = context.params.get("url") or next(iter(context.args), "")
    found: set[str] = set()
    with suppress(Exception):  # a shell shows it in the middle of the line that is typed
        tier = named_tiers().get(url)
        place = url if tier is None else tier.url or ""
        found.update(_topics_in(Path(place.removeprefix("file://")).expanduser()))
    return sorted(found - {""})


def _topics_in(folder: Path) -> Iterator[str]:
    until = monotonic() + _MOST_S
    with os.scandir(folder) as entries:
        for each in islice(entries, _MOST_FILES):
            if monotonic() > until:
                return
            if not (each.name.endswith(".metadata.json") and each.is_file(follow_symlinks=False)):
                continue
            data = Path(each.path).read_bytes()
            sidecar = JsonObject.read(data, "the metadata sidecar", error=MetadataError, key=each.name)
            name = sidecar.texts("user_metadata").get("managedledgername", "")
            yield unquote_plus(name.replace("/persistent/", "/", 1))
