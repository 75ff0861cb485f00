"""The suites of filters, layers and providers find each planted fault, by the cases that one would expect."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import planted_in_plugins
import pytest

pytestmark = pytest.mark.long

FILE = Path(planted_in_plugins.__file__)
NAMES = {plugin.__name__: cases for plugin, cases in planted_in_plugins.FAULTS.items()}
SOUND = ("Sound", "OverRest", "OneTopic", "Table")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("planted", NAMES)
def test_a_planted_fault_is_found(outcomes, planted):
    assert outcomes[f"Test{planted}"] == dict.fromkeys(NAMES[planted], "failure")


def test_the_same_without_a_fault_passes():
    cases = [f"{FILE}::Test{name}" for name in SOUND]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *cases]
    done = subprocess.run(command, cwd=FILE.parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("suite", "case", "fixture"),
    [
        ("FilterConformance", "no_entries", "make_filter"),
        ("LayerConformance", "takes_part", "make_layer"),
        ("SchemaProviderConformance", "repr", "make_provider"),
        ("KeyProviderConformance", "any_thread", "make_provider"),
    ],
)
def test_a_fixture_that_is_missing_is_named(pytester, suite, case, fixture):
    pytester.makepyfile(f"from offload_hooks.testing import {suite}\nclass TestIt({suite}): pass\n")
    assert f"TestIt needs a fixture '{fixture}'" in pytester.runpytest("-k", case).stdout.str()
