"""The process that writes blocks for another one, which started it (`upload_process`). It ends when that one does.

It answers requests over the socket that it inherits; a block's bytes are in the memory that both share. Several blocks
are written at the same time.
"""

from __future__ import annotations

import mmap
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection

from offload_core.tier.spec import TierSpec
from offload_core.tier.tier import Tier
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import BrokenPluginError, OffloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of the request of this number."""

    number: int
    receipt: BlockReceipt | None = None
    error: OffloadError | None = None


def main(socket: int, memory: int) -> None:
    """Serve until the other end of the socket is closed."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # the keyboard's is for who started this, who may want to clean up
    connection: Connection[Answer, Start | WriteBlock] = Connection(socket)
    try:
        _serve(connection, memory)
    except (EOFError, OSError):
        os._exit(0)  # nobody waits for what is still under way


def _serve(connection: Connection[Answer, Start | WriteBlock], memory: int) -> None:
    start = connection.recv()
    assert isinstance(start, Start)
    os.nice(start.niceness)
    pages = memoryview(mmap.mmap(memory, start.shared_bytes)).toreadonly()
    tier = Tier.open(start.spec)
    pool = ThreadPoolExecutor(start.threads, thread_name_prefix="offload-block")
    answering = threading.Lock()

    def serve(request: WriteBlock) -> None:
        answer = _write(tier, request, pages[request.place : request.place + request.length])
        with answering:
            connection.send(answer)

    while True:
        request = connection.recv()
        assert isinstance(request, WriteBlock)
        pool.submit(serve, request)


def _write(tier: Tier, request: WriteBlock, data: memoryview) -> Answer:
    try:
        receipt = tier.write_block(request.upload, request.part_number, request.offset, data)
    except OffloadError as error:
        return Answer(number=request.number, error=error)
    except Exception as error:  # a fault of the driver's own; the process that asked must hear of it
        broken = BrokenPluginError(
            "a driver failed to write a block with an error of its own", found=type(error).__name__
        )
        return Answer(number=request.number, error=broken)
    return Answer(number=request.number, receipt=receipt)
