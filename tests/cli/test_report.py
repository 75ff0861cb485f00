"""`offload report`: a file that is whole, with or without records and verifying, and what is refused."""

import json
import os
import re
import subprocess

from records import MANAGED_LEDGERS


def data_of(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    return dict(json.loads(found[1]))


def test_a_page_of_a_bucket(offload, broker, tmp_path):
    page = tmp_path / "report.html"
    page.write_text("an older one")
    result = offload("report", broker, "--output", page)
    assert (result.code, result.err) == (0, "")
    assert page.stat().st_size < 100_000
    assert result.out == f"{page}: {page.stat().st_size / 1000:.1f} kB\n"
    data = data_of(page)
    assert (data["totals"]["topics"], data["totals"]["copies"], data["verified"]) == (13, 23, False)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_with_records_and_verified(offload, broker, tmp_path):
    page = tmp_path / "report.html"
    arguments = ("--output", page, "--records", MANAGED_LEDGERS, "--verify", "--top", "3")
    assert offload("report", broker, *arguments).code == 0
    data = data_of(page)
    assert (data["totals"]["topics"], data["totals"]["ledgers"]) == (14, 38)
    assert (data["verified"], data["records"], len(data["topics"])) == (True, True, 3 + 1)
    assert data["problems"] == {"codes": [], "shown": [], "left_out": 0}


def test_a_finding_is_in_it(offload, tmp_path):
    (tmp_path / "tier").mkdir()
    (tmp_path / "tier" / "00000000-0000-4000-8000-000000000001-ledger-7").write_bytes(b"x" * 100)
    page = tmp_path / "report.html"
    assert offload("report", tmp_path / "tier", "--output", page, "--verify").code == 0
    codes = [finding["code"] for finding in data_of(page)["problems"]["shown"]]
    assert "object.no-index" in codes


def test_a_place_that_cannot_be_written(offload, broker, tmp_path):
    result = offload("report", broker, "--output", tmp_path / "none" / "report.html")
    assert result.code == 1
    assert "the page cannot be written" in result.err


def test_a_pipe_is_written_to_and_not_replaced(offload, broker, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = subprocess.Popen(["wc", "-c", pipe], stdout=subprocess.PIPE, text=True)
    assert offload("report", broker, "--output", pipe).code == 0
    told, _ = reading.communicate(timeout=10)
    assert int(told.split()[0]) > 30_000
    assert pipe.is_fifo()
