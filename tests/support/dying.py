"""Forked processes that die at one of their calls, for every call that there is."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

DIED = 77
"""The exit code of a process that `die_at` ended."""


def die_at(number: int, when: str, *calls: tuple[Any, str]) -> None:
    """From now on the call of this number ends this process, `before` it acts or `after`.

    What counts is given by owner and name: `(os, "open")`. Threads count together.
    """
    lock, count = threading.Lock(), 0

    def dying(real: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **named: object) -> object:
            nonlocal count
            with lock:
                count += 1
                dies = count == number
            if dies and when == "before":
                os._exit(DIED)
            try:
                return real(*given, **named)
            finally:
                if dies:
                    os._exit(DIED)

        return call

    for owner, name in calls:
        setattr(owner, name, dying(getattr(owner, name)))


def end_after(work: Callable[[], object]) -> None:
    """Do the work in this fork, and end it: with 0, or with 99 and the error on standard error."""
    code = 99
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def in_fork(work: Callable[[], object]) -> int:
    """Do the work in a fork; its exit code, less than 0 for the signal that ended it."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        end_after(work)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
