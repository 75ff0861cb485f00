"""The command: exit codes, errors and escapes, and as a process its pipes, terminals and missing libraries."""

import json
import os
import subprocess
import sys
from contextlib import closing
from importlib.metadata import version

import pytest
from commands import COMMAND
from entries import LedgerPart, WrittenObject, entry, pip17_object, streaming_object
from tiers import Names, lay_out

from offload_core.metadata.stores import open_metadata_store

pytestmark = pytest.mark.long

ORDERS = "acme/cold/orders"
INSTALL = "Run: pip install 'pulsar-offload[cli]'\n"
# what an attacker or an accident may put into a name: colour, title, screen, C1, bidi, newline, markup
HOSTILE = "\x1b[31m\x1b]0;title\x07\x9b2J\u202eline\nbreak[red]markup[/red][/]"
SHOWN = r"\x1b[31m\x1b]0;title\x07\x9b2J\u202eline\nbreak[red]markup[/red][/]"
NAMES = Names(managed_ledger="acme/cold/persistent/" + "".join(f"%{byte:02X}" for byte in HOSTILE.encode()))


@pytest.fixture
def orders(tmp_path):
    lay_out(tmp_path / "tier", pip17_object([entry(b"%d" % i) for i in range(5)]))
    return tmp_path / "tier"


@pytest.fixture
def hostile(tmp_path):
    """A tier whose topic, keys, values, properties and producer want to steer the terminal."""
    entries = [
        entry(HOSTILE.encode(), partition_key=HOSTILE, producer_name=HOSTILE, properties=[(HOSTILE, HOSTILE)])
    ]
    lay_out(tmp_path / "tier", pip17_object(entries), names=NAMES)
    lay_out(tmp_path / "tier", pip17_object(entries, ledger_id=8), attempt=1, names=NAMES, parts=["data"])
    return tmp_path / "tier"


def steers(text):
    """Characters that are neither printable nor a line's end."""
    return {character for character in text if not character.isprintable() and character != "\n"}


# --- exit codes and errors ---------------------------------------------------------------------


def test_a_command_that_went_well_ends_with_0_and_says_nothing_else(offload_process, offload, orders):
    result = offload_process("cat", orders, "-t", ORDERS, "-f", "jsonl", "--columns", "__entryId")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [f'{{"__entryId": {i}}}' for i in range(5)]
    assert offload("ls", orders).out.splitlines()[1].startswith("acme/cold/orders ")


def test_a_process_ends_with_the_code_of_its_error(offload_process, orders):
    result = offload_process("cat", orders, "-t", "acme/cold/order", "--debug")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Traceback (most recent call last):")
    assert "UnknownTopicError: no topic persistent://acme/cold/order" in result.err


def test_an_error_that_nothing_expects_is_two_lines_without_a_trace(offload, orders, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError("by test, of s3://a:geheim@bucket")

    monkeypatch.setattr("offload_core.interfaces.cli.ls.rows_of", fail)
    done = offload("ls", orders)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        "offload: unexpected ZeroDivisionError: by test, of s3://********@bucket",
        "offload: this is a fault of pulsar-offload; please report it with what --debug prints",
    ]
    shown = offload("ls", orders, "--debug").err
    assert shown.startswith("Traceback (most recent call last):")
    assert "geheim" not in shown


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["{}/nowhere"], "does not exist"),
        (["{}", "-o", "root"], "expected NAME=VALUE, found 'root'"),
        (["{}", "-o", "bucket=secret"], "bucket"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(offload, orders, arguments, error):
    result = offload("ls", *(argument.format(orders) for argument in arguments))
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("offload: ")
    assert result.err.count("\n") == 1
    assert error in result.err


def test_a_call_that_is_made_again_is_one_line(offload_process, offload, orders):
    faults = "fault-plan:faults=fail-before list_objects #1"
    layers = ("--layer", "retry:first_wait_s=0,jitter_s=0", "--layer", faults)
    result = offload_process("ls", orders, *layers)
    assert (result.code, result.out) == (0, offload("ls", orders).out)
    assert result.err == "offload: warning: list_objects of '': attempt 2, after StoreUnavailableError\n"


WARNS = """
import sys, warnings
from offload_core.interfaces.cli import command_options, main
def open_tier(*arguments, _opened=command_options.open_tier, **named):
    warnings.warn("this is old")
    return _opened(*arguments, **named)
command_options.open_tier = open_tier
main.main()
"""


def test_what_a_library_warns_of_is_a_line_without_its_module(orders):
    done = subprocess.run(
        [sys.executable, "-c", WARNS, "ls", str(orders)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stderr == "offload: warning: this is old\n"


def test_warnings_are_a_line_each_on_the_error_output(offload_process, tmp_path):
    lay_out(tmp_path, pip17_object([entry(b"a", txnid_most_bits=1, txnid_least_bits=2)]), attempt=1)
    lay_out(tmp_path, pip17_object([entry(b"a", txnid_most_bits=1, txnid_least_bits=2)]), attempt=2)
    result = offload_process("cat", tmp_path, "-t", ORDERS, "-f", "jsonl", "--columns", "value")
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines() == [
        "offload: warning: ledger 7 of persistent://acme/cold/orders has 1 complete copies that are not read, since "
        "newer ones are: 00000000-0000-4000-8000-000000000001-ledger-7",
        "offload: warning: persistent://acme/cold/orders: the outcome of 1 transactions is not known: (1,2) at 7:0. "
        "Nothing from 7:0 on is read, as by a consumer; isolation uncommitted reads all",
    ]


def test_the_driver_and_its_options_can_be_named(offload, orders):
    result = offload("ls", "local", "-o", f"root={orders}", "--json")
    assert result.code == 0
    assert len(result.json["topics"]) == 1


# --- plugins -----------------------------------------------------------------------------------


def test_plugins_lists_the_drivers_and_schemes_that_are_installed(offload):
    result = offload("plugins")
    assert (result.code, result.err) == (0, "")
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[0] == ["kind", "name", "from", "version", "status", "problem"]
    assert ["drivers", "local", "pulsar-offload", version("pulsar-offload"), "ok"] in lines
    assert ["url_schemes", "file", "pulsar-offload", version("pulsar-offload"), "ok"] in lines
    listed = offload("plugins", "--json").json
    (local,) = [each for each in listed if each["name"] == "local"]
    assert (local["group"], local["status"]) == ("pulsar_offload.drivers", "ok")


def test_the_install_line_of_a_plugin_with_a_missing_extra_is_shown_whole(offload, tmp_path, monkeypatch):
    info = tmp_path / "offload_far-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: offload-far\nVersion: 1.0\nProvides-Extra: far\n"
    )
    (info / "entry_points.txt").write_text(
        "[pulsar_offload.drivers]\nfar = offload_far_driver:Driver [far]\n"
    )
    (tmp_path / "offload_far_driver.py").write_text("import a_library_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    (line,) = [line for line in offload("plugins").out.splitlines() if " far " in line]
    assert "pip install 'offload-far[far]'" in line


# --- pipes and terminals -----------------------------------------------------------------------


def buffered_environment():
    """The environment, with Python's output buffered as it usually is: what is left is flushed at the exit."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def test_output_into_a_pipe_that_is_closed_early_ends_quietly(tmp_path):
    """As by `offload … | head -1`."""
    lay_out(tmp_path, pip17_object([entry(b"x" * 100)] * 20_000, max_block_bytes=64 << 20))
    with subprocess.Popen(
        [COMMAND, "cat", tmp_path, "-t", ORDERS, "-f", "jsonl"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=buffered_environment(),
    ) as process:
        assert json.loads(process.stdout.readline())["__entryId"] == 0
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "arguments", [["cat", "{}", "-t", ORDERS, "-f", "jsonl"], ["ls", "{}"], ["ls", "{}", "--json"]]
)
def test_output_into_a_pipe_that_nobody_reads_ends_quietly(orders, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [str(COMMAND), *(argument.format(orders) for argument in arguments)],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=buffered_environment(),
        check=False,
        timeout=120,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_progress_is_shown_on_a_terminal_beside_a_file_or_a_pipe_but_not_between_rows(
    offload, on_a_terminal, orders, tmp_path
):
    rows = ("cat", orders, "-t", ORDERS, "-f", "jsonl", "--columns", "__entryId")
    into_a_file = (*rows, "--output", tmp_path / "rows")
    assert "reading" in on_a_terminal(*into_a_file)[1]
    assert offload(*into_a_file).err == ""
    assert "reading" in on_a_terminal(*rows, stdout=subprocess.DEVNULL)[1]
    assert on_a_terminal(*rows)[1].splitlines() == [f'{{"__entryId": {i}}}' for i in range(5)]


# --- what a store says never steers the terminal -----------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        *("ls", "ls -l", "gc --records sqlite:records.db --not-shared", "rollback plan", "rollback list"),
        *("rollback delete", "rollback delete --accept-loss"),
    ],
)
def test_names_of_topics_are_shown_escaped(offload, hostile, monkeypatch, command):
    monkeypatch.chdir(hostile.parent)
    segment = streaming_object([LedgerPart(ledger_id=9, blocks=[[b"a"]])])
    lay_out(hostile, segment, attempt=2, names=NAMES)
    with closing(open_metadata_store("sqlite:records.db", {"create": True})) as store:
        store.put("/managed-ledgers/acme/cold/persistent/other", b"", None)
    result = offload(*command.split(), hostile)
    assert result.code == (command[:2] != "ls" and command != "rollback list")
    assert f"acme/cold/{SHOWN}" in result.out
    assert steers(result.out + result.err) == set()


def test_names_of_topics_are_shown_escaped_on_a_terminal(on_a_terminal, hostile):
    _, shown = on_a_terminal("ls", hostile)
    assert SHOWN in shown
    for sequence in ("\x1b[31m", "\x1b]0;", "\x07", "\x9b", "\u202e"):
        assert sequence not in shown


def test_a_message_is_shown_escaped(offload, hostile):
    columns = "value,__key,__topic,__producerName,__messageProperties"
    result = offload("cat", hostile, "--ledger", "7", "--columns", columns)
    assert result.code == 0
    assert steers(result.out + result.err) == set()
    assert "[red]markup" in result.out


def test_json_lines_are_escaped_and_yet_the_same_text(offload, hostile):
    result = offload("cat", hostile, "--ledger", "7", "-f", "jsonl")
    assert steers(result.out) <= {"\u202e"}
    row = result.json
    assert row["__topic"] == f"persistent://acme/cold/{HOSTILE}"
    assert row["__messageProperties"] == {HOSTILE: HOSTILE}


def test_errors_and_warnings_are_shown_escaped(offload_process, offload, hostile):
    error = offload("cat", hostile, "-t", "acme/cold/other")
    assert error.code == 2
    assert SHOWN in error.err
    warning = offload_process("cat", hostile, "-t", f"persistent://acme/cold/{HOSTILE}")
    assert warning.code == 0
    assert SHOWN in warning.err
    assert "ledger 8 has no complete copy" in warning.err
    for text in (error.err, warning.err):
        assert steers(text) == set()
        assert text.count("\n") == 1


def test_keys_and_metadata_of_an_object_are_shown_escaped(offload, tmp_path):
    written = pip17_object([b"x" * 424] * 4, max_block_bytes=1000)
    damaged = WrittenObject(
        key=written.key, data=b"\0" + written.data[1:1500], index=written.index, entries=written.entries
    )
    folder = HOSTILE.replace("/", "|").replace("\n", "") + "/"
    key = lay_out(tmp_path, damaged, folder=folder, names=Names(managed_ledger="a/b/persistent/[red]"))
    result = offload("inspect", tmp_path, key)
    assert result.code == 0
    assert steers(result.out) == set()
    shown = SHOWN.replace("/", "|").replace(r"\n", "")
    assert shown in result.out
    assert "a/b/persistent/[red]" in result.out
    for command, problem in (("ls", "wrong-length"), ("verify", "object.wrong-length")):
        told = offload(command, tmp_path)
        assert problem in told.out
        assert shown in told.out
        assert steers(told.out) == set()


# --- missing libraries -------------------------------------------------------------------------

BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
sys.argv = ["offload", "plugins"]
from offload_core.interfaces.cli.main import main
main()
"""


@pytest.mark.parametrize("missing", ["rich", "typer"])
def test_without_its_libraries_the_command_gives_the_install_line(missing):
    done = subprocess.run(
        [sys.executable, "-c", BLOCKER.format(missing=missing)], capture_output=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode() == f"offload: {missing} is not installed. {INSTALL}"
