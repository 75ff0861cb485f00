"""Which run of which machine this is: what a killed process wrote is still there in the same run, not so after it.

A system that cannot tell is taken to run on for as long as this process does, and those that it forks; of what others
wrote there, only what is durable is believed.
"""

from __future__ import annotations

import functools
import os
import subprocess
from contextlib import suppress
from pathlib import Path

import xxhash

_LINUX = Path("/proc/sys/kernel/random/boot_id")
_MACOS = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
_OF_PROCESS = os.urandom(16)  # the same for all threads that ask first


@functools.cache
def boot_identity() -> int:
    """64 bits that are the same until the machine is started anew, or as long as this process lives; never 0."""
    text = ""
    with suppress(OSError, subprocess.SubprocessError):
        if _LINUX.exists():
            text = _LINUX.read_text()
        else:
            text = subprocess.run(_MACOS, capture_output=True, text=True, check=True, timeout=10).stdout  # noqa: S603
    seed = text.strip().encode() or _OF_PROCESS
    return xxhash.xxh64_intdigest(seed) or 1
