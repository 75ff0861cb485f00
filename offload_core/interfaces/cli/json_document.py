"""JSON that is printed as it is made, so that what is long never is in memory whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import typer


def print_streamed(value: Any) -> None:
    """Print a value as JSON; iterators in it are lists, a line for each item, which is made when it is its turn."""
    _print(value)
    typer.echo()


def _print(value: Any) -> None:
    if isinstance(value, Iterator):
        _print_items("[", value, "]")
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
