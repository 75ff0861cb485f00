"""`offload plugins`: what is installed, and what is wrong with it."""

from __future__ import annotations

import dataclasses
import json

import typer
from rich.table import Table

from offload_core.interfaces.cli.shared import AsJson, Debug, cell, out, reported
from offload_core.storage.tier import survey


def plugins(context: typer.Context, as_json: AsJson = False, debug: Debug = False) -> None:
    """List the plugins of each kind, whose they are, and which are broken and why; or begin a new driver."""
    if context.invoked_subcommand is not None:
        return
    with reported(debug):
        reports = survey()
        if as_json:
            typer.echo(json.dumps([dataclasses.asdict(report) for report in reports], indent=2))
            return
        table = Table("kind", "name", "from", "version", "status", "problem", box=None, pad_edge=False)
        for report in reports:
            table.add_row(
                report.group.rpartition(".")[2],
                cell(report.name),
                cell(report.distribution),
                cell(report.version),
                report.status,
                cell(report.problem),
            )
        out.print(table)
