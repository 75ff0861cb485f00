"""Calls that may hang, each given up after its deadline.

The HDFS client waits without end for a NameNode that is there and does not answer. So each call is made by a thread of
its own, and whoever asked waits for it so long and no longer. What was given up goes on in its thread, unheard, until
the connection breaks; such threads do not keep the process alive.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_T = TypeVar("_T")

_Answer = tuple[int, Any, BaseException | None]


class DeadlinePassed(Exception):  # noqa: N818
    """A call did not come back in time; what it does, it does unheard."""


def within(seconds: float, call: Callable[..., _T], *arguments: Any) -> _T:
    """Call and answer what it answers; `DeadlinePassed` if that takes longer."""
    return within_all(seconds, [lambda: call(*arguments)], 1)[0]


def within_all(seconds: float, calls: Sequence[Callable[[], _T]], at_once: int) -> list[_T]:
    """Make many calls, some at once, and answer in their order; the first error is raised, and none begun after it.

    The deadline is that of each call: it passes when none of those under way comes back for so long.
    """
    waiting = iter(list(enumerate(calls)))
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number, call = next(waiting, (-1, None))
            if call is None:
                return
            try:
                answers.put((number, call(), None))
            except BaseException as error:  # a panic of the client is no Exception; raised by whoever waits
                answers.put((number, None, error))
                return

    for _ in range(min(at_once, len(calls))):
        threading.Thread(target=work, daemon=True, name="hdfs-call").start()
    done: dict[int, _T] = {}
    try:
        while len(done) < len(calls):
            number, answer, error = answers.get(timeout=seconds)
            if error is not None:
                raise error
            done[number] = answer
    except queue.Empty:
        raise DeadlinePassed(f"no answer within {seconds:g} s") from None
    finally:
        with lock:
            waiting = iter(())
    return [done[number] for number in range(len(calls))]
