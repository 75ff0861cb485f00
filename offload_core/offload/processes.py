"""Who this process is, so that another one can tell it from all others, and whether it has ended.

A process is known by the machine since its start, the part of it whose process ids it shares (containers of one machine
have each their own), its id there, and when it began. Of another machine's processes nothing can be told.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import xxhash

from offload_core.ledgers.boot import boot_identity
from offload_core.metadata.attempt_lease import AttemptHolder

_ENDED = ("Z", "X")
"""States of a process that runs no more and that nobody has waited for yet."""


def this_process() -> AttemptHolder:
    """This process; in a forked child, the child."""
    process = os.getpid()
    looked = _look(process)
    return AttemptHolder(machine=_machine(), process=process, started=0 if looked is None else looked[1])


def has_ended(holder: AttemptHolder) -> bool:
    """Whether it is certain that a process has ended; False also where that cannot be told."""
    if holder.machine != _machine():
        return False
    try:
        os.kill(holder.process, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        pass  # it is there, and another user's
    looked = _look(holder.process)
    return looked is not None and (looked[0] in _ENDED or looked[1] != holder.started)


@functools.cache
def _machine() -> int:
    try:
        part = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # a system without such parts
        part = ""
    return xxhash.xxh64_intdigest(f"{boot_identity():016x} {part}".encode())


def _look(process: int) -> tuple[str, int] | None:
    """State and start of a process, in the system's ticks; None where it does not tell. Source: proc_pid_stat(5)."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(errors="replace")
        fields = text.rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
