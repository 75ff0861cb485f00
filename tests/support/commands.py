"""The command `offload` as tests run it, and what came of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

COMMAND = Path(sys.executable).with_name("offload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


Offload = Callable[..., Result]


def install_into(target: Path, project: Path) -> None:
    """Install a project into a directory by pip. Its dependencies are those of this environment; nothing is fetched."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-build-isolation",
    ]
    subprocess.run([*pip, "--target", str(target), str(project)], check=True)
