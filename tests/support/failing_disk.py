"""A disk that forgets what was not synced, page by page, and whose fsync may fail; under the ledger files of a test.

It stands between the program and the file system: what was written is dirty until an fsync, in whole pages. An image is
what is found after a power failure: what was synced, and of the dirty pages those that the system happened to write. An
fsync that fails leaves its pages clean, though they were not written, as Linux does.
"""

from __future__ import annotations

import errno
import os
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PAGE = 4096
MAPPED_PAGES = range(3)


@dataclass(slots=True)
class _File:
    synced: dict[int, bytes] = field(default_factory=dict)
    synced_bytes: int = 0
    seen: dict[int, bytes] = field(default_factory=dict)
    dirty: set[int] = field(default_factory=set)


class FailingDisk:
    """Patches `os`; `after_each` is called after each call that changes a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._files: defaultdict[int, _File] = defaultdict(_File)
        self.fail_next_sync = False
        self.syncs = 0
        self.after_each: Callable[[], None] = lambda: None
        self._real = {name: getattr(os, name) for name in ("pwrite", "pwritev", "ftruncate")}
        monkeypatch.setattr(os, "pwrite", self._pwrite)
        monkeypatch.setattr(os, "pwritev", self._pwritev)
        monkeypatch.setattr(os, "ftruncate", self._ftruncate)
        monkeypatch.setattr(os, "fdatasync", self._sync)

    def image(self, path: Path, dice: random.Random | None) -> bytes:
        """What is found of a file after a power failure; without dice, only what was synced."""
        file, data = self._files[path.stat().st_ino], path.read_bytes()
        self._look(file, data)
        size = len(data) if dice is not None and dice.random() < 0.7 else file.synced_bytes
        chance = dice.choice([0.1, 0.5, 0.9]) if dice is not None else 0
        pages = []
        for page in range(-(-size // PAGE)):
            lucky = page in file.dirty and dice is not None and dice.random() < chance
            found = data[page * PAGE : (page + 1) * PAGE] if lucky else file.synced.get(page, b"")
            pages.append(found.ljust(PAGE, b"\0"))
        return b"".join(pages)[:size]

    def _look(self, file: _File, data: bytes) -> None:
        """The pages that are mapped change without a call."""
        for page in MAPPED_PAGES:
            now = data[page * PAGE : (page + 1) * PAGE]
            if file.seen.get(page) != now:
                file.seen[page] = now
                file.dirty.add(page)

    def _changed(self, descriptor: int, begin: int, end: int) -> None:
        file = self._files[os.fstat(descriptor).st_ino]
        file.dirty.update(range(begin // PAGE, -(-end // PAGE)))
        self.after_each()

    def _pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        written = self._real["pwrite"](descriptor, data, offset)
        self._changed(descriptor, offset, offset + written)
        return int(written)

    def _pwritev(self, descriptor: int, parts: tuple[bytes, ...], offset: int) -> int:
        written = self._real["pwritev"](descriptor, parts, offset)
        self._changed(descriptor, offset, offset + written)
        return int(written)

    def _ftruncate(self, descriptor: int, size: int) -> None:
        self._real["ftruncate"](descriptor, size)
        self._changed(descriptor, max(0, size - 1), size)

    def _sync(self, descriptor: int) -> None:
        self.syncs += 1
        file, size = self._files[os.fstat(descriptor).st_ino], os.fstat(descriptor).st_size
        data = os.pread(descriptor, size, 0)
        self._look(file, data)
        if self.fail_next_sync:
            self.fail_next_sync = False
            file.dirty.clear()
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        for page in file.dirty:
            file.synced[page] = data[page * PAGE : (page + 1) * PAGE]
        file.dirty.clear()
        file.synced_bytes = size
        self.after_each()
