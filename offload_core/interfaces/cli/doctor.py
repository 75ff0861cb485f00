"""`offload doctor`: check a tier, and show what to do about failures."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.interfaces.cli.command_options import AsJson, TierOptions, command
from offload_core.interfaces.cli.configured import ConfigFile
from offload_core.interfaces.cli.long_work import long_work
from offload_core.interfaces.cli.terminal import cell, print_line, print_table
from offload_core.maintenance.doctor import DEFAULT_BYTES, STATUSES, CheckFinding, Diagnosis, Status, examine
from offload_core.writing.configuration import FILE_VARIABLE, load_configuration

_COLORS: dict[Status, str] = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "dim"}


_CLEANS_WITHIN_S = 30.0
"""After Ctrl-C it deletes what it wrote."""


@command()
def doctor(
    where: TierOptions,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Write nothing; list and read what is there.")
    ] = False,
    size_bytes: Annotated[
        int, typer.Option("--bytes", min=1, help="Measure throughput with so many bytes.")
    ] = DEFAULT_BYTES,
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Check that a tier can be reached, written, listed, read and cleaned up, and show what to fix.

    Objects are made under a name of their own, and removed again. The exit code is 1 if a check failed. Without
    --layer the driver is examined without its default layers. With --config it also checks whether other users can
    read or write the files that it names.

    Examples:
        offload doctor s3://bucket/prefix
        offload doctor s3://bucket/prefix -o endpoint_url=http://127.0.0.1:9000
    """
    private = _private_files(config)
    # A layer that tries again would hide what fails now and then, and take minutes over a store that is not there.
    with (
        replace(where, layer=where.layer or []).open() as tier,
        long_work("checking", within_s=_CLEANS_WITHIN_S) as work,
    ):
        diagnosis = examine(
            tier.store,
            read_only=read_only,
            throughput_bytes=size_bytes,
            private=private,
            on_begin=lambda name: work.update(name),
        )
    if as_json:
        typer.echo(json.dumps(_to_json(diagnosis), indent=2))
    else:
        _print(diagnosis)
    if diagnosis.interrupted:
        raise KeyboardInterrupt
    if diagnosis.has_failed:
        raise typer.Exit(1)


def _private_files(config: Path | None) -> Callable[[], CheckFinding] | None:
    """Return the check of the files that a configuration names; None without one."""
    named = config if config is not None else os.environ.get(FILE_VARIABLE)
    if named is None:
        return None
    from offload_core.maintenance.doctor.exposure import exposure, private_places

    return partial(exposure, private_places(load_configuration(named), Path(named)))


def _print(diagnosis: Diagnosis) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("status", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("seen", overflow="fold", ratio=1)
    if any(result.finding.fix for result in diagnosis.results):
        table.add_column("what to do", overflow="fold", ratio=1)
    for result in diagnosis.results:
        finding = result.finding
        status = cell(finding.status)
        status.stylize(_COLORS[finding.status])
        fix = [cell(finding.fix)] if len(table.columns) > 4 else []
        table.add_row(result.name, status, f"{result.seconds:.3f}", cell(finding.seen), *fix)
    print_table(table, drop=("seconds",), prose=("seen", "what to do"))
    counts = ", ".join(f"{diagnosis.count(status)} {status}" for status in STATUSES)
    broken_off = "broken off: " if diagnosis.interrupted else ""
    print_line(f"{broken_off}{counts}; {diagnosis.driver} at {diagnosis.location}")


def _to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "driver": diagnosis.driver,
        "location": diagnosis.location,
        "read_only": diagnosis.read_only,
        "prefix": diagnosis.prefix,
        "interrupted": diagnosis.interrupted,
        "checks": [
            {
                "name": result.name,
                "status": result.finding.status,
                "seconds": round(result.seconds, 6),
                "seen": result.finding.seen,
                "fix": result.finding.fix,
            }
            for result in diagnosis.results
        ],
        "summary": {status: diagnosis.count(status) for status in STATUSES},
        "left_behind": list(diagnosis.left_behind),
    }
