"""Tiers of the driver `fsspec` as users meet them: by the command line and in scans, of objects that a broker wrote."""

from __future__ import annotations

import json
import re

import pytest
from commands import in_this_process
from servers.sftp import PASSWORD
from tiers import lay_out_broker_objects

from offload_core.storage.tier import open_store
from pulsar_offload import open_tier, scan

pytestmark = pytest.mark.long

TOPIC = "persistent://acme/cold/avro"


def without_fractions(text):
    """SFTP has times in seconds."""
    return re.sub(r"(:\d\d)\.\d+", r"\1", text)


@pytest.fixture
def offload(capsys, monkeypatch):
    return in_this_process(capsys, monkeypatch)


@pytest.fixture(params=["file", "sftp"])
def place(request, tmp_path, unique):
    """A folder with a broker's objects, its URL by fsspec, and what opens it."""
    if request.param == "file":
        lay_out_broker_objects(tmp_path / "tier")
        return tmp_path / "tier", f"fsspec+file://{tmp_path}/tier", {}
    server = request.getfixturevalue("sftp_server")
    lay_out_broker_objects(server.files / unique)
    return server.files / unique, f"fsspec+{server.endpoint}/{unique}", server.storage_options


def test_the_command_line_shows_what_a_broker_wrote_as_it_does_of_a_folder(place, offload):
    folder, url, storage_options = place
    given = ["-o", f"storage_options={json.dumps(storage_options)}"] if storage_options else []
    for command in (["ls", "--json"], ["ls", "--by", "segment", "--json"]):
        expected, shown = offload(*command, folder), offload(*command, url, *given)
        assert (shown.code, shown.err) == (0, "")
        assert without_fractions(shown.out) == without_fractions(expected.out)
    found = offload("cat", url, *given, "--topic", TOPIC, "--limit", 3)
    assert found.code == 0
    assert found.out == offload("cat", folder, "--topic", TOPIC, "--limit", 3).out
    assert PASSWORD not in found.out + found.err


def test_doctor_finds_nothing_wrong(place, offload):
    _, url, storage_options = place
    given = ["-o", f"storage_options={json.dumps(storage_options)}"] if storage_options else []
    done = offload("doctor", url, *given, "--json")
    assert done.code == 0, done.out + done.err
    assert {each["status"] for each in done.json["checks"]} <= {"ok", "skipped"}


def test_a_scan_gives_the_rows_of_the_same_folder(place):
    folder, url, storage_options = place
    with open_tier(folder) as local, open_tier(url, storage_options=storage_options) as tier:
        expected = scan(local, TOPIC).to_table()
        assert expected.num_rows
        assert scan(tier, TOPIC).to_table() == expected


def test_what_is_written_by_fsspec_is_read_by_the_driver_local_with_its_metadata(tmp_path):
    with open_store(f"fsspec+file://{tmp_path}") as tier, open_store(tmp_path) as local:
        tier.write_index("a/k", b"data", user_metadata={"role": "index"})
        assert local.stat("a/k") == tier.stat("a/k")
        local.write_index("a/k", b"more data", user_metadata={"role": "data"})
        assert tier.stat("a/k") == local.stat("a/k")
        assert [found.key for found in tier.list_objects()] == ["a/k"]
