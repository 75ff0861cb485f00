"""How a command ends by Ctrl-C: it says how far it is, and ends within seconds, also where a store does not answer.

The first Ctrl-C is a `KeyboardInterrupt` in the main thread, as always. What has not ended some seconds later is left
as a kill would leave it, and the next call goes on from there. The second one ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

INTERRUPTED = 128 + signal.SIGINT
"""The exit code after Ctrl-C, as shells have it."""

ENDS_WITHIN_S = 2.0
"""How long a command may take to end, if it says nothing else."""

Said = tuple[Callable[[], None], float]

_under_way: list[Said] = []
_saying: list[threading.Event] = []
"""Set when what is to be said was."""

_was_said = False


@contextmanager
def ends_soon() -> Iterator[None]:
    """End the process so, if Ctrl-C comes in the block."""
    global _was_said
    _was_said = False
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, as in the background of a shell
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        for each in _saying:
            each.wait(ENDS_WITHIN_S)
        _saying.clear()
        signal.signal(signal.SIGINT, before)


@contextmanager
def when_interrupted(say: Callable[[], None], within_s: float) -> Iterator[None]:
    """Call this, by a thread of its own, if Ctrl-C comes in the block, and let the command take so long to end."""
    _under_way.append((say, within_s))
    try:
        yield
    finally:
        _under_way.pop()


def say_interrupted() -> None:
    """Print once that Ctrl-C ended the command."""
    global _was_said
    if not _was_said:
        _was_said = True
        sys.stderr.write("offload: interrupted\n")
        sys.stderr.flush()


def _end(number: int, frame: Any) -> None:
    signal.signal(number, lambda *_: os._exit(INTERRUPTED))
    # By another thread: this one may be in the middle of a print.
    say, within_s = _under_way[-1] if _under_way else (lambda: None, ENDS_WITHIN_S)
    _saying.append(threading.Event())
    arguments = say, _saying[-1], within_s
    threading.Thread(target=_watch, args=arguments, name="offload-interrupted", daemon=True).start()
    signal.default_int_handler(number, frame)


def _watch(say: Callable[[], None], said: threading.Event, within_s: float) -> None:
    say()
    said.set()
    sleep(within_s)
    say_interrupted()
    os._exit(INTERRUPTED)
