"""How much of the disk the chunks of all processes take, and who must go: the least recently used.

The file `room` is the lock (`flock`, which the system lifts from a process that is killed) and holds the bytes that
are taken. A file that is about to be written is added to that number, then made in its full size, both under the
lock; nothing is subtracted but by a census. So the number is never less than what is there, whoever is killed when.
Without enough room, or when the number cannot be read, the files are counted and the oldest removed until a tenth is
free. Files that are being written are counted first: one that is put in its place meanwhile is seen there or here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import struct
import time
from collections.abc import Iterator
from pathlib import Path

ROOM = "room"
WRITING = "writing"
CHUNK_SUFFIX = ".chunk"

_CHUNK = re.compile(r"[0-9a-f]{32}\.chunk\Z")
_FOLDER = re.compile(r"[0-9a-f]{2}\Z")
_WRITTEN = re.compile(r"[0-9a-f]{32}\Z")
_TAKEN = struct.Struct("<8sQQ")
_MAGIC = b"OFFROOM1"
_TORN_AFTER_S = 600.0
_LOCK_WAITS_S = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02)


class ChunkRoom:
    """The room for chunks under `root`, at most `most_bytes` for all files together."""

    def __init__(self, root: Path, most_bytes: int) -> None:
        self._root = root
        self._most_bytes = most_bytes

    def reserve(self, size_bytes: int) -> Path | None:
        """Make a new file of this size, to be filled and moved. None without room, or while others keep the lock.

        The lock is waited for a few hundredths of a second only: a cache must not keep its readers waiting.
        """
        with self._locked() as descriptor:
            if descriptor is None:
                return None
            taken = _read_taken(descriptor)
            if taken is None or taken + size_bytes > self._most_bytes:
                taken = self._freed(self._most_bytes - self._most_bytes // 10 - size_bytes)
            fits = taken + size_bytes <= self._most_bytes
            taken += size_bytes if fits else 0
            os.pwrite(descriptor, _TAKEN.pack(_MAGIC, taken, taken ^ 2**64 - 1), 0)
            return self._made(size_bytes) if fits else None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int | None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._root / ROOM, flags, 0o600)
        try:
            if not _lock(descriptor):
                yield None
                return
            try:
                yield descriptor
            finally:
                # Said aloud: a child that was forked meanwhile shares the descriptor, and with it the lock.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)

    def _made(self, size_bytes: int) -> Path:
        path = self._root / WRITING / secrets.token_hex(16)
        path.parent.mkdir(0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.truncate(descriptor, size_bytes)
        finally:
            os.close(descriptor)
        return path

    def _freed(self, target_bytes: int) -> int:
        """Remove the least recently used chunks until at most this is taken; what is taken then."""
        writing = {info.st_ino: info.st_size for info in self._writing()}
        chunks = sorted(self._chunks(), key=lambda chunk: chunk[0].st_mtime)
        placed = {info.st_ino for info, _ in chunks}
        taken = sum(size_bytes for inode, size_bytes in writing.items() if inode not in placed)
        taken += sum(info.st_size for info, _ in chunks)
        for info, path in chunks:
            if taken <= target_bytes:
                break
            taken -= info.st_size if _removed(path) else 0
        return taken

    def _writing(self) -> Iterator[os.stat_result]:
        """The files that are being written; those that a killed process left half written are removed."""
        for entry in _entries(self._root / WRITING, _WRITTEN):
            with contextlib.suppress(FileNotFoundError):
                info = entry.stat(follow_symlinks=False)
                torn = time.time() - info.st_mtime > _TORN_AFTER_S
                if not (torn and _removed(Path(entry.path))):
                    yield info

    def _chunks(self) -> Iterator[tuple[os.stat_result, Path]]:
        for folder in _entries(self._root, _FOLDER):
            for entry in _entries(folder.path, _CHUNK):
                with contextlib.suppress(FileNotFoundError):
                    yield entry.stat(follow_symlinks=False), Path(entry.path)


def _lock(descriptor: int) -> bool:
    for wait_s in _LOCK_WAITS_S:
        time.sleep(wait_s)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _read_taken(descriptor: int) -> int | None:
    """The bytes that are taken; None if the file is new or torn."""
    found = os.pread(descriptor, _TAKEN.size, 0)
    if len(found) != _TAKEN.size:
        return None
    magic, taken, inverted = _TAKEN.unpack(found)
    return taken if magic == _MAGIC and inverted == taken ^ 2**64 - 1 else None


def _entries(folder: Path | str, names: re.Pattern[str]) -> list[os.DirEntry[str]]:
    """What lies in a folder under a name of ours; nothing if the folder is not there."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if names.match(entry.name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _removed(path: Path) -> bool:
    """Remove a file; whether it is gone."""
    try:
        path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
