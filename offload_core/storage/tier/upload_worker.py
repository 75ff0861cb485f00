"""The process that writes blocks for another one, which started it (`upload_process`). It ends when that one does.

It answers requests over the socket that it inherits; a block's bytes are in the memory that both share. Several blocks
are written at the same time. Each request has an answer, whatever a driver raises; between answers there are signs of
life, by which the other process distinguishes a slow store from a process that hangs.

A message to the other process is the request's number, 8 bytes, big-endian, then the pickled answer; nothing but
`NO_REQUEST` is a sign of life.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from offload_core.storage.tier.registry import TierSpec
from offload_core.storage.tier.tier import Tier
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import BrokenPluginError, OffloadError, StoreError


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWorker:
    """The first message: what to open, how many blocks are written at once, how large the shared memory is.

    `niceness` is how much lower this process's priority is than that of the one that started it.
    """

    spec: TierSpec
    niceness: int
    threads: int
    shared_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBlock:
    """A request: the block lies in the shared memory from byte `place` on."""

    number: int
    upload: Upload
    part_number: int
    offset: int
    place: int
    length: int


Answer = BlockReceipt | OffloadError
"""Result of a request."""

NO_REQUEST = (1 << 64) - 1
SIGN_S = 1.0
"""Seconds between signs of life."""

_MOST_BYTES = 8192
"""Most bytes of an error, so that its message is written at once: the other process never waits for the rest."""
_MOST_TEXT = 1000


def main(socket: int, memory: int) -> None:
    """Serve until the other end of the socket is closed."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # the keyboard's is for who started this, who may want to clean up
    connection: Connection[bytes, StartWorker | WriteBlock] = Connection(socket)
    try:
        _serve(connection, memory)
    except (EOFError, OSError):
        os._exit(0)  # no caller waits for the rest


def _serve(connection: Connection[bytes, StartWorker | WriteBlock], memory: int) -> None:
    answering = threading.Lock()

    def send(number: int, body: bytes = b"") -> None:
        with answering:
            connection.send_bytes(number.to_bytes(8, "big") + body)

    def live() -> None:
        with suppress(OSError):
            while True:
                send(NO_REQUEST)
                time.sleep(SIGN_S)

    threading.Thread(target=live, name="offload-life", daemon=True).start()
    start = connection.recv()
    assert isinstance(start, StartWorker)
    os.nice(start.niceness)
    pages = memoryview(mmap.mmap(memory, start.shared_bytes)).toreadonly()
    tier = Tier.open(start.spec)
    pool = ThreadPoolExecutor(start.threads, thread_name_prefix="offload-block")

    def serve(request: WriteBlock) -> None:
        body = _write(tier, request, pages[request.place : request.place + request.length])
        with suppress(OSError):  # who asked is gone, which ends this process
            send(request.number, body)

    while True:
        request = connection.recv()
        assert isinstance(request, WriteBlock)
        pool.submit(serve, request)


def _write(tier: Tier, request: WriteBlock, data: memoryview) -> bytes:
    """Write a block; the pickled answer."""
    try:
        return pickle.dumps(tier.write_block(request.upload, request.part_number, request.offset, data))
    except OffloadError as error:
        return _packed(error)
    except (
        BaseException
    ) as error:  # a fault of the driver's own, which may be an exit; the caller must get it
        return _packed(
            BrokenPluginError(
                "a driver failed to write a block with an error of its own", found=type(error).__name__
            )
        )


def _packed(error: OffloadError) -> bytes:
    """An error as bytes that can be read: itself, or one of ours that has its type and text."""
    body = _readable(error)
    if body is None:
        kind = next(each for each in type(error).__mro__ if each.__module__ == OffloadError.__module__)
        text = _text(error)
        body = _readable(kind(f"{type(error).__name__}: {text}"))
        if body is None:
            body = pickle.dumps(StoreError(f"{type(error).__name__}: {text}"))
    return body


def _readable(error: OffloadError) -> bytes | None:
    """An error as bytes, if they are few, and make an error again."""
    try:
        body = pickle.dumps(error)
        is_right = len(body) <= _MOST_BYTES and isinstance(pickle.loads(body), OffloadError)  # noqa: S301
    except BaseException:  # whatever the driver's own class raises
        return None
    return body if is_right else None


def _text(error: OffloadError) -> str:
    try:
        return str(error)[:_MOST_TEXT]
    except BaseException:
        return "an error without a text"
