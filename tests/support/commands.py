"""A configuration with all its places in one folder, as an operator would write it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from offload_core.interfaces.cli.configured import open_service
from offload_core.interfaces.cli.main import main
from offload_core.writing.configuration import load_configuration
from offload_core.writing.managed_ledger import open_managed_ledger

ROOT = Path(__file__).parents[2]


def configuration_file(folder):
    """Records, hot tier, audit log, and a local tier as the broker's."""
    file = folder / "offload.toml"
    file.write_text(f"""
[metadata]
url = "sqlite:{folder}/records.db"
options.create = true
[hot_tier.options]
path = "{folder}/hot"
[audit_log]
path = "{folder}/audit.jsonl"
[policies]
driver = "local"
extra_configurations.root = "{folder}/cold"
""")
    return file


def opened_service(config):
    """The environment and the policies of managed ledgers by this configuration."""
    return open_service(load_configuration(config))


@contextmanager
def opened_topic(config, name, **options):
    """A topic of this configuration, owned by this process."""
    with (
        opened_service(config) as (environment, _),
        open_managed_ledger(environment, name, **options) as topic,
    ):
        yield environment, topic


# --- The command `offload` as tests run it, and its result.


COMMAND = Path(sys.executable).with_name("offload")
HOW_TO_DO_IT = "this was a dry run: --yes --audit-log FILE does it\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        """Its output, as JSON."""
        return json.loads(self.out)


Offload = Callable[..., Result]


def in_this_process(capsys, monkeypatch):
    """Runs the command in this process, fast: `offload("ls", root)`."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["offload", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        captured = capsys.readouterr()
        return Result(code=code, out=captured.out, err=captured.err)

    return run


def as_a_process(*arguments, env=None):
    """Runs the installed command: `as_a_process("ls", root)`."""
    done = subprocess.run(
        [str(COMMAND), *map(str, arguments)],
        capture_output=True,
        env=os.environ | dict(env or {}),
        timeout=120,
        check=False,
    )
    return Result(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())


def install_into(target, *projects):
    """Install projects into a directory by pip. Its dependencies are those of this environment; nothing is fetched."""
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    pip = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*pip, "--target", str(target), *map(str, projects)], check=True)


def copy_source(folder, leaves_out=lambda _: False):
    """Copy the repository's files to a folder, but for those whose names, relative to its root, are to be left out."""
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines():
        if not leaves_out(name) and (ROOT / name).is_file():
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place)


INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests run in the background
from offload_core.interfaces.cli.main import main
main()
"""
"""A program that is the command, and ends at SIGINT: `python -c INTERRUPTIBLE ls …`."""
