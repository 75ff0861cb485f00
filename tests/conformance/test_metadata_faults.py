"""The suite of metadata stores finds each planted fault, by the cases that one would expect, and no other."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

import planted_in_metadata
import pytest

FILE = Path(planted_in_metadata.__file__)
NAMES = {store.__name__: cases for store, cases in planted_in_metadata.FAULTS.items()}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """By class and case how each ended, of the store without faults and of the cases that are to fail."""
    report = tmp_path_factory.mktemp("planted") / "report.xml"
    cases = [f"{FILE}::Test{name}::{case}" for name, cases in NAMES.items() for case in cases]
    options = ["-q", "-p", "no:cacheprovider", "--tb=line", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *options, f"{FILE}::TestNoFault", *cases]
    done = subprocess.run(command, cwd=FILE.parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    ended: dict[str, dict[str, str]] = defaultdict(dict)
    for case in ElementTree.parse(report).iter("testcase"):
        how = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        ended[case.attrib["classname"].rpartition(".")[2]][case.attrib["name"]] = how[0] if how else "passed"
    return ended


def test_no_fault_is_found_where_there_is_none(outcomes):
    ends = outcomes["TestNoFault"]
    assert len(ends) == 40
    assert {case for case, end in ends.items() if end not in ("passed", "skipped")} == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_fault_is_found(outcomes, name):
    assert outcomes[f"Test{name}"] == dict.fromkeys(NAMES[name], "failure")


def test_a_store_whose_fixture_is_missing_is_told(tmp_path):
    file = tmp_path / "test_it.py"
    file.write_text(
        "from offload_hooks.testing import MetadataStoreConformance\n"
        "class TestIt(MetadataStoreConformance): pass\n"
    )
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-k", "closed_twice"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "TestIt needs a fixture 'make_store'" in done.stdout
