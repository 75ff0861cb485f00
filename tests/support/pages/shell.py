"""Commands of a page: `offload` in this process, what needs a process in one; installations are checked, not made."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from fcntl import ioctl
from itertools import groupby
from pathlib import Path
from struct import pack

import tomllib
from commands import COMMAND
from gallery.terminal import screen_of
from live.clients import PulsarShell
from servers.process import Child, free_port
from waiting import wait_for

from offload_core.interfaces.cli.main import main

ROOT = Path(__file__).parents[3]
_DRY_RUNS = ("delete", "gc", "recover", "relocate", "repair", "rollback")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A command, and its output as the page shows it."""

    words: Sequence[str]
    shown: Sequence[str]

    @property
    def finds(self):
        """Return whether it may end with 1: it changes nothing, and the page shows its findings or its plan."""
        return "--yes" not in self.words and (bool(self.shown) or self.words[1] in _DRY_RUNS)


def run_console(text, world, *, columns=None):
    """Run each command, and compare; `offload` on a terminal of so many columns, if they are given."""
    for asks_service, lines in groupby(_lines(text), lambda line: line.words[0] == "pulsar-admin"):
        if asks_service:
            _ask_service(list(lines), world)
            continue
        for line in lines:
            _compare(line, _run(line.words, world, finds=line.finds, columns=columns))


def _lines(text):
    joined = text.replace("\\\n", " ")
    found = []
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        words = [os.path.expandvars(word) for word in shlex.split(command, comments=True)]
        found.append(Line(words=words, shown=[each for each in shown if each.strip()]))
    assert found, f"no command begins with '$ ' in {text!r}"
    return found


def _run(words, world, *, finds, columns):
    """Run a command; return its output."""
    match words:
        case ["export", *settings]:
            for setting in settings:
                name, _, value = setting.partition("=")
                os.environ[name] = value
        case ["mkdir", *folders]:
            for folder in folders:
                Path(folder).mkdir(parents=True, exist_ok=True)
        case [".", ".venv/bin/activate"]:
            pass  # this process is of that environment
        case ["cp", *_] | ["rm", *_] if "-rf" not in words:
            _quietly(["sh", "-c", " ".join(words)])  # which knows `*`
        case ["python", program, *arguments] if (ROOT / program).is_file():
            return _quietly([sys.executable, str(ROOT / program), *arguments])
        case ["make", *targets]:
            _quietly(["make", "-n", "-C", str(ROOT), *targets])
        case ["pip" | ".venv/bin/pip", "install", *what]:
            _check_extras(what)
        case ["python3", "-m", "venv", ".venv"]:
            pass  # the user has one
        case [".venv/bin/python", "-m", "pytest", *_] | [".venv/bin/python", "examples/demo.py"]:
            assert words[1] == "-m" or (ROOT / words[1]).is_file()  # tests/spark/test_examples.py runs it
        case ["offload", "serve" | "own" as command, *arguments]:
            _serve(command, arguments, world)
        case ["offload", *arguments] if "--follow" in arguments:
            _follow(arguments)
        case ["offload", *_] if columns is not None:
            return _on_terminal([str(COMMAND), *words[1:]], columns, finds=finds)
        case ["offload", "export" | "relocate" | "verify", *arguments] if _needs_process(arguments):
            return _quietly([str(COMMAND), *words[1:]])
        case ["offload", *arguments]:
            return _offload(arguments, finds=finds)
        case _:
            raise AssertionError(f"nothing here runs {shlex.join(words)}")
    return ""


def _needs_process(arguments):
    """A session of Spark is a process's own, and PyIceberg reads its configuration once in a process."""
    return "--master" in arguments or any(word.startswith("iceberg:") for word in arguments)


def _offload(arguments, *, finds):
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["offload", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        if ended.code and (ended.code != 1 or not finds or "offload: " in err.getvalue()):
            raise AssertionError(f"{shlex.join(sys.argv)}\n{out.getvalue()}{err.getvalue()}") from None
    finally:
        sys.argv = before
    return out.getvalue()


def _on_terminal(command, columns, *, finds):
    """Run a command on a terminal of its own; return the lines that this shows in the end."""
    ours, its = pty.openpty()
    ioctl(its, termios.TIOCSWINSZ, pack("HHHH", 40, columns, 0, 0))
    env = os.environ | {"TERM": "xterm-256color"}
    running = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env)
    os.close(its)
    printed = b""
    with suppress(OSError):  # Linux says so when the other end is closed
        while part := os.read(ours, 1 << 16):
            printed += part
    os.close(ours)
    code, shown = running.wait(120), "\n".join(screen_of(printed.decode(), columns))
    assert code == 0 or (code == 1 and finds), shown
    return shown


def _quietly(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _check_extras(words):
    """Check that the command installs this project, with extras that exist, and else only what its tests install."""
    ours, *others = (word for word in words if "[" in word)
    match = re.fullmatch(rf"(?:{PROJECT['name']}|\.)\[([\w,]+)\]", ours)
    assert match is not None, ours
    extras = PROJECT["optional-dependencies"]
    assert set(match[1].split(",")) <= set(extras), ours
    assert all(any(each.startswith(other) for each in extras["test"]) for other in others), others


def _serve(command, arguments, world):
    (world.folder / "empty.toml").touch()
    words = [str(COMMAND), command, *arguments, "--port", str(free_port())]
    log = world.folder / f"{command}-{words[-1]}.log"
    env = {"PULSAR_OFFLOAD_CONFIG": f"{world.folder}/empty.toml"}
    child = Child(words, log, env)
    try:
        child.wait_until(lambda: "listening" in log.read_text())
    finally:
        child.stop()


def _follow(arguments):
    """Until something is exported; then it is ended as by Ctrl-C."""
    target = Path(arguments[arguments.index("--to") + 1].partition(":")[2])
    running = subprocess.Popen([str(COMMAND), *arguments])
    wait_for(lambda: running.poll() is not None or list(target.rglob("_delta_log/*.json")))
    assert running.poll() is None, "it has ended"
    running.send_signal(signal.SIGINT)
    assert running.wait(60) in (0, 130)  # while it waited for more, or in the middle of what was there


def _ask_service(lines, world):
    asked = []
    for line in lines:
        _, option, url, *command = line.words
        assert option == "--admin-url", f"not asked of the service: {shlex.join(line.words)}"
        asked.append(shlex.join(command))
    for line, printed in zip(lines, PulsarShell(world.folder, url).run(asked), strict=True):
        assert "Reason" not in printed, printed
        _compare(line, printed)


def _compare(line, printed):
    there = [_loosely(each) for each in printed.splitlines()]
    missing = [each for each in line.shown if each.strip() != "…" and _loosely(each) not in there]
    assert not missing, f"{shlex.join(line.words)} printed\n{printed}"


def _loosely(text):
    return re.sub(r"\d+", "0", " ".join(text.split()))
