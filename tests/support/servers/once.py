"""Folders that are built once: whole or absent, also when a build is cut off or two processes want the same one."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[3]

Run = Callable[[list[str], Mapping[str, str]], None]
"""Runs one command of a build with changes to the environment; raises `BuildError`."""


class BuildError(Exception):
    """A command of a build failed; the text has the command and the end of its output."""


def servers_folder() -> Path:
    """The folder of installed servers: `.servers` in the repository, or that of OFFLOAD_SERVERS."""
    return Path(os.environ.get("OFFLOAD_SERVERS") or _REPOSITORY / ".servers").absolute()


def built_once(name: str, build: Callable[[Path, Run], None]) -> Path:
    """The folder `name`, made by `build(folder, run)` in another place and renamed when whole.

    The commands inherit the lock: a process that comes after a build that was cut off waits until its last command has
    ended too, so no other process writes into the place that is then emptied.
    """
    whole = servers_folder() / name
    if whole.is_dir():
        return whole
    whole.parent.mkdir(parents=True, exist_ok=True)
    with whole.with_name(f".{whole.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if whole.is_dir():
            return whole
        partial = whole.with_name(f".{whole.name}.partial")
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir()

        def run(command: list[str], env: Mapping[str, str]) -> None:
            _run(command, env, lock.fileno())

        build(partial, run)
        partial.rename(whole)
    return whole


def _run(command: list[str], env: Mapping[str, str], lock: int) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **env},
        pass_fds=[lock],
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise BuildError(f"{' '.join(command)} ended with {done.returncode}\n{tail}")
