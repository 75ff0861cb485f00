"""Calls of ledger stores to the operating system: durable writes, a lock with a deadline, `OSError` translated.

`boot_identity` names the machine and its boot: what a killed process wrote is there until the next boot. Where the
system has no such name, it is taken to run as long as this process and its forks; of what other processes wrote, only
what is durable is accepted.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import xxhash

from offload_hooks.errors import (
    AccessDeniedError,
    OffloadError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    UnknownLedgerError,
)
from offload_hooks.private_files import open_file

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


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The system's errors for a disk without room."""

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FULL_FSYNC = getattr(fcntl, "F_FULLFSYNC", None)
_LOCK_PAUSE_S = 0.001


@contextlib.contextmanager
def translated(doing: str, path: str, ledger_id: int | None = None) -> Iterator[None]:
    """Turn an `OSError` into the error of the hooks that it means; `doing` is a verb, as in "read"."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OffloadError):
            raise
        raise translate(error, doing, path, ledger_id) from error


def translate(error: OSError, doing: str, path: str, ledger_id: int | None) -> OffloadError:
    """The error of the hooks that an `OSError` means."""
    number = error.errno or 0
    if number == errno.ENOENT and ledger_id is not None:
        return UnknownLedgerError("there is no such ledger", key=path, ledger_id=ledger_id)
    kind: type[StoreError] = StoreError
    if number in FULL:
        kind = StoreFullError
    elif number in _DENIED:
        kind = AccessDeniedError
    return kind(f"cannot {doing}: {error.strerror or error}", key=path, ledger_id=ledger_id)


def sync_file(descriptor: int) -> None:
    """Make a file's bytes and length durable."""
    if _FULL_FSYNC is not None:  # macOS: its fsync leaves them in the drive's cache
        fcntl.fcntl(descriptor, _FULL_FSYNC)
    else:
        os.fdatasync(descriptor)


def write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`."""
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)


def read_up_to(descriptor: int, length: int, offset: int) -> bytes:
    """`length` bytes from `offset` on, or those up to the file's end."""
    data = os.pread(descriptor, length, offset)
    while data and len(data) < length:
        more = os.pread(descriptor, length - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Fill a buffer from `offset` on, or as far as the file goes; how many bytes that are."""
    filled = os.preadv(descriptor, (buffer,), offset)
    while 0 < filled < len(buffer):
        more = os.preadv(descriptor, (buffer[filled:],), offset + filled)
        if not more:
            break
        filled += more
    return filled


def lock(descriptor: int, timeout_s: float, path: str, ledger_id: int | None = None) -> None:
    """Hold a file against all other descriptors that lock it, of any process; it dies with this one.

    Raises:
        StoreTimeoutError: another holds it for longer than `timeout_s`: its process is stopped, or its disk hangs.
    """
    until: float | None = None
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            now = time.monotonic()
            until = now + timeout_s if until is None else until
            if now >= until:
                raise StoreTimeoutError(
                    "another process holds a lock and does not let it go",
                    key=path,
                    ledger_id=ledger_id,
                    expected=f"at most {timeout_s:g} s",
                    hint="Is a process that writes here stopped, or its disk not answering?",
                ) from None
            time.sleep(_LOCK_PAUSE_S)


def unlock(descriptor: int) -> None:
    """Release it; explicitly, because a child that was forked meanwhile shares it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def locked(path: str, flags: int, timeout_s: float) -> Iterator[int]:
    """A descriptor of its own for a file, held by `lock` for the time of the block."""
    descriptor = open_file(path, flags)
    try:
        lock(descriptor, timeout_s, path)
        try:
            yield descriptor
        finally:
            unlock(descriptor)
    finally:
        os.close(descriptor)
