"""Work in forked children, with a deadline: to hang on a parent's lock, or to use its connections, is a failure."""

from __future__ import annotations

import os
import signal
import socket
import stat
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import NoReturn

CAN_FORK = hasattr(os, "fork")


def in_forked_child(work: Callable[[], object], deadline_s: float) -> None:
    """Do the work in a fork of this process; its failure, or its silence, is this process's `AssertionError`."""
    in_forked_children([work], deadline_s)


def in_forked_children(works: Sequence[Callable[[], object]], deadline_s: float) -> None:
    """Do these works at once, each in a fork of this process, as `in_forked_child` does one."""
    with ExitStack() as stack:
        reports = []
        for work in works:
            read_end, write_end = os.pipe()
            stack.callback(os.close, read_end)
            stack.enter_context(forked(partial(_without_connections, work, write_end), write_end))
            os.close(write_end)
            reports.append(read_end)
        until = time.monotonic() + deadline_s
        for read_end in reports:
            report = _read_all(read_end, until)
            assert report is not None, f"it hangs in a forked child: no answer within {deadline_s:g} s"
            assert report == b"done", f"it fails in a forked child:\n{report.decode()}"


@contextmanager
def forked(work: Callable[[], object], report_to: int | None = None) -> Iterator[int]:
    """A fork of this process that does the work, by its process id; it is killed where the block ends.

    `report_to`: the descriptor that `done`, or how the work failed, is written to.
    """
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of forking with threads, which is what is judged
        pid = os.fork()
    if pid == 0:
        _report_and_exit(work, report_to)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _without_connections(work: Callable[[], object], report_to: int) -> None:
    """Do the work where each connection that the parent made is a trap: a byte written to it is a failure.

    Written to the connection itself, it would stand among the parent's own requests, which only the store would see.
    """
    traps = dict(_take_connections())
    over, end = socket.socketpair()

    def watch() -> None:
        while True:
            ready = wait([over, *traps])
            if ready == [over]:
                return
            for trap in [each for each in traps if each in ready]:
                if trap.recv(1):
                    peer = traps[trap]
                    report = f"it goes on with its parent's connection to {peer}; connect anew after a fork"
                    os.write(report_to, report.encode())
                    os._exit(0)
                del traps[trap]  # it was closed

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    work()
    end.send(b".")
    watcher.join()


def _take_connections() -> Iterator[tuple[socket.socket, str]]:
    """Put one end of a pair of sockets in the place of each of this process's connections; the other ends and peers."""
    for descriptor in [int(each.name) for each in Path("/dev/fd").iterdir()]:
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            with socket.socket(fileno=os.dup(descriptor)) as connection:
                peer = connection.getpeername()
        except OSError:  # it is closed, or listens
            continue
        if not peer:  # a pair of sockets, by which the process speaks to itself
            continue
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.setblocking(os.get_blocking(descriptor))
            os.dup2(theirs.fileno(), descriptor)
        yield ours, str(peer)


def _report_and_exit(work: Callable[[], object], report_to: int | None) -> NoReturn:
    report = b"done"
    try:
        work()
    except BaseException:
        report = traceback.format_exc().encode("utf-8", "replace")
    finally:  # no cleaning up: that is the parent's
        with suppress(BaseException):
            os.write(2 if report_to is None else report_to, report[-32_000:])
        os._exit(0)


def _read_all(descriptor: int, until: float) -> bytes | None:
    """All that the child writes until it ends; None if it does not."""
    report = b""
    while wait([descriptor], max(0.0, until - time.monotonic())):
        more = os.read(descriptor, 65536)
        if not more:
            return report
        report += more
    return None
