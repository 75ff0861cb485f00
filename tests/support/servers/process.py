"""One child process: its output in a log file, ready by a deadline, gone on request or when its parent dies."""

from __future__ import annotations

import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

LOOPBACK = "127.0.0.1"

# Runs before the server in the same process, so the process id stays. Linux then kills the server when the thread
# that started it ends, even by SIGKILL (prctl(2), PR_SET_PDEATHSIG = 1); elsewhere only `stop` ends it. This is not
# a `preexec_fn`, which warns from Python 3.12 on when the parent has threads.
_LEASH = """
import os, sys
if sys.platform == "linux":
    import ctypes, signal
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class ServerError(Exception):
    """A server that should run did not start, or ended by itself; the text has the end of its log."""


class Child:
    """A running program. Start it from the main thread: its life is tied to the thread's."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        leash = [sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid())]
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*leash, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else {**os.environ, **env},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return whether the process has not ended."""
        return self._process.poll() is None

    def wait_until(self, is_ready: Callable[[], bool], within_s: float = 120.0) -> None:
        """Wait for `is_ready`; raise `ServerError` when the child ends first or takes too long, and leave none."""
        deadline = time.monotonic() + within_s
        try:
            while not is_ready():
                if not self.is_running:
                    code = self._process.returncode
                    raise ServerError(f"ended with {code} before it was ready\n{self.log_tail()}")
                if time.monotonic() > deadline:
                    raise ServerError(f"not ready within {within_s:.0f} s\n{self.log_tail()}")
                time.sleep(0.05)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """End the process by SIGTERM, or by SIGKILL if that is not enough, and wait until it is gone."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the process by SIGKILL and wait until it is gone."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def log_tail(self) -> str:
        """The log's last lines, under its path."""
        return "\n".join([f"{self.log}:", *self.log.read_text(errors="replace").splitlines()[-30:]])


def free_port() -> int:
    """A free loopback port, below those that systems give to outgoing connections.

    So no client can take the port of a server that is just being restarted.
    """
    for _ in range(1000):
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise ServerError("no free port between 15000 and 32000")


def http_answer(
    netloc: str, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] = {}
) -> tuple[int, http.client.HTTPMessage, bytes]:
    """The status, headers and body of an HTTP answer. Never goes through a proxy."""
    with closing(http.client.HTTPConnection(netloc, timeout=60)) as connection:
        connection.request(method, target, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()


def http_status(port: int, method: str, path: str, body: bytes | None = None) -> int | None:
    """The status of the answer at `port`, or None where nothing answers; a body is JSON."""
    headers = {} if body is None else {"Content-Type": "application/json"}
    try:
        return http_answer(f"{LOOPBACK}:{port}", method, path, body, headers)[0]
    except (OSError, http.client.HTTPException):
        return None
