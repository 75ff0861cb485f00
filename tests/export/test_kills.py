"""An export that is killed between any two lines, and begun again, has every message once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from effort import Sample
from scenes.exports import parquet_files, rows_of, scanned, two_partitions

SUPPORT = Path(__file__).parents[1] / "support"
JOB = Path(__file__).parent / "kill_job.py"
WITHIN_S = 3600
"""Longer than an hour a kind of target is not waited for; with `--nightly` it is some thousand exports."""


def killed_exports(tier: Path, folder: Path, kind: str, lines: range) -> dict[str, dict[str, int]]:
    """Kill exports at these lines, as far as there are so many; by line, the files that were visible after the kill."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(JOB), str(tier), str(folder), kind, str(lines.start), str(lines.step)],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(2 * WITHIN_S)
@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_killed_anywhere_and_begun_again_every_message_is_there_once(
    kind: str, tmp_path: Path, sample: Sample[int]
) -> None:
    tier = two_partitions(tmp_path / "tier")
    expected = scanned(tier)
    lines = sample(range(1, 1 << 20, 3), 250)
    assert isinstance(lines, range)
    visible = killed_exports(tier, tmp_path / "killed", kind, lines)
    assert len(visible) >= 3
    for line, files in visible.items():
        target = tmp_path / "killed" / line
        assert rows_of(kind, target) == expected, f"killed at line {line}"
        # What a reader could see after the kill is still there, unchanged.
        assert files.items() <= parquet_files(target).items()
