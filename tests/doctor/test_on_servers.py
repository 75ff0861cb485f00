"""`offload doctor` as people run it, on each of the five stores: what it finds, what it leaves, what it never shows."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from commands import COMMAND, Result
from stores import NAMES, SERVERS, WebHdfs, new_store

pytestmark = pytest.mark.sampled(12)

CHECKS = [
    *("reach", "put", "metadata", "multipart", "invisible", "commit", "head", "list", "ranges"),
    *("past the end", "create-only", "uploads", "clock", "throughput", "latency", "delete"),
    *("delete again", "leftovers", "cleanup"),
]
SECRET = "aHVudGVyMmh1bnRlcjI="  # what Azure takes for a key


@pytest.fixture(params=NAMES)
def store(request, tmp_path):
    """An empty tier of its own on each store."""
    return new_store(request.param, request.getfixturevalue, tmp_path)


def doctor(store, *options):
    # The driver `hdfs` sets this one for its process, and children inherit it.
    environment = {name: value for name, value in os.environ.items() if name != "HADOOP_USER_NAME"}
    done = subprocess.run(
        [str(COMMAND), "doctor", *store.command_line(), *options],
        capture_output=True,
        text=True,
        env=environment | {"COLUMNS": "200"},
        timeout=300,
        check=False,
    )
    return Result(code=done.returncode, out=done.stdout, err=done.stderr)


def everything_in(store, server):
    """The names of all that is in the store's bucket, container or directory, uploads too, without the driver."""
    place = store.url.partition("://")[2]
    if store.name == "local":
        root = Path(store.url).parent
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    if store.name == "hdfs":
        return WebHdfs(server.endpoint, f"/{place.split('/')[1]}", server.superuser).files()
    bucket = place.partition("/")[0]
    if store.name == "s3":
        from s3 import Boto

        client = Boto(server, bucket)
        try:
            return client.keys() | set(client.uploads())
        finally:
            client.close()
    if store.name == "gcs":
        from gcs import Rest

        return Rest(server, bucket).keys()
    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient.from_connection_string(server.connection_string) as service:
        found = service.get_container_client(bucket).list_blobs(include=["uncommittedblobs"])
        return {blob.name for blob in found}


def test_every_check_goes_well_and_nothing_is_left(store, request):
    server = None if store.name == "local" else request.getfixturevalue(SERVERS[store.name])
    with store.open() as tier:
        tier.write_index("somebodys", b"0123456789", user_metadata={"role": "index"})
    before = everything_in(store, server)
    result = doctor(store)
    assert (result.code, result.err) == (0, ""), result.out
    header, *lines, summary = result.out.splitlines()
    assert header.split() == ["check", "status", "seconds", "seen"]
    assert [line[: header.index("status")].strip() for line in lines] == CHECKS
    assert {line[header.index("status") :].split()[0] for line in lines} == {"ok"}
    assert summary.startswith(f"{len(CHECKS)} ok, 0 warning, 0 failed, 0 skipped; {store.name} at ")
    assert everything_in(store, server) == before


def test_a_tier_that_may_only_be_read_is_examined_by_reading(store):
    with store.open() as tier:
        tier.write_index("somebodys", b"0123456789", user_metadata={"role": "index"})
    result = doctor(store, "--read-only", "--json")
    assert (result.code, result.err) == (0, "")
    assert result.json["summary"] == {"ok": 7, "warning": 0, "failed": 0, "skipped": 0}
    assert result.json["left_behind"] == []


@pytest.mark.parametrize("form", [[], ["--json"], ["--debug"]], ids=["table", "json", "debug"])
@pytest.mark.parametrize("name", ["s3", "azure"])
def test_a_wrong_secret_is_told_and_not_shown(name, form, request, tmp_path):
    store = new_store(name, request.getfixturevalue, tmp_path)
    right = {
        "s3": store.options.get("secret_access_key"),
        "azure": request.getfixturevalue("azurite").account_key,
    }
    options = {key: value.replace(str(right[name]), SECRET) for key, value in store.options.items()}
    assert options != store.options
    result = doctor(replace(store, options=options), *form)
    assert result.code == 1
    assert "Check the credentials, then grant them" in result.out
    assert ("s3:ListBucket on the bucket" if name == "s3" else "Storage Blob Data") in result.out
    assert "Traceback" not in result.out + result.err
    for hidden in (SECRET, SECRET.rstrip("="), str(right[name]), "root-access-key"):
        assert hidden not in result.out + result.err


def test_a_user_without_rights_is_told_which_he_needs(request, tmp_path):
    store = new_store("hdfs", request.getfixturevalue, tmp_path)
    with store.open() as tier:
        tier.write_index("somebodys", b"0123456789")
    result = doctor(replace(store, options={"user": "nobody"}))
    assert result.code == 1
    assert re.search("^put +failed ", result.out, re.MULTILINE)
    assert "write and execute (-wx) on the tier's directory" in " ".join(result.out.split())
    assert "failed" in result.out.splitlines()[-1]
