"""Every command where it meets trouble: a wrong name, nothing that answers, no rights, a reader or a user who leaves.

None prints a trace of Python, or calls it unexpected; the exit codes are those of docs/cli.md.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import closing
from time import monotonic

import pytest
from commands import COMMAND, INTERRUPTIBLE, configuration_file
from s3 import new_bucket
from servers.process import free_port
from tiers import lay_out_broker_objects

from offload_core.interfaces.cli.commands import COMMANDS
from offload_core.interfaces.cli.interruption import ENDS_WITHIN_S
from offload_core.metadata.stores import open_metadata_store

pytestmark = pytest.mark.long

TOPIC = "acme/cold/json"
RECORDS = "--records sqlite:{folder}/records.db"

OF_A_TIER = {
    "cat": f"-t {TOPIC}",
    "cost": "",
    "delete": f"{TOPIC} --not-shared {RECORDS}",
    "doctor": "",
    "du": "",
    "export": f"-t {TOPIC} --to {{folder}}/out",
    "gc": f"--not-shared {RECORDS}",
    "head": "",
    "history": TOPIC,
    "inspect": f"{TOPIC} --ledger 25",
    "ls": "",
    "recover": "--into sqlite:{folder}/new.db --into-option create=true",
    "relocate": "--to {folder}/moved",
    "repair": "",
    "report": "--output {folder}/report.html",
    "rollback delete": RECORDS,
    "rollback list": "",
    "rollback plan": "",
    "schemas pull": "--from {folder}/schemas",
    "schemas show": "",
    "verify": "",
}
"""What each command is given after the tier."""

FAILS_WITH_2 = {
    "delete",
    "gc",
    "recover",
    "repair",
    "rollback delete",
    "rollback list",
    "rollback plan",
    "verify",
}

OF_A_SERVICE = {
    "config explain": TOPIC,
    "config show": "",
    "own": "",
    "serve": "--port 0",
    "topics delete-hot-copies": TOPIC,
    "topics layout": TOPIC,
    "topics offload": TOPIC,
    "topics transactions": TOPIC,
    **{
        f"{each} {what}": f"{name} {value}"
        for each, name in (("namespaces", "acme/cold"), ("topics", TOPIC))
        for what, value in (
            ("clear-offload-deletion-lag", ""),
            ("get-offload-deletion-lag", ""),
            ("get-offload-filter", ""),
            ("get-offload-policies", ""),
            ("get-offload-threshold", ""),
            ("get-retention", ""),
            ("get-tiered-read-priority", ""),
            ("remove-offload-filter", ""),
            ("remove-offload-policies", ""),
            ("remove-retention", ""),
            ("remove-tiered-read-priority", ""),
            ("set-offload-deletion-lag", "--lag 5m"),
            ("set-offload-filter", "transactions"),
            ("set-offload-policies", "managedLedgerOffloadDriver=local"),
            ("set-offload-threshold", "--size 10MB"),
            ("set-retention", "--size 10MB --time 1d"),
            ("set-tiered-read-priority", "bookkeeper-first"),
        )
    },
}

SERVES = {"own", "serve"}
"""They write their log to the standard error as it is when they begin, for as long as the process lives."""

ALONE = {"plugins": "", "plugins new": "driver nosuch/place", "warm": ""}
"""What needs neither a tier nor a service."""


def leaves(command, path):
    """Every command that does something, by its words."""
    if getattr(command, "invoke_without_command", False) or not hasattr(command, "commands"):
        yield " ".join(path)
    for name, each in getattr(command, "commands", {}).items():
        yield from leaves(each, [*path, name])


def test_every_command_is_tried_here():
    known = [name for each in COMMANDS for name in leaves(each.load(), [each.name])]
    assert sorted(known) == sorted({**OF_A_TIER, **OF_A_SERVICE, **ALONE})


@pytest.fixture
def folder(tmp_path):
    """A place with a record of another topic, and no tier."""
    with closing(open_metadata_store(f"sqlite:{tmp_path}/records.db", {"create": True})) as store:
        store.put("/managed-ledgers/acme/cold/persistent/other", b"", None)
    (tmp_path / "schemas").mkdir()
    return tmp_path


def words(name, folder, tier, *options):
    return [*name.split(), str(tier), *shlex.split(OF_A_TIER[name].format(folder=folder)), *options]


def no_trace(text):
    return (
        "Traceback" not in text and "unexpected" not in text and "pulsar-offload; please report" not in text
    )


@pytest.mark.parametrize("name", OF_A_TIER)
def test_a_directory_that_does_not_exist_is_wrong_use(offload, folder, name):
    result = offload(*words(name, folder, folder / "nosuch"))
    assert no_trace(result.err)
    seen = result.out if name == "doctor" else result.err
    assert (result.code, "nosuch" in seen) == (1 if name == "doctor" else 2, True), result


@pytest.mark.parametrize("name", OF_A_TIER)
def test_an_endpoint_where_nothing_answers_is_named_at_once(offload, folder, name, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    place = f"127.0.0.1:{free_port()}"
    began = monotonic()
    result = offload(*words(name, folder, "s3://bucket/prefix", "-o", f"endpoint_url=http://{place}"))
    assert no_trace(result.err)
    assert monotonic() - began < 10
    assert result.code == (2 if name in FAILS_WITH_2 else 1), result
    assert place in result.err + (result.out if name == "doctor" else "")


@pytest.mark.parametrize("name", OF_A_TIER)
def test_a_user_without_rights_is_told_so(offload, folder, name, versitygw):
    bucket, user = new_bucket(versitygw), versitygw.add_user(f"stranger-{folder.name[-40:]}")
    given = {
        "endpoint_url": versitygw.endpoint,
        "region": versitygw.region,
        "access_key_id": user.access_key,
        "secret_access_key": user.secret_key,
    }
    options = [word for each in given.items() for word in ("-o", "=".join(each))]
    result = offload(*words(name, folder, f"s3://{bucket}/prefix", *options))
    assert no_trace(result.err)
    assert user.secret_key not in result.err + result.out
    assert result.code == (2 if name in FAILS_WITH_2 else 1), result
    assert re.search("denied|permission|not allowed", result.err + result.out, re.I), result


@pytest.mark.parametrize("name", OF_A_SERVICE)
def test_settings_that_are_not_there_are_wrong_use(offload, offload_process, folder, name):
    given = shlex.split(OF_A_SERVICE[name])
    run = offload_process if name in SERVES else offload
    result = run(*name.split(), *given, "--config", folder / "nosuch.toml")
    assert no_trace(result.err)
    assert (result.code, "nosuch.toml" in result.err) == (2, True), result


@pytest.mark.parametrize("name", OF_A_SERVICE)
def test_records_that_cannot_be_opened_are_named(offload, offload_process, folder, name):
    config = configuration_file(folder)
    given = ["--config", config, "--metadata", f"sqlite:{folder}/nosuch/records.db"]
    run = offload_process if name in SERVES else offload
    result = run(*name.split(), *shlex.split(OF_A_SERVICE[name]), *given)
    assert no_trace(result.err)
    if name not in ("config show",):  # which opens nothing
        assert result.code in (1, 2), result
        assert "nosuch" in result.err


@pytest.mark.parametrize("name", OF_A_TIER)
def test_a_reader_of_the_output_who_has_gone_ends_it_quietly(folder, name):
    lay_out_broker_objects(folder / "tier")
    reader, writer = os.pipe()
    os.close(reader)
    environment = {each: value for each, value in os.environ.items() if each != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [COMMAND, *words(name, folder, folder / "tier")],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment,
        check=False,
        timeout=120,
        text=True,
    )
    os.close(writer)
    assert no_trace(done.stderr), done.stderr
    assert "Broken pipe" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.fixture
def silent():
    """A service that takes connections and never answers: its socket, its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("name", OF_A_TIER)
def test_ctrl_c_ends_it_within_seconds_though_the_store_does_not_answer(folder, name, silent, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server, url = silent
    program = [sys.executable, "-c", INTERRUPTIBLE]
    program += words(name, folder, "s3://bucket/prefix", "-o", f"endpoint_url={url}")
    with (
        subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        server.accept()[0],
    ):
        process.send_signal(signal.SIGINT)
        if name == "export":  # it waits for a commit that is under way
            assert process.stderr.readline().startswith(
                "ending after what is under way; once more to break off"
            )
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=ENDS_WITHIN_S + 8)
    assert process.returncode == 130, said
    assert no_trace(said)
    assert said.endswith("offload: interrupted\n")
