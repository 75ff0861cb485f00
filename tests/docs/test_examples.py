"""Examples of the documentation do what the pages say that they do: conformance suites, prices, Python programs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from entries import entry, pip17_object
from tiers import lay_out, lay_out_broker_objects

from offload_core.maintenance.inventory.prices import load_prices
from offload_hooks.testing import FaultPlan

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page, language="python"):
    text = (DOCS / f"{page}.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """What a program of a page writes, in an empty folder; a warning is an error."""
    monkeypatch.chdir(tmp_path)

    def run(code):
        exec(compile(code, "page", "exec"), {"__name__": "__main__"})
        return capsys.readouterr().out

    return run


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "number", "options", "most"),
    [("conformance", 0, [], 180), ("hot-tier", 1, ["-k", "not sequence"], 75)],
)
def test_the_suite_of_a_page_passes(page, number, options, most, tmp_path):
    (tmp_path / "test_page.py").write_text(blocks(page)[number])
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "effort", "--rootdir", str(tmp_path), *options]
    command = [sys.executable, "-m", "pytest", *quiet, "test_page.py"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "support")}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > most


def test_the_plan_of_faults_is_one():
    (text,) = re.findall(r"^    (fail-before .*)$", (DOCS / "conformance.md").read_text(), re.MULTILINE)
    assert len(FaultPlan.parse(text).faults) == 3


def test_verifying_finds_the_damage(run, tmp_path):
    lay_out(tmp_path / "tier", pip17_object([entry(b"a"), entry(b"second").replace(b"second", b"beckon")]))
    found, counts = run(*blocks("verify")).splitlines()[:2]
    assert (found.split()[0], counts) == ("message.checksum", "1 1")


def test_repairing_writes_an_index(run, tmp_path):
    key = lay_out(tmp_path / "tier", pip17_object([entry(b"a"), entry(b"b")]), parts=("data",))
    planned, written = run(*blocks("repair")).splitlines()[:2]
    assert planned.split()[:2] == [key, "rebuild-index"]
    assert written == f"('{key}-index',)"


def test_costs_are_estimated(run, tmp_path):
    lay_out_broker_objects(tmp_path, {"json"})
    assert len(blocks("cost")) == 3
    code = "\n".join(blocks("cost")).replace("s3://bucket/prefix", str(tmp_path))
    said = run(code.replace("cold/orders", "cold/json"))
    assert said.split()[0] == "1"
    assert "persistent://acme/cold/json" in said
    (text,) = blocks("cost", "toml")
    (tmp_path / "ours.toml").write_text(text)
    assert load_prices(tmp_path / "ours.toml").currency == "EUR"


def test_a_report_is_written(run, tmp_path):
    lay_out_broker_objects(tmp_path / "tier", {"json"})
    (code,) = blocks("report")
    assert "'topics': 1" in run(code.replace("s3://bucket/prefix", str(tmp_path / "tier")))
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(("page", "count"), [("report", 3), ("service", 2)])
def test_pictures_are_small_and_have_words_in_their_place(page, count):
    pictures = re.findall(r"!\[[^\]]{10,}\]\((images/[a-z-]+\.png)\)", (DOCS / f"{page}.md").read_text())
    assert len(pictures) == count
    for each in pictures:
        assert 10_000 < (DOCS / each).stat().st_size < 150_000
