"""An export that is killed at any of its lines, and begun again, has every message once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from scenes.exports import parquet_files, rows_of, scanned, two_partitions

SUPPORT = Path(__file__).parents[1] / "support"
JOB = Path(__file__).parent / "kill_job.py"
WITHIN_S = 7200
"""Longer is not waited for; with `--nightly` it is some dozens of exports, each begun twice."""


@pytest.mark.long
@pytest.mark.timeout(2 * WITHIN_S)
@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.xdist_group(f"kills-{kind}"))
        for kind in ("parquet", "iceberg", "delta")
    ],
)
def test_killed_anywhere_and_begun_again_every_message_is_there_once(kind, tmp_path, sample):
    tier, folder = two_partitions(tmp_path / "tier"), tmp_path / "killed"
    folder.mkdir()
    places = sample(range(1 << 16), 240)
    done = subprocess.run(
        [sys.executable, str(JOB), str(tier), str(folder), kind, str(places.start), str(places.step)],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    visible = json.loads(done.stdout)
    assert visible
    expected = scanned(tier)
    for place, files in visible.items():
        assert rows_of(kind, folder / place) == expected, f"killed at {place}"
        # What a reader could see after the kill is still there, unchanged.
        assert files.items() <= parquet_files(folder / place).items()
