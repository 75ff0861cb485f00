"""What tests of several drivers share: a program in a process of its own, and shorter suites by day."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from offload_hooks.testing import DriverConformance


@pytest.fixture(autouse=True)
def _fewer_sequences(request, monkeypatch):
    """By day a quarter of the sequences of calls that a suite draws."""
    suite = request.cls
    if suite is not None and issubclass(suite, DriverConformance) and not request.config.option.nightly:
        monkeypatch.setattr(suite, "max_examples", max(1, suite.max_examples // 4))


@pytest.fixture
def run_program():
    """Run a program where warnings are errors; its output, once it ended well and without a complaint.

    It has what `environment` says, and nothing else that the stores' libraries read there.
    """

    def run(program, *arguments, **environment):
        read = ("AWS_", "AZURE_", "CLOUDSDK_", "GCE_", "GCSFS_", "GOOGLE_", "HADOOP_", "NO_GCE_CHECK")
        outside = {name: value for name, value in os.environ.items() if not name.startswith(read)}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(program), *arguments],
            env=outside | environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run
