"""`offload config show`: what is set up. `offload config explain`: what holds for a topic, and who says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.interfaces.cli.configured import on_configuration, on_policies
from offload_core.interfaces.cli.shared import AsJson, cell, out
from offload_core.metadata.catalogue import parse_topic
from offload_core.writing.settings import Configuration, PolicyStore
from offload_hooks.shown_urls import shown_url


@on_configuration
def show(configuration: Configuration, as_json: AsJson = False) -> None:
    """Show each setting, from the file, the environment and by default; secrets and options are masked."""
    settings = configuration.model_dump(mode="json", exclude={"policies"})
    if configuration.metadata.url is not None:
        settings["metadata"]["url"] = shown_url(configuration.metadata.url)
    settings["policies"] = configuration.policies.shown()
    if as_json:
        typer.echo(json.dumps(settings, indent=2))
        return
    table = Table("setting", "value", box=None, pad_edge=False)
    for name, value in _flat(settings):
        table.add_row(cell(name), cell("" if value is None else str(value)))
    out.print(table)


def _flat(settings: dict[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{place}{name}.")
        else:
            yield f"{place}{name}", value or None if isinstance(value, (dict, list)) else value


@on_policies
def explain(
    policies: PolicyStore,
    topic: Annotated[str, typer.Argument(help="The topic: persistent://tenant/namespace/topic.")],
    as_json: AsJson = False,
) -> None:
    """Show each policy that holds for a topic, and which level says it: topic, namespace, broker or default."""
    name = parse_topic(topic)
    rows = policies.resolve(name).explain()
    if as_json:
        said = {row: {"value": value, "origin": origin} for row, value, origin in rows}
        typer.echo(json.dumps({"topic": name.full, "policies": said}, indent=2))
        return
    table = Table("policy", "value", "said by", box=None, pad_edge=False)
    for row, value, origin in rows:
        table.add_row(cell(row), cell(value), origin)
    out.print(table)


def config_group() -> typer.Typer:
    """The commands `offload config`."""
    app = typer.Typer(no_args_is_help=True, help="What is set up, and what holds of it.")
    app.command()(show)
    app.command()(explain)
    return app
