"""Topics as a DataFrame of Daft, which takes no PyArrow as new as the suite's: it runs with one of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from servers import install
from tables import assert_same_rows

from pulsar_offload import open_tier, scan

pytestmark = [pytest.mark.nightly, pytest.mark.install]

JOB = Path(__file__).with_name("daft_job.py")


def test_a_frame_has_the_rows(tier, reads, tmp_path):
    done = subprocess.run(
        [sys.executable, str(JOB), str(tier), str(tmp_path), json.dumps(reads)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(install.daft()), "DAFT_ANALYTICS_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [each for each in done.stdout.splitlines() if each]
    assert rows[0] == "9 2"  # of three ledgers
    assert rows[1] == "{'__entryId': [0, 1]}"
    assert rows[2].startswith("there is no such isolation")
    for name, options in reads.items():
        with open_tier(tier) as opened:
            expected = scan(opened, **{"topics": ()} | options).to_table()
        with pa.memory_map(str(tmp_path / f"{name}.arrow")) as file:
            assert_same_rows(pa.ipc.open_file(file).read_all(), expected)
