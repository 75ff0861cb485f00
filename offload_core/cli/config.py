"""`offload config explain`: what holds for a topic, and who says so."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from offload_core.catalogue import parse_topic
from offload_core.cli.configured import on_policies
from offload_core.cli.shared import AsJson, cell, out
from offload_core.policy_store import PolicyStore


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
