"""Chunks → messages, by the rules of Pulsar's consumers, for one topic and in order of positions.

A message larger than a broker takes is sent as several entries, its chunks, which have a uuid in common. Chunks of
several producers come interleaved. A chunk 0 begins anew, a repeated chunk is passed over, and one that comes too early
shows that chunks are lost. Source: docs/formats/entry.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from offload_hooks.errors import BadLengthError, IncompleteMessageError

KEYS_REMEMBERED = 4096
"""Number of complete or abandoned messages that are remembered, to pass over their repeated chunks."""

MessageKey = tuple[str, str]
"""A chunked message's producer and uuid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One chunk: number `chunk_id` (from 0) of `count`, and its position. `payload` is decrypted."""

    key: MessageKey
    chunk_id: int
    count: int
    ledger_id: int
    entry_id: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """The entries before the first one that a reader was given, of one message.

    Attributes:
        chunks: its chunks there, in order.
        reaches_beginning: whether all entries before were searched.
    """

    chunks: Sequence[Chunk] = ()
    reaches_beginning: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A message whose chunks are all there: its payload, and the ledger and entry of its first chunk."""

    payload: bytes
    first: tuple[int, int]


@dataclass(slots=True, kw_only=True)
class Pending:
    """A message some of whose chunks have come: the place of the first, the last of them, and their bytes."""

    first: tuple[int, int]
    last: Chunk
    payloads: list[bytes] = field(default_factory=list)
    size: int = 0
    passed_bytes: int = 0


class ChunkJoiner:
    """Joins the chunks of one topic, given in order.

    Args:
        max_message_bytes: the most that the chunks of one message may have together.
        max_pending_bytes: the most that is held of messages that are not complete; beyond it the oldest is given up.
        look_back: gives the entries before the first one, for a message whose beginning is missing.
    """

    def __init__(
        self,
        *,
        max_message_bytes: int,
        max_pending_bytes: int,
        look_back: Callable[[MessageKey], Before] = lambda _: Before(),
    ) -> None:
        self._max_message_bytes = max_message_bytes
        self._max_pending_bytes = max_pending_bytes
        self._look_back = look_back
        self._pending: OrderedDict[MessageKey, Pending] = OrderedDict()
        self._pending_bytes = 0
        self._done: OrderedDict[MessageKey, None] = OrderedDict()
        self._passed_bytes = 0
        self.incomplete: list[IncompleteMessageError] = []
        self.cut_at_beginning = 0

    def add(self, chunk: Chunk) -> Joined | None:
        """The joined message if the chunk is its last; abandoned messages are added to `incomplete`.

        Raises:
            BadLengthError: the message is larger than is allowed.
        """
        if chunk.chunk_id > 0 and chunk.key not in self._pending and chunk.key not in self._done:
            self._begin_before(chunk)
        return self._take(chunk)

    def passed(self, count: int) -> None:
        """Count `count` bytes of entries as passed."""
        self._passed_bytes += count

    def pending(self) -> Iterator[tuple[Pending, int]]:
        """The messages that are not complete, oldest first, and how many bytes passed since their last chunk."""
        for message in self._pending.values():
            yield message, self._passed_bytes - message.passed_bytes

    def give_up(self, message: Pending, why: str, hint: str | None = None) -> None:
        """The message will not be complete."""
        self._drop(message.last.key)
        last = message.last
        self._report(last, len(message.payloads), why, hint)

    def _begin_before(self, chunk: Chunk) -> None:
        """Read the chunks before the first entry, of a message whose beginning is missing."""
        before = self._look_back(chunk.key)
        for earlier in before.chunks:
            self._take(earlier)
        if chunk.key in self._pending or chunk.key in self._done:
            return
        if before.reaches_beginning:
            self.cut_at_beginning += 1
        else:
            self._report(
                chunk,
                0,
                "its first chunk is not found",
                "Its first chunk may lie further back: chunkLookBackBytes.",
            )
        self._remember(chunk.key)

    def _take(self, chunk: Chunk) -> Joined | None:
        if chunk.chunk_id == 0:
            self._drop(chunk.key)
            self._done.pop(chunk.key, None)
            self._pending[chunk.key] = Pending(first=(chunk.ledger_id, chunk.entry_id), last=chunk)
        elif chunk.key in self._done:
            return None
        message = self._pending.get(chunk.key)
        if message is None:
            self._report(chunk, 0, "its first chunk is not there")
            self._remember(chunk.key)
            return None
        if chunk.chunk_id < len(message.payloads):
            return None  # sent again
        if chunk.chunk_id > len(message.payloads):
            self.give_up(message, f"chunk {len(message.payloads)} is missing before chunk {chunk.chunk_id}")
            return None
        return self._append(message, chunk)

    def _append(self, message: Pending, chunk: Chunk) -> Joined | None:
        message.payloads.append(chunk.payload)
        message.size += len(chunk.payload)
        message.last, message.passed_bytes = chunk, self._passed_bytes
        self._pending_bytes += len(chunk.payload)
        if message.size > self._max_message_bytes:
            raise BadLengthError(
                f"a message of {chunk.count} chunks is larger than is allowed",
                ledger_id=chunk.ledger_id,
                entry_id=chunk.entry_id,
                expected=f"at most {self._max_message_bytes} bytes (option max_message_bytes)",
                found=f"{message.size} bytes with chunk {chunk.chunk_id}",
            )
        if chunk.chunk_id == chunk.count - 1:
            self._drop(chunk.key)
            self._remember(chunk.key)
            return Joined(payload=b"".join(message.payloads), first=message.first)
        while self._pending_bytes > self._max_pending_bytes:
            oldest = next(iter(self._pending.values()))
            self.give_up(
                oldest,
                "too many messages are incomplete at once",
                "More are held with a larger maxPendingChunkBytes.",
            )
        return None

    def _drop(self, key: MessageKey) -> None:
        message = self._pending.pop(key, None)
        if message is not None:
            self._pending_bytes -= message.size

    def _remember(self, key: MessageKey) -> None:
        self._done[key] = None
        if len(self._done) > KEYS_REMEMBERED:
            self._done.popitem(last=False)

    def _report(self, at: Chunk, there: int, why: str, hint: str | None = None) -> None:
        self._remember(at.key)
        producer, uuid = at.key
        self.incomplete.append(
            IncompleteMessageError(
                f"a chunked message is incomplete: {why}",
                ledger_id=at.ledger_id,
                entry_id=at.entry_id,
                expected=f"{at.count} chunks of {uuid!r} by {producer!r}",
                found=there if there else f"chunk {at.chunk_id}",
                hint=hint or "The others can be read: {mode=PERMISSIVE} or {mode=DROPMALFORMED}.",
            )
        )
