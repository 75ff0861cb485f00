"""`offload plugins`: list what is installed, and what is wrong with it; begin a project for a new driver."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from offload_core.interfaces.cli.command_help import CommandGroup
from offload_core.interfaces.cli.command_options import AsJson, command
from offload_core.interfaces.cli.terminal import cell, print_line, print_table, printable
from offload_core.storage.tier import survey
from offload_core.storage.tier.registry import DRIVERS, URL_SCHEMES, distribution_of, installed
from offload_hooks.errors import MissingExtraError, OptionError


@command()
def plugins(context: typer.Context, as_json: AsJson = False) -> None:
    """List the plugins of each kind, their distributions, and which are broken and why; or begin a new driver."""
    if context.invoked_subcommand is not None:
        return
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
    print_table(table, drop=("version", "from"), prose=("problem",))


TEMPLATE = Path(__file__).parent / "driver_template"
MAX_NAME_LENGTH = 30
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\Z")


@command()
def new(
    name: Annotated[
        str, typer.Argument(help="The driver's name: lower case, with dashes.", show_default=False)
    ],
    directory: Annotated[Path, typer.Option(help="Where to make the project's directory.")] = Path(),
) -> None:
    """Write a project for a new driver: the driver, its entry points, and its conformance test."""
    project, module = f"pulsar-offload-{name}", f"offload_{name.replace('-', '_')}"
    _check(name, project, module)
    target = directory / project
    if target.exists() or target.is_symlink():
        raise OptionError(
            f"there is {printable(str(target))} already", hint="Give --directory or another name."
        )
    _write(directory, {"name": name, "project": project, "module": module})
    for line in (
        f"{target} is written. Next:",
        "",
        f"    cd {target}",
        "    python -m pip install --editable '.[test]'",
        "    python -m pytest",
        "",
        f"Then make {module}/driver.py talk to your store; README.md says how.",
    ):
        print_line(line)


def _check(name: str, project: str, module: str) -> None:
    """Refuse an invalid name, and one that is taken."""
    if not _NAME.match(name) or len(name) > MAX_NAME_LENGTH:
        raise OptionError(
            "this is no name for a driver",
            expected=f"at most {MAX_NAME_LENGTH} letters a-z, digits, and dashes between them, such as my-store",
            found=repr(name),
        )
    for group, noun in ((DRIVERS, "driver"), (URL_SCHEMES, "URL scheme")):
        for entry in installed(group):
            if entry.name.lower() == name:
                raise _taken(f"{distribution_of(entry)} offers the {noun} {entry.name!r}")
    try:
        distribution(project)
    except PackageNotFoundError:
        pass
    else:
        raise _taken(f"a distribution {project!r} is installed")
    if find_spec(module) is not None:
        raise _taken(f"a package {module!r} is installed")


def _taken(why: str) -> OptionError:
    return OptionError(f"the name is taken: {why}", hint="Choose another.")


def _write(directory: Path, context: dict[str, str]) -> None:
    try:
        from cookiecutter.main import cookiecutter
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"making a project needs the module {error.name!r}, which is not installed",
            hint="Install it: pip install 'pulsar-offload[cli]'",
        ) from error
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder) / "template"
        shutil.copytree(TEMPLATE, template, ignore=shutil.ignore_patterns("__pycache__"))  # pip makes it
        # The configuration that is named is the only one that is read, and the record of the run goes beside it.
        config = Path(folder) / "config.yaml"
        config.write_text(
            json.dumps({"replay_dir": f"{folder}/replay", "cookiecutters_dir": f"{folder}/all"})
        )
        cookiecutter(
            str(template),
            no_input=True,
            extra_context=context,
            output_dir=str(directory),
            config_file=str(config),
            accept_hooks=False,
        )


def plugins_group() -> typer.Typer:
    """The commands `offload plugins`."""
    app = CommandGroup()
    app.callback(invoke_without_command=True)(plugins)
    app.command()(new)
    return app
