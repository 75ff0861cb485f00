"""`offload plugins new`: a project for a new driver, which works and passes the conformance suite at once.

The project is made from the Cookiecutter template in `driver_template`. The template's own file of defaults is all
that counts: no configuration of the user's is read, nothing is downloaded, no hook runs, nothing is left in the
home directory.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from offload_core.interfaces.cli.shared import Debug, out, printable, reported
from offload_core.storage.tier.registry import DRIVERS, URL_SCHEMES, distribution_of, installed
from offload_hooks.errors import MissingExtraError, OptionError

TEMPLATE = Path(__file__).parent / "driver_template"
MAX_NAME_LENGTH = 30
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*\Z")


def new(
    name: Annotated[
        str, typer.Argument(help="The driver's name: lower case, with dashes.", show_default=False)
    ],
    directory: Annotated[Path, typer.Option(help="Where to make the project's directory.")] = Path(),
    debug: Debug = False,
) -> None:
    """Write a project for a new driver: the driver, its entry points, and its conformance test."""
    with reported(debug):
        project, module = f"pulsar-offload-{name}", f"offload_{name.replace('-', '_')}"
        _check(name, project, module)
        target = directory / project
        if target.exists() or target.is_symlink():
            raise OptionError(
                f"there is {printable(str(target))} already", hint="Give --directory or another name."
            )
        _write(directory, {"name": name, "project": project, "module": module})
        for line in (
            f"{printable(str(target))} is written. Next:",
            "",
            f"    cd {printable(str(target))}",
            "    python -m pip install --editable '.[test]'",
            "    python -m pytest",
            "",
            f"Then make {module}/driver.py talk to your store; README.md says how.",
        ):
            out.print(line, markup=False, highlight=False, soft_wrap=True)


def _check(name: str, project: str, module: str) -> None:
    """Refuse what is no name, and one that is taken."""
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
