"""JSON documents that are printed as they come, so that none has to be in memory whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import typer


def print_document(lists: Mapping[str, Iterable[Any]]) -> None:
    """Print an object of these lists by their names, a line for each item; each is made when it is its turn."""
    opening = "{"
    for name, items in lists.items():
        typer.echo(f"{opening}{json.dumps(name)}: [", nl=False)
        separator = "\n"
        for item in items:
            typer.echo(f"{separator}{json.dumps(item)}", nl=False)
            separator = ",\n"
        typer.echo("]", nl=False)
        opening = ",\n"
    typer.echo("}")
