"""docs/conformance.md: its suite passes, and its tables have all that there is."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

from offload_hooks import Capabilities
from offload_hooks.testing import DriverConformance, FaultPlan
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.fault_plan import KINDS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "conformance.md").read_text()
SUITE, *_ = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def column(heading: str) -> list[str]:
    """The first column of the table below a heading."""
    table = TEXT.partition(heading)[2].partition("\n\n")[0]
    return re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)


def test_the_suite_in_the_page_passes(tmp_path: Path) -> None:
    file = tmp_path / "test_page.py"
    file.write_text(SUITE)
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 180


def test_every_attribute_is_documented_with_its_default() -> None:
    attributes = list(SuiteBase.__annotations__)
    assert column("| Attribute | Default | Meaning |\n|---|---|---|\n") == attributes
    for name in attributes:
        default = re.search(rf"^\| `{name}` \| `?(.*?)`? \|", TEXT, re.MULTILINE)
        assert default is not None
        assert default[1] == f"{getattr(DriverConformance, name)}".removesuffix(".0")


def test_every_capability_is_in_the_gating_table() -> None:
    shown = column("| Declared | What is judged then |\n|---|---|\n")
    assert shown == [field.name for field in dataclasses.fields(Capabilities)]


def test_every_kind_of_fault_is_documented() -> None:
    assert column("| Kind | What happens |\n|---|---|\n") == list(KINDS)


def test_the_plan_in_the_page_is_one() -> None:
    text = re.search(r"^    (fail-before .*)$", TEXT, re.MULTILINE)
    assert text is not None
    assert len(FaultPlan.parse(text[1]).faults) == 3
