"""The command in this process, fast, and as a process of its own, real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from commands import COMMAND, Offload, Result
from tiers import lay_out_broker_objects

from offload_core.cli.main import main


@pytest.fixture
def offload(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Offload:
    """Run the command in this process: `offload("ls", root)`."""

    def run(*arguments: object) -> Result:
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


@pytest.fixture
def offload_process() -> Offload:
    """Run the installed command as a process: `offload_process("ls", root)`."""

    def run(*arguments: object, env: Mapping[str, str] | None = None) -> Result:
        done = subprocess.run(
            [str(COMMAND), *map(str, arguments)],
            capture_output=True,
            env=os.environ | dict(env or {}),
            timeout=120,
            check=False,
        )
        return Result(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    return run


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tier of what a broker offloaded."""
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root)
    return root
