"""docs/managed-ledger.md: its examples run, one after another, and its tables have the fields that there are."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

from offload_core.managed_ledger import RolloverPolicy

TEXT = (Path(__file__).parents[2] / "docs" / "managed-ledger.md").read_text()


def test_the_examples_run_one_after_another(tmp_path: Path) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_fields_of_a_rollover_policy_are_documented() -> None:
    assert re.findall(r"^\| `(max_\w+|min_\w+)` \|", TEXT, re.MULTILINE) == [
        field.name for field in dataclasses.fields(RolloverPolicy)
    ]
