"""At each call of offload, deletion of hot copies and of a topic a process is really killed, and another goes on.

What `test_crash_matrix` does with faults of every kind in one process, this does with SIGKILL over SQLite, ledger files
and a local tier.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import kill_matrix
import pytest

WITHIN_S = 1200.0
SAMPLE = 16
"""How many points of each verb are tried where not all are."""


def run(folder: Path, verb: str, limit: int) -> tuple[int, int]:
    """How many points were tried, of how many."""
    # From 3.12 on Python warns of a fork where libraries have threads; those of Python there are none of.
    warnings = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    command = [sys.executable, *warnings, kill_matrix.__file__, str(folder), verb, str(limit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
    counts = re.fullmatch(rf"{verb}: (\d+) of (\d+) points, \d+ calls\n", done.stdout)
    assert counts is not None, done.stdout
    return int(counts[1]), int(counts[2])


@pytest.mark.parametrize("verb", kill_matrix.VERBS)
def test_a_process_that_is_killed_at_a_call_loses_nothing_and_another_goes_on(
    tmp_path: Path, verb: str
) -> None:
    tried, points = run(tmp_path, verb, SAMPLE)
    assert tried == min(SAMPLE, points)
    assert points >= 10


@pytest.mark.nightly
@pytest.mark.parametrize("verb", kill_matrix.VERBS)
def test_a_process_that_is_killed_at_any_call_loses_nothing_and_another_goes_on(
    tmp_path: Path, verb: str
) -> None:
    tried, points = run(tmp_path, verb, sys.maxsize)
    assert tried == points
