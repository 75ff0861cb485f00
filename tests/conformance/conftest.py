"""The suite over stores with planted faults, in a pytest of its own: its cases are to fail."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

import pytest


@pytest.fixture(scope="module")
def outcomes(request, tmp_path_factory):
    """By class and case how each ended.

    Only the faults run whose tests were chosen.
    """
    planted, names = request.module.FILE, request.module.NAMES
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    report = tmp_path_factory.mktemp("planted") / "report.xml"
    wanted = {given["planted"] for given in chosen if "planted" in given}
    cases = [f"{planted}::Test{name}::{case}" for name in names if name in wanted for case in names[name]]
    # The sequences of calls are drawn alike each time: some of the faults they find most times, not every time.
    options = ["-q", "-p", "no:cacheprovider", "--tb=line", f"--junitxml={report}", "--hypothesis-seed=0"]
    command = [sys.executable, "-m", "pytest", *options, *cases]
    # As on a CI machine, where pytest shows differences in full, which must not take minutes.
    done = subprocess.run(
        command,
        cwd=planted.parents[2],
        env=os.environ | {"CI": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    ended: dict[str, dict[str, str]] = defaultdict(dict)
    for case in ElementTree.parse(report).iter("testcase"):
        how = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        ended[case.attrib["classname"].rpartition(".")[2]][case.attrib["name"]] = how[0] if how else "passed"
    return ended
