"""Few open files for many ledgers: the least recently used is closed if another is needed.

Under way are at most as many more as there are threads that use one at the same moment.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable

from offload_core.storage.hot.ledger_layout import FRAMES_OFFSET
from offload_hooks.errors import LedgerClosedError
from offload_hooks.private_files import open_file


class OpenFile:
    """A file that is open. Of one that is written, the pages before the first entry are mapped.

    Attributes:
        unsynced: what to call before it is closed, for it has bytes that were written and not yet made durable. An
            error of theirs is reported to descriptors that were open then, and perhaps to no other.
    """

    __slots__ = ("descriptor", "key", "pages", "unsynced", "users")

    def __init__(self, key: tuple[str, bool]) -> None:
        path, writable = key
        self.key = key
        self.descriptor = open_file(path, os.O_RDWR if writable else os.O_RDONLY)
        try:
            self.pages = _mapped(self.descriptor) if writable else None
        except BaseException:
            os.close(self.descriptor)
            raise
        self.unsynced: Callable[[OpenFile], None] | None = None
        self.users = 1

    def close(self) -> None:
        """Close it, having made it durable where that is due."""
        try:
            if self.unsynced is not None:
                self.unsynced(self)
        finally:
            if self.pages is not None:
                self.pages.close()
            with contextlib.suppress(OSError):  # nothing was left to be written
                os.close(self.descriptor)


def _mapped(descriptor: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):
        return mmap.mmap(descriptor, FRAMES_OFFSET, trackfd=False)  # without a descriptor of its own
    return mmap.mmap(descriptor, FRAMES_OFFSET)


class DescriptorPool:
    """Opens files, by path and whether they are written, and keeps up to `limit` of them open."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[str, bool], OpenFile] = OrderedDict()
        self._closed = False
        self._leaving: dict[tuple[str, bool], threading.Event] = {}

    def __len__(self) -> int:
        return len(self._files)

    def acquire(self, path: str, writable: bool) -> OpenFile:
        """The file, open; to be given to `release`.

        Raises:
            OSError: it cannot be opened.
            LedgerClosedError: the pool was closed.
        """
        key = (path, writable)
        while True:
            with self._lock:
                if self._closed:
                    raise LedgerClosedError("the ledger store was closed", key=path)
                file = self._files.get(key)
                if file is not None:
                    file.users += 1
                    self._files.move_to_end(key)
                    return file
                leaving = self._leaving.get(key)
                if leaving is None:
                    file = self._files[key] = OpenFile(key)
                    surplus = self._surplus()
                    break
            leaving.wait()
        self._close(surplus)
        return file

    def release(self, file: OpenFile) -> None:
        """Close it now: it is not needed any more."""
        with self._lock:
            file.users -= 1
            if len(self._files) <= self._limit and self._files.get(file.key) is file:
                return
            surplus = self._surplus()
            if (
                not file.users and self._files.get(file.key) is not file and file not in surplus
            ):  # it was forgotten
                surplus.append(file)
        self._close(surplus)

    def forget(self, path: str) -> None:
        """Close a file that was deleted; without making anything durable."""
        with self._lock:
            files = [self._files.pop(key) for key in ((path, False), (path, True)) if key in self._files]
            for file in files:
                file.unsynced = None
            idle = [file for file in files if not file.users]
        self._close(idle)

    def close(self) -> None:
        """Close all files, those in use as soon as they are not."""
        with self._lock:
            self._closed = True
            self._limit = 0
            idle = [file for file in self._files.values() if not file.users]
            for file in idle:
                self._leave(file)
        self._close(idle)

    def _surplus(self) -> list[OpenFile]:
        """The files to close now, taken out: idle ones, and those that need no sync first."""
        surplus: list[OpenFile] = []
        over = len(self._files) - self._limit
        if over > 0:
            idle = [file for file in self._files.values() if not file.users]
            clean = [file for file in idle if file.unsynced is None]
            surplus = (clean or idle)[:over]
            for file in surplus:
                self._leave(file)
        return surplus

    def _leave(self, file: OpenFile) -> None:
        del self._files[file.key]
        self._leaving[file.key] = threading.Event()

    def _close(self, files: list[OpenFile]) -> None:
        for file in files:
            try:
                file.close()
            finally:
                with self._lock:
                    left = self._leaving.pop(file.key, None)
                if left is not None:
                    left.set()
