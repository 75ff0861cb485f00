"""How the command begins and is broken off: what is imported for help, what commands are called, what Ctrl-C says."""

import re
import signal
import subprocess
import sys

import pytest
from waiting import wait_for

from offload_core.interfaces.cli.commands import COMMANDS

HEAVY = ("numba", "numpy", "pyarrow", "pyspark", "offload_core.metadata.catalogue")

WITH_MODULES = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(" ".join(sys.modules)))
from offload_core.interfaces.cli.main import main
main()
"""


def run(program, *arguments):
    """A program of Python in a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("arguments", [["--help"], ["--show-completion", "bash"], ["nothing"]])
def test_no_command_is_imported_to_list_them(arguments):
    done = run(WITH_MODULES, *arguments)
    assert set(done.stderr.split()).isdisjoint(HEAVY)
    assert "offload_core.interfaces.cli.commands" in done.stderr.split()


def test_no_kernel_is_compiled_to_list_a_tier_and_no_bar_is_imported(broker):
    """The import of numba alone takes longer than all else of it."""
    key = next(path.name for path in broker.rglob("*-ledger-*") if "index" not in path.name)
    program = f"""
import sys
from offload_core.interfaces.cli.main import main
for command in ("ls", "ls --json", "du", "cost", "verify", "inspect {key}"):
    name, *options = command.split()
    sys.argv = ["offload", name, {str(broker)!r}, *options]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, (command, ended.code)
    assert "numba" not in sys.modules, command
    assert name != "ls" or sys.modules.keys().isdisjoint(["rich.progress", "rich.logging"]), command
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert "acme/cold/json" in done.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each.name)
def test_what_the_list_says_of_a_command_is_how_its_own_help_begins(command):
    found = command.load()
    first = (found.help or "").split("\n\n")[0].replace("\n", " ")
    assert (command.help, command.is_group) == (first, hasattr(found, "commands"))


def test_help_names_all_commands(offload):
    shown = offload("--help").out
    assert all(f" {command.name} " in shown for command in COMMANDS)


def test_the_help_of_a_command_has_its_name(offload):
    for name in ("ls", "rollback delete", "plugins new", "plugins"):
        assert f"offload {name} [OPTIONS]" in " ".join(offload(*name.split(), "--help").out.split())


INTERRUPTED_IN_AN_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            {how}

class Dying:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["offload", "ls", "."]
from offload_core.interfaces.cli.main import main
main()
"""


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    "name",
    [
        "typer",
        "rich",
        "offload_core.interfaces.cli.commands",
        "offload_core.interfaces.cli.ls",
        "offload_core.metadata.catalogue",
    ],
)
@pytest.mark.parametrize(
    "how", ["os.kill(os.getpid(), signal.SIGINT)", "Dying()"], ids=["seen", "lost at first"]
)
def test_ctrl_c_during_imports_is_one_line(name, how):
    done = run(INTERRUPTED_IN_AN_IMPORT.format(name=name, how=how))
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "offload: interrupted\n")


INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests run in the background
from offload_core.interfaces.cli.main import main
if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("more", [[], ["--processes"]], ids=["threads", "processes"])
def test_ctrl_c_while_workers_read_is_two_lines_at_most(broker, tmp_path, more):
    program, state = tmp_path / "program.py", tmp_path / "state"
    program.write_text(INTERRUPTIBLE)
    slow = ["--layer", "rate-limit:bytes_per_second=2000000", "--state", str(state), "--workers", "2"]
    command = [sys.executable, str(program), "verify", str(broker), "--deep", *slow, *more]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: process.poll() is not None or state.exists(), within_s=120)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    assert re.fullmatch(
        r"(offload: broken off\. verifying: .* With --deep .*\n)?offload: interrupted\n", said
    )
