"""The example of a driver by a third party, as its own distribution declares it."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tomllib
from commands import install_into

from offload_core.storage.tier import open_store, survey
from offload_hooks import ByteRange
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError

EXAMPLE = Path(__file__).parents[2] / "examples" / "third_party_driver"
KEEP_TO = "import sys; sys.path.insert(0, sys.argv[1]); "


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The distribution's metadata and source on `sys.path`, as an editable install has them."""
    project = tomllib.loads(EXAMPLE.joinpath("pyproject.toml").read_text())["project"]
    info = tmp_path / "site" / "pulsar_offload_shelf-0.1.0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in entries.items()) for group, entries in groups
    ]
    info.joinpath("entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(EXAMPLE)
    monkeypatch.syspath_prepend(info.parent)
    return project


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "a b.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("t/ledger-1", b"0123456789")
        file.writestr(
            "t/ledger-1.metadata.json",
            json.dumps({"version": 1, "content_type": "x/y", "user_metadata": {"Role": "data"}}),
        )
        file.writestr("plain", b"abc")
    return path


def test_it_is_found_and_reported_as_working(installed):
    reports = [report for report in survey() if report.distribution == installed["name"]]
    assert [(report.name, report.status) for report in reports] == [("shelf", "ok"), ("shelf", "ok")]


def test_it_depends_on_the_hooks_only():
    source = "".join(path.read_text() for path in EXAMPLE.glob("offload_shelf/*.py"))
    assert "offload_core" not in source
    code = [line for line in source.splitlines() if line.strip() and not line.strip().startswith('"""')]
    assert len(code) <= 80


@pytest.mark.nightly
def test_it_passes_the_conformance_suite():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=EXAMPLE,
        env=os.environ | {"PYTHONPATH": str(EXAMPLE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_reads_an_archive_by_url(installed, archive):
    tier = open_store(f"shelf://{archive.as_uri().removeprefix('file://')}")
    assert [found.key for found in tier.list_objects()] == ["plain", "t/ledger-1"]
    assert tier.stat("t/ledger-1").user_metadata == {"role": "data"}
    assert tier.stat("plain").user_metadata == {}
    ranges = [ByteRange(key="t/ledger-1", offset=7, length=3), ByteRange(key="plain", offset=0, length=3)]
    assert [bytes(view) for view in tier.read_ranges(ranges)] == [b"789", b"abc"]
    assert bytes(pickle.loads(pickle.dumps(tier)).read_range("plain", 1, 1)) == b"b"


def test_it_keeps_what_is_written_in_memory(installed):
    tier = open_store("shelf:")
    upload = tier.begin_data("b/k", user_metadata={"A": "1"})
    receipts = [tier.write_block(upload, 2, 3, b"de"), tier.write_block(upload, 1, 0, b"abc")]
    with pytest.raises(ObjectNotFoundError):
        tier.stat("b/k")
    tier.commit_data(upload, receipts, create_only=True)
    assert bytes(tier.read_range("b/k", 2, 2)) == b"cd"
    assert tier.stat("b/k").user_metadata == {"a": "1"}
    with pytest.raises(ObjectExistsError):
        tier.write_index("b/k", b"", create_only=True)
    tier.write_index("a", b"x")
    assert [found.key for found in tier.list_objects(start_after="a")] == ["b/k"]
    assert [found.key for found in tier.list_objects("b/")] == ["b/k"]
    assert tier.delete(["b/k", "b/k"]) == 2
    assert [found.key for found in tier.list_objects()] == ["a"]


@pytest.mark.install
def test_it_can_be_installed_with_pip(archive, tmp_path):
    target = tmp_path / "target"
    install_into(target, EXAMPLE)
    code = f"{KEEP_TO}from offload_core.storage.tier import open_store; print(open_store('shelf', path=sys.argv[2]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(target), str(archive)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"<Tier shelf at shelf://{archive}>"
