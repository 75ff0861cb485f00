"""The chunks that a task needs and does not have: those before its first entry, and whether more come after its last.

A task's neighbours are read when a message begins before it, or is not complete at its end, and not otherwise; each
block of them at most once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace

from offload_core.format.messages.chunks import Before, Chunk, ChunkJoiner, MessageKey
from offload_core.reading.scan.tasks import LedgerShare, Neighbours, Run

RunsOf = Callable[[Run | LedgerShare], Sequence[Run]]
ReadChunks = Callable[[Run], Generator[Chunk, None, None]]

_log = logging.getLogger(__name__)


class LookBack:
    """Finds the beginnings of messages before a task's first entry, nearest block first.

    Args:
        neighbours: what is around the task.
        runs_of: the runs of a neighbour.
        read: the chunks of a run.
        look_back_bytes: the stored bytes that are looked through at most, rounded up to a block.
        max_bytes: the most that is held of chunks.
    """

    def __init__(
        self, neighbours: Neighbours, runs_of: RunsOf, read: ReadChunks, look_back_bytes: int, max_bytes: int
    ) -> None:
        self._waiting = list(neighbours.before)
        self._runs_of = runs_of
        self._blocks: list[Run] = []  # the nearest is taken from the end, as of those that wait
        self._left = look_back_bytes
        self._reaches_beginning = neighbours.reaches_beginning
        self._read = read
        self._max_bytes = max_bytes
        self._found: dict[MessageKey, list[Chunk]] = {}

    def __call__(self, key: MessageKey) -> Before:
        """What lies before, of one message."""
        while not _begins(self._found.get(key, [])):
            if self._held() > self._max_bytes:
                return Before(chunks=self._found.pop(key, []), reaches_beginning=False)
            block = self._next_block()
            if block is None:
                break
            self._search(block)
        reaches = self._reaches_beginning and not self._blocks and not self._waiting
        return Before(chunks=self._found.pop(key, []), reaches_beginning=reaches)

    def _next_block(self) -> Run | None:
        """The nearest block that has not been read; None if there is none, or none that is near enough."""
        if self._left <= 0:
            return None
        while not self._blocks and self._waiting:
            runs = self._runs_of(self._waiting.pop())
            self._blocks = [_only(run, number) for run in runs for number in range(len(run.blocks))]
        if not self._blocks:
            return None
        block = self._blocks.pop()
        self._left -= block.data_bytes
        return block

    def _held(self) -> int:
        return sum(len(chunk.payload) for chunks in self._found.values() for chunk in chunks)

    def _search(self, run: Run) -> None:
        here: dict[MessageKey, list[Chunk]] = {}
        with closing(self._read(run)) as chunks:
            for chunk in chunks:
                earlier = [] if chunk.chunk_id == 0 else here.get(chunk.key, [])
                together = [*earlier, chunk]
                if chunk.chunk_id == chunk.count - 1:  # it was read: all that counts is that it was there
                    together = [replace(each, payload=b"") for each in together]
                here[chunk.key] = together
        for key, found in here.items():
            later = self._found.get(key, [])
            if not _begins(later):
                self._found[key] = [*found, *later]


def _only(run: Run, number: int) -> Run:
    """The run with one block of it, by its number from 0 on."""
    return replace(run, blocks=run.blocks[number : number + 1])


def _begins(chunks: list[Chunk]) -> bool:
    return bool(chunks) and chunks[0].chunk_id == 0


def settle_pending(
    joiner: ChunkJoiner,
    neighbours: Neighbours,
    runs_of: RunsOf,
    read: ReadChunks,
    look_back_bytes: int,
    label: str,
) -> None:
    """At a task's end, or a topic's: what becomes of messages that are not complete.

    Those that go on behind are for the task that has their last chunk. Those that do not, within `look_back_bytes`, are
    given up. Where what there is of the topic ends before, it is a warning: they may still be on their way.
    """
    near = {}
    for message, passed in list(joiner.pending()):
        if passed > look_back_bytes:
            joiner.give_up(message, f"no more of it follows within {look_back_bytes} bytes")
        else:
            near[message.last.key] = message
    if not near:
        return  # before the index of what follows is read
    left, is_all = look_back_bytes, neighbours.reaches_end
    for run in (run for each in neighbours.after for run in runs_of(each)):
        for number, block in enumerate(run.blocks):
            if not near:
                return
            if left <= 0:
                is_all = False
                break
            left -= block.length
            with closing(read(_only(run, number))) as chunks:
                for chunk in chunks:
                    near.pop(chunk.key, None)
    if near and is_all:
        _log.warning(
            "%s: %d chunked messages are not complete where it ends; they are not read", label, len(near)
        )
        return
    for message in near.values():
        joiner.give_up(message, f"no more of it follows within {look_back_bytes} bytes")
