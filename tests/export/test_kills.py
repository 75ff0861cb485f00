"""An export that is killed between any two lines, and begun again, has every message once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scenes.exports import parquet_files, rows_of, scanned, two_partitions

SUPPORT = Path(__file__).parents[1] / "support"
JOB = Path(__file__).parent / "kill_job.py"
NIGHTLY_S = 3600
"""Longer than an hour a kind of target is not waited for; it is some thousand exports."""


def killed_exports(
    tier: Path, folder: Path, kind: str, stride: int, *, timeout_s: float = 500
) -> dict[str, dict[str, int]]:
    """Kill exports at every `stride`-th line; by line, the files that were visible after the kill."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(JOB), str(tier), str(folder), kind, str(stride)],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    visible: dict[str, dict[str, int]] = json.loads(done.stdout)
    return visible


@pytest.mark.parametrize(("kind", "stride"), [("parquet", 409), ("iceberg", 613), ("delta", 613)])
def test_killed_anywhere_and_begun_again_every_message_is_there_once(
    kind: str, stride: int, tmp_path: Path
) -> None:
    tier = two_partitions(tmp_path / "tier")
    expected = scanned(tier)
    visible = killed_exports(tier, tmp_path / "killed", kind, stride)
    assert len(visible) >= 6
    for line, files in visible.items():
        target = tmp_path / "killed" / line
        assert rows_of(kind, target) == expected, f"killed at line {line}"
        # What a reader could see after the kill is still there, unchanged.
        assert files.items() <= parquet_files(target).items()


@pytest.mark.nightly
@pytest.mark.timeout(2 * NIGHTLY_S)
@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_killed_at_every_line(kind: str, tmp_path: Path) -> None:
    tier = two_partitions(tmp_path / "tier")
    expected = scanned(tier)
    for line in killed_exports(tier, tmp_path / "killed", kind, 3, timeout_s=NIGHTLY_S):
        assert rows_of(kind, tmp_path / "killed" / line) == expected, f"killed at line {line}"
