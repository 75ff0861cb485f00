"""`offload plugins`: list what is installed, and what is wrong with it; begin a project for a new plugin."""

from __future__ import annotations

import dataclasses
import enum
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
from offload_core.storage.tier.registry import (
    DRIVERS,
    FILTERS,
    KEY_PROVIDERS,
    LAYERS,
    LEDGER_STORES,
    METADATA_STORES,
    NOUNS,
    SCHEMA_PROVIDERS,
    URL_SCHEMES,
    distribution_of,
    installed,
)
from offload_hooks.errors import MissingExtraError, OptionError


@command()
def plugins(context: typer.Context, as_json: AsJson = False) -> None:
    """List the plugins of each kind, their distributions, and which are broken and why; or begin a new plugin."""
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


TEMPLATES = Path(__file__).parent / "plugin_templates"
"""What projects of all kinds have, in `frame`, and beside it what each kind has."""

MAX_NAME_LENGTH = 28
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\Z")


class PluginKind(enum.Enum):
    """Kind of a plugin that a project is made for."""

    DRIVER = "driver"
    LAYER = "layer"
    FILTER = "filter"
    SCHEMA_PROVIDER = "schema-provider"
    KEY_PROVIDER = "key-provider"
    METADATA_STORE = "metadata-store"
    LEDGER_STORE = "ledger-store"

    @property
    def groups(self) -> tuple[str, ...]:
        """The entry-point groups by which such a plugin is found."""
        return _GROUPS[self]

    @property
    def module(self) -> str:
        """The name of its module."""
        return self.value.replace("-", "_")


_GROUPS = {
    PluginKind.DRIVER: (DRIVERS, URL_SCHEMES),
    PluginKind.LAYER: (LAYERS,),
    PluginKind.FILTER: (FILTERS,),
    PluginKind.SCHEMA_PROVIDER: (SCHEMA_PROVIDERS,),
    PluginKind.KEY_PROVIDER: (KEY_PROVIDERS,),
    PluginKind.METADATA_STORE: (METADATA_STORES,),
    PluginKind.LEDGER_STORE: (LEDGER_STORES,),
}


@command()
def new(
    name: Annotated[
        str, typer.Argument(help="The plugin's name: lower case, with dashes.", show_default=False)
    ],
    kind: Annotated[
        PluginKind,
        typer.Option(metavar="KIND", help=f"What to make: {', '.join(each.value for each in PluginKind)}."),
    ] = PluginKind.DRIVER,
    directory: Annotated[Path, typer.Option(help="Where to make the project's directory.")] = Path(),
) -> None:
    """Write a project for a new plugin, which works at once: the plugin, its entry point, and its conformance test.

    Examples:
      offload plugins new my-store
      offload plugins new my-filter --kind filter
    """
    project, module = f"pulsar-offload-{name}", f"offload_{name.replace('-', '_')}"
    _check(name, kind, project, module)
    target = directory / project
    if target.exists() or target.is_symlink():
        raise OptionError(
            f"there is {printable(str(target))} already", hint="Give --directory or another name."
        )
    context = {
        "name": name,
        "kind": kind.value,
        "noun": NOUNS[kind.groups[0]],
        "group": kind.groups[0],
        "project": project,
        "module": module,
        "file": kind.module,
        "plugin": f"{name.removesuffix(f'-{kind.value}')}-{kind.value}".title().replace("-", ""),
    }
    _write(directory, kind, context)
    for line in (
        f"{target} is written. Next:",
        "",
        f"    cd {target}",
        "    python -m pip install --editable '.[test]'",
        "    python -m pytest",
        "",
        f"Then make {module}/{kind.module}.py your own; README.md says how.",
    ):
        print_line(line)


def _check(name: str, kind: PluginKind, project: str, module: str) -> None:
    """Refuse an invalid name, and one that is taken."""
    if not _NAME.match(name) or len(name) > MAX_NAME_LENGTH:
        raise OptionError(
            "this is no name for a plugin",
            expected=f"at most {MAX_NAME_LENGTH} letters a-z, digits, and dashes between them, such as my-store",
            found=repr(name),
        )
    for group in kind.groups:
        for entry in installed(group):
            if entry.name.lower() == name:
                raise _taken(f"{distribution_of(entry)} offers the {NOUNS[group]} {entry.name!r}")
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


def _write(directory: Path, kind: PluginKind, context: dict[str, str]) -> None:
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
        compiled = shutil.ignore_patterns("__pycache__")  # by pip
        for part in ("frame", kind.value):
            shutil.copytree(TEMPLATES / part, template, ignore=compiled, dirs_exist_ok=True)
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
