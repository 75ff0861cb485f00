"""Calls at the same time from many threads, with a deadline: a driver that hangs fails instead of hanging the suite."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def outcomes(calls: Sequence[Callable[[], T]], deadline_s: float) -> list[T | BaseException]:
    """Make all calls at once, each in a thread of its own; what each answered or raised, in their order."""
    barrier = threading.Barrier(len(calls))
    done: dict[int, T | BaseException] = {}

    def run(i: int) -> None:
        try:
            barrier.wait()
            done[i] = calls[i]()
        except BaseException as error:  # handed to the caller
            done[i] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    until = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    hanging = sum(thread.is_alive() for thread in threads)
    assert not hanging, (
        f"{hanging} of {len(calls)} concurrent calls did not come back within {deadline_s:g} s"
    )
    return [done[i] for i in range(len(calls))]


def together(calls: Sequence[Callable[[], T]], deadline_s: float) -> list[T]:
    """As `outcomes`, but the first error is raised."""
    answers: list[T] = []
    for outcome in outcomes(calls, deadline_s):
        if isinstance(outcome, BaseException):
            raise outcome
        answers.append(outcome)
    return answers
