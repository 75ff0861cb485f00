"""A tier whose blocks are written by a process of its own, at a lower priority than this one.

Sending a block keeps an interpreter busy, and appends of the same process would wait for it. All other calls stay here:
an upload can be continued by any process. Layers stay here too, so a process that dies is a store that fails, which is
tried again; the next block starts another process. One that gives no sign of life, or no answer, is killed.
"""

from __future__ import annotations

import itertools
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from offload_core.format.codec.arrays import Bytes
from offload_core.storage.tier import registry
from offload_core.storage.tier.registry import TierSpec
from offload_core.storage.tier.tier import Tier, layers_of
from offload_core.storage.tier.upload_worker import NO_REQUEST, Answer, StartWorker, WriteBlock
from offload_hooks import HOOK_SPEC_VERSION, PROJECT, BlockReceipt, ReadableBuffer, Upload, hookimpl
from offload_hooks.errors import OptionError, StoreError, StoreUnavailableError

# Memory that two processes share: blocks are taken from it, and come back when they have no references any more.
#
# It is a file without a name, which a child inherits by its descriptor. Its pages are taken as they are written, and
# given back to the system when no block is in use.


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
        """Release a collected block's room: at any moment, perhaps while this thread holds the lock."""
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


DEFAULT_NICENESS = 10
DEFAULT_SHARED_BYTES = 1 << 30
DEFAULT_THREADS = 16
_END_S = 10.0
_SLICES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadTimeouts:
    """The limit after which a process that writes blocks is killed; its blocks fail and can be tried again.

    Attributes:
        silence_s: time without a sign of life, as of a process that was stopped.
        block_s: time without an answer to one block, with signs of life: a store's own timeouts come before.
    """

    silence_s: float = 15.0
    block_s: float = 3600.0


DEFAULT_TIMEOUTS = UploadTimeouts()


class UploadProcess:
    """Writes blocks by a process that is started by the first one. Calls may come from many threads at once.

    Args:
        spec: the driver and its options; layers are not for it.
        niceness: how much lower the process's priority is than this one's, 0 to 19.
        shared_bytes: the most that blocks on their way, and those made by `memory`, take together.
        threads: the most blocks on their way at once.
        timeouts: limits after which the process is killed.

    Attributes:
        memory: shared by both processes.
    """

    def __init__(
        self,
        spec: TierSpec,
        *,
        niceness: int = DEFAULT_NICENESS,
        shared_bytes: int = DEFAULT_SHARED_BYTES,
        threads: int = DEFAULT_THREADS,
        timeouts: UploadTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        if not 0 <= niceness <= 19:
            raise OptionError("a niceness is 0 to 19", found=niceness)
        self._spec = TierSpec(driver=spec.driver, options=spec.options)
        self._niceness = niceness
        self._threads = threads
        self._timeouts = timeouts
        self._made_in = os.getpid()
        self.memory = SharedMemory(shared_bytes)
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._running: _Running | None = None

    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`; `StoreUnavailableError` also if the process ends meanwhile, or does not answer.

        The block of a process that stands still is written by another one.
        """
        view = memoryview(data).cast("B")
        block = None
        place = self.memory.place_of(view) if len(view) else 0
        if place is None:
            block = self.memory.new_block(len(view), wait=True)
            if block is None:
                raise OptionError(
                    "a block is larger than the memory that is shared with the process that uploads",
                    key=upload.key,
                    expected=f"{self.memory.capacity_bytes:,} bytes or less",
                    found=f"{len(view):,} bytes",
                )
            np.copyto(block, np.frombuffer(view, dtype=np.uint8))
            place = self.memory.place_of(block.data)
            assert place is not None
        request = WriteBlock(
            number=next(self._numbers),
            upload=upload,
            part_number=part_number,
            offset=offset,
            place=place,
            length=len(view),
        )
        running = self._process()
        try:
            return running.ask(request)
        except StoreUnavailableError:
            if not running.was_silent:
                raise
        return self._process().ask(request)  # a block may be written twice

    def new_block(self, n_bytes: int) -> Bytes:
        """Memory (uint8) for a block that needs no copy, as long as there is room; else of the heap."""
        block = self.memory.new_block(n_bytes) if self.is_ours else None
        return np.empty(n_bytes, dtype=np.uint8) if block is None else block

    @property
    def is_ours(self) -> bool:
        """True if this process made it. A forked child has the same memory, and must leave it alone."""
        return os.getpid() == self._made_in

    @property
    def process_id(self) -> int | None:
        """The process's id; None if none runs."""
        running = self._running
        return None if running is None or running.has_ended else running.process.pid

    def close(self) -> None:
        """End the process; blocks on their way fail. It can be used on, and then starts another."""
        with self._lock:
            if self._running is not None:
                self._running.end()
                self._running = None

    def _process(self) -> _Running:
        with self._lock:
            if self._running is None or self._running.has_ended:
                if self._running is not None:
                    self._running.end()
                start = StartWorker(
                    spec=self._spec,
                    niceness=self._niceness,
                    threads=self._threads,
                    shared_bytes=self.memory.capacity_bytes,
                )
                self._running = _Running(start, self.memory.descriptor, self._timeouts)
            return self._running


class _Running:
    """A process, from its start to its end."""

    def __init__(self, start: StartWorker, memory: int, timeouts: UploadTimeouts) -> None:
        ours, theirs = socket.socketpair()
        code = f"from offload_core.storage.tier.upload_worker import main; main({theirs.fileno()}, {memory})"
        try:
            with theirs:
                self.process = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-c", code],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), memory),
                    env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )
        except OSError as error:
            ours.close()
            raise StoreUnavailableError(
                f"the process that uploads cannot be started: {error.strerror}"
            ) from error
        self._connection: Connection[StartWorker | WriteBlock, bytes] = Connection(ours.detach())
        self._timeouts = timeouts
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._asked: dict[int, Future[BlockReceipt]] = {}
        self._why_ended: str | None = None
        self.was_silent = False
        self.has_ended = False
        self._send(start)
        self._reader = threading.Thread(target=self._read, name="upload-answers", daemon=True)
        self._reader.start()

    def ask(self, request: WriteBlock) -> BlockReceipt:
        asked: Future[BlockReceipt] = Future()
        with self._lock:
            if self.has_ended:
                raise self._ended()
            self._asked[request.number] = asked
        self._send(request)
        try:
            return asked.result(self._timeouts.block_s)
        except TimeoutError:
            if not asked.done():
                self._kill(f"it did not answer for {self._timeouts.block_s:g} s")
            return asked.result()  # the reader finds the end, and fails all waiting calls

    def end(self) -> None:
        with self._lock:
            self.has_ended = True
        self.process.terminate()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        self._connection.close()

    def _kill(self, why: str) -> None:
        """Kill the process, also one that is stopped; its memory is no longer read when this returns."""
        self._why_ended = self._why_ended or why
        self.process.kill()
        self.process.wait()

    def _send(self, message: StartWorker | WriteBlock) -> None:
        with (
            self._sending,
            suppress(OSError),
        ):  # the reader finds the end as well, and fails all waiting calls
            self._connection.send(message)

    def _read(self) -> None:
        try:
            while self._is_alive():
                self._answered(self._connection.recv_bytes())
        except (EOFError, OSError):
            pass
        finally:
            with self._lock:
                self.has_ended = True
                left, self._asked = list(self._asked.values()), {}
            for asked in left:
                asked.set_exception(self._ended())

    def _is_alive(self) -> bool:
        """Wait for a message; return True if one came in time."""
        # in slices: of a time in which this process was stopped itself, one counts
        if any(self._connection.poll(self._timeouts.silence_s / _SLICES) for _ in range(_SLICES)):
            return True
        self.was_silent = True
        self._kill(f"it gave no sign of life for {self._timeouts.silence_s:g} s")
        return False

    def _answered(self, message: bytes) -> None:
        number = int.from_bytes(message[:8], "big")
        if number == NO_REQUEST:
            return
        try:
            answer: Answer = pickle.loads(message[8:])  # noqa: S301 - it comes from a process of ours
        except Exception as error:
            answer = StoreError("an answer of the process that uploads cannot be read", found=repr(error))
        with self._lock:
            asked = self._asked.pop(number)
        if isinstance(answer, BlockReceipt):
            asked.set_result(answer)
        else:
            asked.set_exception(answer)

    def _ended(self) -> StoreUnavailableError:
        if self._why_ended is not None:
            return StoreUnavailableError(f"the process that uploads was killed: {self._why_ended}")
        return StoreUnavailableError(
            "the process that uploads has ended", hint="Perhaps the system killed it for want of memory."
        )


def open_with_upload_process(spec: TierSpec, uploads: UploadProcess) -> Tier:
    """Open a tier that `uploads` writes blocks for. Errors as `Tier.open`.

    Elsewhere, when it was pickled, it writes them itself.
    """
    driver = UploadingDriver(registry.make_driver(spec.driver, spec.options), uploads)
    return Tier(driver, layers_of(spec), spec=spec, new_block=uploads.new_block)


class UploadingDriver:
    """A driver but for its blocks: its hooks are found on it as on the driver itself."""

    hook_spec_version = HOOK_SPEC_VERSION

    def __init__(self, driver: object, uploads: UploadProcess) -> None:
        self._driver = driver
        self._uploads = uploads
        for name in dir(driver):
            if name != "write_block" and hasattr(getattr(type(driver), name, None), f"{PROJECT}_impl"):
                setattr(self, name, getattr(driver, name))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_itself, (self._driver,))

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`."""
        if self._uploads.is_ours:
            return self._uploads.write_block(upload, part_number, offset, data)
        receipt: BlockReceipt = self._driver.write_block(  # type: ignore[attr-defined]
            upload=upload, part_number=part_number, offset=offset, data=data
        )
        return receipt

    def close(self) -> None:
        """End the process, and close the driver."""
        if self._uploads.is_ours:
            self._uploads.close()
        shut = getattr(self._driver, "close", None)
        if callable(shut):
            shut()


def _itself(driver: object) -> object:
    return driver
