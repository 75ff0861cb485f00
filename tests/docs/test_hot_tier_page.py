"""docs/hot-tier.md: its suite passes, and its tables have the options, methods and attributes that there are."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import registry
from offload_hooks.ledger_stores import LedgerReader, LedgerStore, LedgerWriter
from offload_hooks.testing import LedgerStoreConformance
from offload_hooks.testing.ledger_cases.base import LedgerSuiteBase

TEXT = (Path(__file__).parents[2] / "docs" / "hot-tier.md").read_text()
_, SUITE = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def rows(heading: str) -> dict[str, str]:
    """The first two columns of the table below a heading."""
    table = TEXT.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.*?) \|", table, re.MULTILINE))


def test_the_suite_in_the_page_passes(tmp_path: Path) -> None:
    file = tmp_path / "test_page.py"
    file.write_text(SUITE)
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-k", "not sequence"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 75


def test_the_options_are_those_of_the_store() -> None:
    parameters = inspect.signature(FileLedgerStore).parameters
    assert rows("Option | Default | Meaning") == {
        name: "required" if each.default is each.empty else f"`{each.default}`"
        for name, each in parameters.items()
    }


@pytest.mark.parametrize(
    ("heading", "contract"),
    [
        ("Method of the store | Meaning", LedgerStore),
        ("Method of a writer | Meaning", LedgerWriter),
        ("Method of a reader | Meaning", LedgerReader),
    ],
)
def test_the_methods_are_those_of_the_contract(heading: str, contract: type) -> None:
    assert list(rows(heading)) == [
        f"{name}({', '.join(list(inspect.signature(method).parameters)[1:])})"
        for name, method in vars(contract).items()
        if inspect.isfunction(method) and not name.startswith("_")
    ]


def test_the_attributes_are_those_of_the_suite() -> None:
    assert rows("Attribute | Default | Meaning") == {
        name: f"`{getattr(LedgerStoreConformance, name)}`".replace(".0`", "`")
        for name in LedgerSuiteBase.__annotations__
    }


def test_the_stores_are_those_that_are_installed() -> None:
    group = registry.LEDGER_STORES
    assert f"`{group}`" in TEXT
    assert {entry.name for entry in entry_points(group=group)} == {"embedded"}
