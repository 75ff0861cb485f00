"""Memory that two processes share: blocks are taken from it, and come back when they have no references any more.

It is a file without a name, which a child inherits by its descriptor. Its pages are taken as they are written, and
given back to the system when no block is in use.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from collections import deque

import numpy as np

from offload_core.format.codec.byte_arrays import Bytes
from offload_hooks.values import ReadableBuffer

_PAGE = mmap.PAGESIZE
_LOOK_AGAIN_S = 0.05


class SharedMemory:
    """Room for blocks of `capacity_bytes` together. Calls may come from many threads at once.

    Attributes:
        descriptor: of the file, for a child to inherit; open as long as this or a block is referred to.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = -(-capacity_bytes // _PAGE) * _PAGE
        self.descriptor = _unnamed_file()
        os.ftruncate(self.descriptor, self.capacity_bytes)
        self._pages = mmap.mmap(self.descriptor, self.capacity_bytes)
        self._begin = _address(self._pages)
        weakref.finalize(self, os.close, self.descriptor)
        self._changed = threading.Condition(threading.Lock())
        self._used: dict[int, int] = {}  # begin → end, ascending
        self._given_back: deque[int] = deque()

    def new_block(self, n_bytes: int, *, wait: bool = False) -> Bytes | None:
        """A block (uint8) of undefined content; None if there is no room now, unless it is to be waited for."""
        size = -(-max(n_bytes, 1) // _PAGE) * _PAGE
        if size > self.capacity_bytes:
            return None
        with self._changed:
            while (begin := self._free_place(size)) is None:
                if not wait:
                    return None
                self._changed.wait(_LOOK_AGAIN_S)
            self._used[begin] = begin + size
            self._used = dict(sorted(self._used.items()))
        block: Bytes = np.frombuffer(self._pages, dtype=np.uint8, count=n_bytes, offset=begin)
        weakref.finalize(block, self._give_back, begin).atexit = False
        return block

    def place_of(self, data: ReadableBuffer) -> int | None:
        """The byte at which `data` begins, if it lies in here."""
        place = _address(data) - self._begin
        return place if 0 <= place < self.capacity_bytes else None

    @property
    def used_bytes(self) -> int:
        """The bytes that blocks take, in whole pages."""
        with self._changed:
            self._clear()
            return sum(end - begin for begin, end in self._used.items())

    def _free_place(self, size: int) -> int | None:
        self._clear()
        end_before = 0
        for begin, end in self._used.items():
            if begin - end_before >= size:
                return end_before
            end_before = end
        return end_before if self.capacity_bytes - end_before >= size else None

    def _give_back(self, begin: int) -> None:
        """Of a block that was collected: at any moment, perhaps while this thread holds the lock."""
        self._given_back.append(begin)
        if self._changed.acquire(blocking=False):
            try:
                self._clear()
                self._changed.notify_all()
            finally:
                self._changed.release()

    def _clear(self) -> None:
        while self._given_back:
            del self._used[self._given_back.popleft()]
            if not self._used:
                os.ftruncate(self.descriptor, 0)
                os.ftruncate(self.descriptor, self.capacity_bytes)


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("offload-blocks", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # macOS
        return os.dup(file.fileno())


def _address(data: ReadableBuffer | mmap.mmap) -> int:
    address: int = np.frombuffer(data, dtype=np.uint8).__array_interface__["data"][0]
    return address
