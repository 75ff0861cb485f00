"""A command on a terminal of its own, and the screen that it leaves.

`offload` runs in a process that is forked from this one, which has imported and compiled what commands need: each then
takes a tenth of the time. Other commands run in a shell.
"""

from __future__ import annotations

import os
import pty
import shlex
import sys
import termios
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from struct import pack

import pyte

_ROWS = 500
_CTRL_C = b"\x03"
_UNTIL = {"serve": b"listening", "own": b"listening"}
"""Commands that run until Ctrl-C, which comes when they have printed this."""


def import_commands() -> None:
    """Import what commands need, with a terminal as standard output and error: by that they decide how to print."""
    os.environ["TERM"] = "xterm-256color"
    ours, its = pty.openpty()
    before = {number: os.dup(number) for number in (1, 2)}
    for number in before:
        os.dup2(its, number)
    try:
        from offload_core.interfaces.cli.commands import COMMANDS

        for each in COMMANDS:
            each.load()
        _import_more()
    finally:
        for number, kept in before.items():
            os.dup2(kept, number)
        for each in (ours, its, *before.values()):
            os.close(each)


def _import_more() -> None:
    """What some commands import and compile late."""
    import pandas  # noqa: F401
    import rich.progress  # noqa: F401

    from offload_core.interfaces.cli.main import main
    from offload_core.interfaces.service import server  # noqa: F401
    from offload_core.storage.tier import survey

    survey()
    before, sys.argv = sys.argv, ["offload", "warm"]
    main()
    sys.argv = before


def run(line: str, folder: Path, columns: int) -> tuple[int, str]:
    """Run a command line in a folder; its exit code as a shell has it, and what it sent to the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        _become(line, folder, columns)
    until = next((_UNTIL[word] for word in shlex.split(line)[1:2] if word in _UNTIL), None)
    printed = b""
    with suppress(OSError):  # Linux says so when the other end is closed
        while part := os.read(terminal, 1 << 16):
            printed += part
            if until and until in printed and printed.endswith(b"\n"):
                until = None
                os.write(terminal, _CTRL_C)
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code, printed.decode()


def _become(line: str, folder: Path, columns: int) -> None:
    """Run a command line in this process, and end it."""
    code = 1
    try:
        ioctl(0, termios.TIOCSWINSZ, pack("HHHH", 40, columns, 0, 0))
        os.chdir(folder)
        words = shlex.split(line)
        if words[0] != "offload":
            os.execvp("sh", ["sh", "-c", line])
        from offload_core.interfaces.cli.main import main

        sys.argv = words
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def screen_of(printed: str, columns: int) -> list[str]:
    """The lines that a terminal shows in the end."""
    screen = pyte.Screen(columns, _ROWS)
    pyte.Stream(screen).feed(printed)
    assert screen.cursor.y < _ROWS - 1, "there is more than the gallery has room for"
    rows = (screen.buffer[y] for y in range(screen.cursor.y + 1))
    lines = ["".join(row[x].data for x in range(columns)).rstrip() for row in rows]
    while lines and not lines[-1]:
        lines.pop()
    return lines
