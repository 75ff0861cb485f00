"""docs/verify.md: its codes are those of the program, its example runs, its options and fields are there."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

from entries import entry, pip17_object
from tiers import lay_out

from offload_core.interfaces.cli.verify import report_to_json, verify
from offload_core.maintenance.verify import Code, Verification
from offload_core.maintenance.verify.findings import Finding
from offload_core.storage.tier import open_store

TEXT = (Path(__file__).parents[2] / "docs" / "verify.md").read_text()

_ROW = re.compile(r"^\| `([a-z0-9.-]+)` \| (error|warning) \| (.+) \| (.+) \|$", re.MULTILINE)


def test_exactly_the_codes_that_there_are_are_documented_as_they_are() -> None:
    documented = [match.groups() for match in _ROW.finditer(TEXT)]
    assert sorted(documented) == sorted(
        (code.value, code.severity.value, code.meaning, code.helps) for code in Code
    )


def test_the_example_runs(tmp_path: Path) -> None:
    lay_out_damaged(tmp_path / "tier")
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    found, counts = [*done.stdout.splitlines(), done.stderr][:2]
    assert (found.split()[0], counts) == ("message.checksum", "1 1")


def lay_out_damaged(root: Path) -> None:
    root.mkdir()
    key = lay_out(root, pip17_object([entry(b"a"), entry(b"b")]))
    data = bytearray((root / key).read_bytes())
    data[-1] ^= 1
    (root / key).write_bytes(data)


def test_the_options_are_documented() -> None:
    documented = set(re.findall(r"`(--[\w-]+)", TEXT.partition("## Options")[2].partition("## What")[0]))
    shared = {"--driver", "--option", "--layer", "--debug", "--url"}
    ours = {f"--{name.replace('_', '-')}" for name in inspect.signature(verify).parameters}
    assert documented == (ours - shared - {"--as-json"}) | {"--json"}


def test_the_fields_of_a_finding_are_documented() -> None:
    fields = set(Finding(code=Code.GAP, what="x").to_json())
    section = TEXT.partition("## The report")[2].partition("## The state")[0]
    assert fields <= set(re.findall(r"`(\w+)`", section))


def test_the_fields_of_the_summary_are_documented(tmp_path: Path) -> None:
    with open_store(tmp_path) as tier:
        report = report_to_json(Verification(tier), {"tier": "x", "deep": False, "records": False})
    section = TEXT.partition("## The report")[2].partition("## The state")[0]
    assert {*report, *report["summary"]()} <= set(re.findall(r"`(\w+)`", section))
