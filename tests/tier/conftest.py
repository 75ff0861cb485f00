"""Throwaway distributions: a real `*.dist-info` and module in a directory of `sys.path`."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[..., Path]

_numbers = itertools.count()

DRIVER_SOURCE = """
    from offload_drivers.local import LocalDriver

    class Driver(LocalDriver):
        def __init__(self, root, secret_key="", retries=3):
            super().__init__(root)
"""


@pytest.fixture
def module_name() -> str:
    """A module name that no earlier test has imported."""
    return f"throwaway_{next(_numbers)}"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a distribution: `install("name", {"group": {"name": "module:attr"}}, {"module": "source"})`."""

    def install_one(name, entry_points, modules, *, version="1.2.3", extras=()):
        site = tmp_path / f"site-{next(_numbers)}"
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        info.joinpath("METADATA").write_text(
            "\n".join(metadata + [f"Provides-Extra: {e}" for e in extras]) + "\n"
        )
        lines = []
        for group, entries in entry_points.items():
            lines += [f"[{group}]", *(f"{entry} = {target}" for entry, target in entries.items())]
        info.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n")
        for module, source in modules.items():
            site.joinpath(f"{module}.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(site)
        return site

    return install_one


@pytest.fixture
def driver_source() -> str:
    """The source of a module with a working driver class `Driver`."""
    return DRIVER_SOURCE
