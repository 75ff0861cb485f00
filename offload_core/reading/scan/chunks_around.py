"""Open the payloads of a task's messages: decrypt them, and join chunks that begin or end outside of the task.

Each message is read by the task that has its last chunk. That task reads back for the chunks before, nearest block
first; at its end it reads on to see which incomplete messages another task will complete.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from offload_core.format.messages.chunks import Before, Chunk, ChunkJoiner, MessageKey
from offload_core.format.messages.encryption import Decryptor
from offload_core.format.messages.payload_opener import EntryCounts, PayloadOpener
from offload_core.reading.scan.extents import extents_around
from offload_core.reading.scan.tasks import Neighbours, Place, ReadOptions, ScanExtent, ScanLedger, ScanTask
from offload_core.reading.scan.windows import read_chunks
from offload_core.storage.tier import PluginSpec, Tier, make_key_provider
from offload_hooks.key_providers import KeyProvider

ExtentsOf = Callable[[ScanExtent | ScanLedger], Sequence[ScanExtent]]
ReadChunks = Callable[[ScanExtent], Generator[Chunk, None, None]]

_log = logging.getLogger(__name__)


class LookBack:
    """Finds the beginnings of messages before a task's first entry, nearest block first.

    Args:
        neighbours: the extents around the task.
        extents_of: the extents of a neighbour.
        read: the chunks of an extent.
        look_back_bytes: the most stored bytes that are read, rounded up to a block.
        max_bytes: the most that is held of chunks.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        extents_of: ExtentsOf,
        read: ReadChunks,
        look_back_bytes: int,
        max_bytes: int,
    ) -> None:
        self._waiting = list(neighbours.before)
        self._extents_of = extents_of
        self._blocks: list[ScanExtent] = []  # the nearest is taken from the end, as of those that wait
        self._left = look_back_bytes
        self._reaches_beginning = neighbours.reaches_beginning
        self._read = read
        self._max_bytes = max_bytes
        self._found: dict[MessageKey, list[Chunk]] = {}

    def __call__(self, key: MessageKey) -> Before:
        """The chunks of one message before the task."""
        while not _begins(self._found.get(key, [])):
            if self._held() > self._max_bytes:
                return Before(chunks=self._found.pop(key, []), reaches_beginning=False)
            block = self._next_block()
            if block is None:
                break
            self._search(block)
        reaches = self._reaches_beginning and not self._blocks and not self._waiting
        return Before(chunks=self._found.pop(key, []), reaches_beginning=reaches)

    def _next_block(self) -> ScanExtent | None:
        """The nearest block that has not been read; None if there is none, or none that is near enough."""
        if self._left <= 0:
            return None
        while not self._blocks and self._waiting:
            extents = self._extents_of(self._waiting.pop())
            self._blocks = [
                _only(extent, number) for extent in extents for number in range(len(extent.blocks))
            ]
        if not self._blocks:
            return None
        block = self._blocks.pop()
        self._left -= block.data_bytes
        return block

    def _held(self) -> int:
        return sum(len(chunk.payload) for chunks in self._found.values() for chunk in chunks)

    def _search(self, extent: ScanExtent) -> None:
        here: dict[MessageKey, list[Chunk]] = {}
        with closing(self._read(extent)) as chunks:
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


def _only(extent: ScanExtent, number: int) -> ScanExtent:
    """The extent with one block of it, by its number from 0 on."""
    return extent.with_blocks(extent.blocks[number : number + 1])


def _begins(chunks: list[Chunk]) -> bool:
    return bool(chunks) and chunks[0].chunk_id == 0


def settle_pending(
    joiner: ChunkJoiner,
    neighbours: Neighbours,
    extents_of: ExtentsOf,
    read: ReadChunks,
    look_back_bytes: int,
    label: str,
) -> None:
    """Settle incomplete messages at the end of a task or a topic.

    Those that go on after it are for the task that has their last chunk. Those that do not, within `look_back_bytes`,
    are given up. If the topic ends before, it is a warning: the rest may not be offloaded yet.
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
    for extent in (extent for each in neighbours.after for extent in extents_of(each)):
        for number, block in enumerate(extent.blocks):
            if not near:
                return
            if left <= 0:
                is_all = False
                break
            left -= block.length
            with closing(read(_only(extent, number))) as chunks:
                for chunk in chunks:
                    near.pop(chunk.key, None)
    if near and is_all:
        _log.warning(
            "%s: %d chunked messages are not complete where it ends; they are not read", label, len(near)
        )
        return
    for message in near.values():
        joiner.give_up(message, f"no more of it follows within {look_back_bytes} bytes")


_TOLD = (
    ("encrypted", "encrypted entries are passed on as ciphertext (column __valueIsRaw)"),
    ("chunks", "chunks of messages are passed on one by one (columns __uuid, __chunkId)"),
    ("no_key", "encrypted entries for which there is no key are left out"),
    ("undecryptable", "encrypted entries do not decrypt"),
    ("incomplete", "chunked messages are incomplete, and left out"),
)


def key_provider_of(spec: PluginSpec | None) -> KeyProvider | None:
    """The provider that a spec names.

    Raises:
        UnknownPluginError, MissingExtraError, BrokenPluginError, OptionError.
    """
    return None if spec is None else make_key_provider(spec.name, spec.options)


class TaskOpening:
    """Give each extent of a task what opens its payloads, and settle each topic when it ends.

    Args:
        cuts: positions from which on nothing of a topic is visible; some may be found while the task is read.
    """

    def __init__(
        self, tier: Tier, task: ScanTask, options: ReadOptions, cuts: Mapping[str | None, Place]
    ) -> None:
        self._tier = tier
        self._task = task
        self._options = options
        self._cuts = cuts
        self._decryptor = Decryptor(key_provider_of(options.key_provider))
        self._extents_of = functools.partial(extents_around, tier)
        self._extent: ScanExtent | None = None
        self._opener = PayloadOpener()

    def of(self, extent: ScanExtent) -> PayloadOpener:
        """The opener for this extent; the extents of a topic share one.

        Raises:
            IncompleteMessageError: a message of the topic before is not complete.
        """
        if self._extent is None or self._extent.topic != extent.topic:
            self.finish()
            self._opener = self._new_opener(extent)
            self._extent = extent
        return self._opener

    def finish(self, *, is_over: bool = False) -> None:
        """Report, at a topic's end in the task, incomplete messages and those that a consumer would see differently.

        With `is_over` what follows of the topic is not asked for, so that messages need not be complete.

        Raises:
            IncompleteMessageError: a message is not complete, in the mode FAILFAST.
        """
        if self._extent is None:
            return
        label = self._extent.label
        opener = self._opener
        if opener.joiner is not None and not is_over:
            settle_pending(
                opener.joiner,
                self._neighbours(self._extent),
                self._extents_of,
                self._read_chunks(opener),
                self._options.chunk_look_back_bytes,
                label,
            )
            opener.report_incomplete()
            if opener.joiner.cut_at_beginning:
                _log.warning(
                    "%s: %d chunked messages begin before what there is; they are not read",
                    label,
                    opener.joiner.cut_at_beginning,
                )
        _tell(label, opener.counts)
        self._extent = None

    def _new_opener(self, extent: ScanExtent) -> PayloadOpener:
        options = self._options
        opener = PayloadOpener(
            decryptor=self._decryptor, crypto_failure_action=options.without_key, mode=options.mode
        )
        if options.joins_chunks:
            look_back = LookBack(
                self._neighbours(extent),
                self._extents_of,
                self._read_chunks(opener),
                options.chunk_look_back_bytes,
                options.max_pending_chunk_bytes,
            )
            opener.joiner = ChunkJoiner(
                max_message_bytes=options.max_message_bytes,
                max_pending_bytes=options.max_pending_chunk_bytes,
                look_back=look_back,
            )
        return opener

    def _neighbours(self, extent: ScanExtent) -> Neighbours:
        near, cut = self._task.neighbours.get(extent.topic, Neighbours()), self._cuts.get(extent.topic)
        if cut is None:
            return near
        after = tuple(each for each in (each.before(cut) for each in near.after) if each is not None)
        return replace(near, after=after, reaches_end=near.reaches_end or after != near.after)

    def _read_chunks(self, opener: PayloadOpener) -> ReadChunks:
        return functools.partial(read_chunks, self._tier, options=self._options, opener=opener)


def _tell(label: str, counts: EntryCounts) -> None:
    for name, what in _TOLD:
        number = getattr(counts, name)
        if number:
            _log.warning("%s: %d %s", label, number, what)
