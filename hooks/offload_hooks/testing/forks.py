"""Work in a forked child, with a deadline: a child that hangs on its parent's locks or connections is a failure."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

CAN_FORK = hasattr(os, "fork")


def in_forked_child(work: Callable[[], object], deadline_s: float) -> None:
    """Do the work in a fork of this process; its failure, or its silence, is this process's `AssertionError`."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of forking with threads, which is what is judged
        pid = os.fork()
    if pid == 0:
        _report_and_exit(work, write_end)
    os.close(write_end)
    try:
        report = _read_all(read_end, time.monotonic() + deadline_s)
    finally:
        os.close(read_end)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert report is not None, f"the driver hangs in a forked child: no answer within {deadline_s:g} s"
    assert report == b"done", f"the driver fails in a forked child:\n{report.decode()}"


def _report_and_exit(work: Callable[[], object], write_end: int) -> NoReturn:
    report = b"done"
    try:
        work()
    except BaseException:
        report = traceback.format_exc().encode("utf-8", "replace")
    finally:  # no cleaning up: what the parent set up is the parent's
        with suppress(BaseException):
            os.write(write_end, report[-32_000:])
        os._exit(0)


def _read_all(descriptor: int, until: float) -> bytes | None:
    """All that the child writes until it ends; None if it does not."""
    report = b""
    while select.select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
        more = os.read(descriptor, 65536)
        if not more:
            return report
        report += more
    return None
