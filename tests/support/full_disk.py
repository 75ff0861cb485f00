"""A write job on a disk of 12 MiB, in a process that has this disk for itself: `python full_disk.py FOLDER`.

It prints a line of JSON: `error` and `key`, what was `listed` after it, how many uploads were `aborted`,
how many bytes were free after that, and what was `listed_at_last`, when a smaller job had run.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from offload_core.storage.tier import Tier, open_store, upload_blocks
from offload_hooks.errors import OffloadError

MIB = 1 << 20
DISK_BYTES = 12 * MIB


APART = ["unshare", "--user", "--map-root-user", "--mount"]
"""Name spaces of a process's own, in which any user may mount; mounts end with the process."""


def is_possible() -> bool:
    """Return whether this machine allows such name spaces."""
    return shutil.which(APART[0]) is not None and not subprocess.run([*APART, "true"], check=False).returncode


def command(folder: Path) -> list[str]:
    """The command line."""
    return [*APART, sys.executable, str(Path(__file__)), str(folder)]


def write(tier: Tier, key: str, blocks: int) -> None:
    """A data object of 5 MiB blocks, and its index."""
    upload_blocks(tier, key, (os.urandom(5 * MIB) for _ in range(blocks)), block_bytes=5 * MIB)
    tier.write_index(f"{key}-index", b"an index")


def main(folder: Path) -> None:
    """Mount the disk, fill it, make room, and write again."""
    libc = ctypes.CDLL(None, use_errno=True)
    size = f"size={DISK_BYTES}".encode()
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, size):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    with open_store(str(folder / "tier")) as tier:
        (folder / "tier").mkdir()
        tier.write_index("kept-index", b"was there before")
        report: dict[str, object] = {"error": None, "key": None}
        try:
            write(tier, "large", 4)
        except OffloadError as error:
            report = {"error": type(error).__name__, "key": error.key}
        report["listed"] = [found.key for found in tier.list_objects()]
        report["aborted"] = sum(tier.abort_data(stale.upload) for stale in list(tier.list_uploads()))
        room = os.statvfs(folder)
        report["free_bytes"] = room.f_bavail * room.f_frsize
        write(tier, "small", 1)
        report["kept"] = bytes(tier.read_range("kept-index", 0, 16)).decode()
        report["listed_at_last"] = [found.key for found in tier.list_objects()]
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
