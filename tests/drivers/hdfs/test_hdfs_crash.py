"""Crashes: children that die before or after the k-th call of the HDFS client, for every k, on a real cluster."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly  # each starts a JVM for every step of a verb

OLD = ["old bytes, rather long", {"which": "old"}, "old/type"]
NEW = ["new bytes", {"which": "new"}, "new/type"]
SCRIPT = Path(__file__).parents[2] / "support" / "hdfs_crashes.py"

_numbers = itertools.count()


@pytest.fixture
def crashes(minihdfs):
    def run(what, had_old):
        url = f"{minihdfs.url}/crash-{os.getpid()}-{next(_numbers)}"
        command = [sys.executable, str(SCRIPT), url, minihdfs.superuser, what, str(had_old)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        reports = [json.loads(line) for line in done.stdout.splitlines()]
        for when in ("before", "after"):
            codes = [report["code"] for report in reports if report["when"] == when]
            last = codes.index(0)
            assert set(codes[:last]) == {77}
            assert set(codes[last:]) == {0}, "the last ones came to their end"
        return reports

    return run


@pytest.mark.parametrize("had_old", [True, False])
@pytest.mark.parametrize("what", ["upload", "index"])
def test_a_crash_at_any_step_leaves_the_old_object_or_the_new_one_with_its_metadata(crashes, what, had_old):
    old = OLD if had_old else None
    reports = crashes(what, had_old)
    for report in reports:
        assert report["found"] in (old, NEW), report
        if report["code"] == 0:
            assert (report["found"], report["stale"]) == (NEW, 0)
        assert report["left"] == [], report
    found = [report["found"] for report in reports if report["code"]]
    assert old in found
    assert NEW in found


@pytest.mark.parametrize("had_old", [True, False])
@pytest.mark.parametrize("what", ["commit", "commit pieces"])
def test_a_commit_can_be_made_again_after_a_crash_at_any_step(crashes, what, had_old):
    old = OLD if had_old else None
    for report in crashes(what, had_old):
        assert report["found"] in (old, NEW), report
        assert report["after"] == NEW, report
        assert report["found"] == NEW or report["stale"] == 1, report
        assert report["again"] == "done" or report["found"] == NEW, report
        assert report["left"] == [], report


def test_a_crash_while_deleting_leaves_the_object_or_nothing(crashes):
    reports = crashes("delete", True)
    for report in reports:
        assert report["found"] in (OLD, None), report
        assert report["left"] == [], report
    assert OLD in [report["found"] for report in reports]
