"""The command in this process, fast, and as a process of its own, real."""

import os
import pty
import subprocess
from contextlib import suppress
from fcntl import ioctl
from struct import pack
from termios import TIOCSWINSZ

import pytest
from commands import COMMAND, as_a_process, in_this_process
from tiers import lay_out_broker_objects


@pytest.fixture
def offload(capsys, monkeypatch):
    """Run the command in this process: `offload("ls", root)`."""
    return in_this_process(capsys, monkeypatch)


@pytest.fixture
def offload_process():
    """Run the installed command as a process: `offload_process("ls", root)`."""
    return as_a_process


@pytest.fixture
def on_a_terminal():
    """Run the installed command on a terminal of its own: `on_a_terminal("ls", root)`; its exit code, what is seen.

    `columns` is how wide the terminal is; `stdout` or `stderr` may go elsewhere, as for `subprocess`.
    """

    def run(*arguments, columns=200, **streams):
        ours, its = pty.openpty()
        ioctl(its, TIOCSWINSZ, pack("HHHH", 40, columns, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        streams = {"stdin": its, "stdout": its, "stderr": its} | streams
        with subprocess.Popen([COMMAND, *arguments], env=environment, **streams) as process:
            os.close(its)
            seen = b""
            with suppress(OSError):  # Linux says so when the other end is closed
                while part := os.read(ours, 1 << 16):
                    seen += part
            os.close(ours)
        return process.returncode, seen.decode()

    return run


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    """A tier of what a broker offloaded."""
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root)
    return root
