"""The suite finds each of the planted faults, by the cases that one would expect, and none where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import lying_drivers
import planted_faults
import pytest

FILE = Path(planted_faults.__file__)
NAMES = {driver.__name__: cases for driver, cases in lying_drivers.FAULTS.items()}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """By class and case how each ended, of the driver without faults and of the cases that are to fail."""
    report = tmp_path_factory.mktemp("planted") / "report.xml"
    cases = [f"{FILE}::Test{name}::{case}" for name, cases in NAMES.items() for case in cases]
    # The sequences of calls are drawn alike each time: some of the faults they find most times, not every time.
    options = ["-q", "-p", "no:cacheprovider", "--tb=line", f"--junitxml={report}", "--hypothesis-seed=0"]
    command = [sys.executable, "-m", "pytest", *options, f"{FILE}::TestNoFault", *cases]
    # As on a CI machine, where pytest shows differences in full, which must not take minutes.
    environment = os.environ | {"CI": "true"}
    done = subprocess.run(
        command, cwd=FILE.parents[2], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    ended: dict[str, dict[str, str]] = defaultdict(dict)
    for case in ElementTree.parse(report).iter("testcase"):
        how = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        ended[case.attrib["classname"].rpartition(".")[2]][case.attrib["name"]] = how[0] if how else "passed"
    return ended


def test_no_fault_is_found_where_there_is_none(outcomes):
    ends = outcomes["TestNoFault"]
    assert len(ends) > 200
    assert {case for case, end in ends.items() if end not in ("passed", "skipped")} == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_fault_is_found(outcomes, name):
    assert outcomes[f"Test{name}"] == dict.fromkeys(NAMES[name], "failure")


def test_there_are_many_and_no_one_of_them_is_found_by_sequences_only():
    assert len(NAMES) >= 14
    assert [name for name, cases in NAMES.items() if set(cases) <= {lying_drivers.SEQUENCES}] == []
