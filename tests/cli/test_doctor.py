"""`offload doctor`: what it shows, in which form, with which exit code, and what it never shows."""

import re
import signal
import subprocess
from pathlib import Path

import pytest
from commands import COMMAND
from misbehaving import SECRET

from offload_core.storage.tier import open_store

MODULE = """
import time

from misbehaving import DeniesDelete, RaisesAnything
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl


class Secretive(RaisesAnything):
    def __init__(self, root, password):
        super().__init__(root)


class NoDelete(DeniesDelete):
    def __init__(self, root):
        super().__init__(root, name="s3")


class Layered(LocalDriver):
    default_layers = ["no-such-layer"]


class Hangs(LocalDriver):
    @hookimpl
    def commit_data(self):
        print("committing", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def root(tmp_path):
    tier = tmp_path / "tier"
    tier.mkdir()
    return tier


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Installed drivers `secretive`, `no-delete`, `layered` and `hangs`."""
    folder = tmp_path / "site"
    info = folder / "patients-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: patients\nVersion: 1.0\n")
    entries = {"secretive": "Secretive", "no-delete": "NoDelete", "layered": "Layered", "hangs": "Hangs"}
    lines = [f"{name} = patients_drivers:{kind}" for name, kind in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pulsar_offload.drivers]", *lines]))
    (folder / "patients_drivers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    return folder


def objects(root):
    with open_store(root) as tier:
        return [found.key for found in tier.list_objects()]


# --- for people --------------------------------------------------------------------------------


def test_a_tier_that_works_is_a_table_a_summary_and_exit_code_0(offload, root):
    result = offload("doctor", root, "--bytes", 10_000)
    assert (result.code, result.err) == (0, "")
    header, *checks, summary = result.out.splitlines()
    assert header.split() == ["check", "status", "seconds", "seen"]
    assert [line.split()[0] for line in checks[:3]] == ["reach", "put", "metadata"]
    assert re.match(r"put +ok +\d\.\d{3} +4096 bytes stored and read back", checks[1])
    assert summary == f"19 ok, 0 warning, 0 failed, 0 skipped; local at {root.as_uri()}"
    assert objects(root) == []


def test_a_failed_check_is_exit_code_1_and_says_what_to_do(offload, root, site):
    result = offload("doctor", "no-delete", "-o", f"root={root}", "--bytes", 10)
    assert result.code == 1
    (line,) = [line for line in result.out.splitlines() if line.split()[:2] == ["delete", "failed"]]
    assert "the store refused to delete" in line
    assert "s3:DeleteObject" in line
    assert result.out.splitlines()[-1] == f"16 ok, 0 warning, 2 failed, 1 skipped; s3 at {root.as_uri()}"


def test_a_file_is_not_taken_for_a_tier(offload, tmp_path):
    (tmp_path / "object").write_bytes(b"0123456789")
    result = offload("doctor", tmp_path / "object")
    assert result.code == 1
    assert "is not a directory" in result.out
    assert "correct the path" in result.out
    assert result.out.splitlines()[-1].startswith("0 ok, 0 warning, 1 failed, 18 skipped")


def test_read_only_leaves_the_tier_as_it_is(offload, root):
    (root / "object").write_bytes(b"0123456789")
    result = offload("doctor", root, "--read-only")
    assert result.code == 0
    assert result.out.splitlines()[-1].startswith("7 ok, 0 warning, 0 failed, 0 skipped")
    assert [path.name for path in root.rglob("*")] == ["object"]


def test_the_driver_is_examined_under_the_layers_that_are_given_not_its_default_ones(offload, root, site):
    layered = ["doctor", "layered", "-o", f"root={root}", "--bytes", 10]
    assert offload(*layered).code == 0
    result = offload(*layered, "--layer", "another-layer")
    assert (result.code, "another-layer" in result.err) == (2, True)


# --- for machines ------------------------------------------------------------------------------


def test_json_has_every_check_and_a_summary(offload, root):
    result = offload("doctor", root, "--json", "--bytes", 10)
    report = result.json
    assert (result.code, result.err) == (0, "")
    said = ("driver", "location", "read_only", "interrupted", "left_behind")
    assert [report[key] for key in said] == ["local", root.as_uri(), False, False, []]
    assert report["prefix"].startswith("offload-doctor-")
    assert report["summary"] == {"ok": 19, "warning": 0, "failed": 0, "skipped": 0}
    assert all(set(check) == {"name", "status", "seconds", "seen", "fix"} for check in report["checks"])
    assert {(check["status"], check["fix"]) for check in report["checks"]} == {("ok", None)}
    assert all(isinstance(check["seconds"], float) for check in report["checks"])


def test_json_tells_what_failed_and_what_is_left(offload, root, site):
    result = offload("doctor", "no-delete", "-o", f"root={root}", "--json", "--bytes", 10)
    report = result.json
    assert result.code == 1
    failed = {check["name"] for check in report["checks"] if check["status"] == "failed"}
    assert failed == {"delete", "cleanup"}
    assert sorted(report["left_behind"]) == objects(root)
    assert len(objects(root)) == 4


# --- what is never shown -----------------------------------------------------------------------


@pytest.mark.parametrize("form", [[], ["--json"], ["--debug"]])
def test_neither_options_nor_a_drivers_own_errors_are_shown(offload, root, site, form):
    options = ("-o", f"root={root}", "-o", "password=hunter2", "--bytes", 10)
    result = offload("doctor", "secretive", *options, *form)
    assert result.code == 1
    assert "raised ValueError" in result.out
    assert "hunter2" not in result.out + result.err
    assert SECRET not in result.out + result.err


@pytest.mark.parametrize(
    "arguments", [["{}", "--bytes", "0"], ["{}", "-o", "root"], ["{}", "-o", "bucket=hunter2"], []]
)
def test_wrong_use_is_exit_code_2(offload, root, arguments):
    result = offload("doctor", *(argument.format(root) for argument in arguments))
    assert (result.code, result.out) == (2, "")
    assert "hunter2" not in result.err


# --- interrupted -------------------------------------------------------------------------------


@pytest.mark.long
def test_ctrl_c_cleans_up_and_shows_what_was_seen(root, site):
    support = Path(__file__).parents[1] / "support"
    with subprocess.Popen(
        [COMMAND, "doctor", "hangs", "-o", f"root={root}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{site}:{support}", "PATH": ""},
        # A shell's background job ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout.readline() == "committing\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith("offload: broken off. checking: ")
    assert err.endswith("\noffload: interrupted\n")
    assert out.splitlines()[-1].startswith("broken off: 6 ok, 0 warning, 0 failed, 13 skipped")
    assert [path for path in root.rglob("*") if path.is_file() and path.name != "lock"] == []
