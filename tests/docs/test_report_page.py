"""docs/report.md: its code runs, its options are there, its pictures are small and of what the page has."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

from tiers import lay_out_broker_objects

from offload_core.interfaces.cli.report import report

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "report.md").read_text()


def test_the_code_runs(tmp_path: Path) -> None:
    lay_out_broker_objects(tmp_path / "tier", {"json"})
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    code = code.replace("s3://bucket/prefix", str(tmp_path / "tier"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "'topics': 1" in done.stdout
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_its_options_are_there() -> None:
    options = {f"--{name.replace('_', '-')}" for name in inspect.signature(report).parameters}
    assert set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", TEXT)) <= options


def test_its_pictures_are_small() -> None:
    pictures = re.findall(r"!\[[^\]]{10,}\]\((images/[a-z-]+\.webp)\)", TEXT)
    assert len(pictures) == 2
    for each in pictures:
        assert 10_000 < (DOCS / each).stat().st_size < 200_000
