"""Chunked messages: their entries, interleaved and with losses, and which of them a consumer would read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from encryption import seal, stored_entry
from entries import CODECS


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """A message by a producer: in `chunks` entries, of which those in `lost` were never stored.

    With `chunks` 1 it is sent whole. `key_name` encrypts each chunk by itself. `transaction` is the one that all chunks
    are of, its most and least bits. `published_at` is in milliseconds.
    """

    producer: str
    number: int
    value: bytes
    chunks: int = 1
    codec: int = 0
    lost: frozenset[int] = frozenset()
    key_name: str | None = None
    transaction: tuple[int, int] | None = None
    published_at: int | None = None

    @property
    def uuid(self) -> str:
        """As Pulsar's producers make it."""
        return f"{self.producer}-{self.number}"

    def entries(self) -> list[bytes]:
        """One per chunk, the lost ones included."""
        common: dict[str, Any] = {"producer_name": self.producer, "sequence_id": self.number}
        if self.transaction is not None:
            common |= {"txnid_most_bits": self.transaction[0], "txnid_least_bits": self.transaction[1]}
        if self.published_at is not None:
            common |= {"publish_time": self.published_at}
        compressed = CODECS[self.codec](self.value)
        if self.codec:
            common |= {"compression": self.codec, "uncompressed_size": len(self.value)}
        if self.chunks == 1:
            return [self._entry(compressed, common)]
        common |= {
            "uuid": self.uuid,
            "num_chunks_from_msg": self.chunks,
            "total_chunk_msg_size": len(compressed),
        }
        size = max(1, -(-len(compressed) // self.chunks))
        parts = [compressed[i * size : (i + 1) * size] for i in range(self.chunks)]
        return [self._entry(part, common | {"chunk_id": i}) for i, part in enumerate(parts)]

    def _entry(self, payload: bytes, metadata: dict[str, Any]) -> bytes:
        if self.key_name is not None:
            payload, about = seal(payload, names=(self.key_name,))
            metadata = metadata | about
        return stored_entry(payload, **metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """An entry of a topic: chunk `chunk_id` of a message."""

    message: SentMessage
    chunk_id: int
    payload: bytes


def interleaved(messages: Sequence[SentMessage], order: Sequence[int]) -> list[Stored]:
    """The entries that are stored: each producer's in its order, and `order` says whose turn it is (modulo)."""
    waiting: dict[str, list[Stored]] = {}
    for message in messages:
        waiting.setdefault(message.producer, []).extend(
            Stored(message=message, chunk_id=i, payload=payload)
            for i, payload in enumerate(message.entries())
            if i not in message.lost
        )
    stored = []
    turns = iter(order)
    while remaining := [queue for queue in waiting.values() if queue]:
        stored.append(remaining[next(turns, 0) % len(remaining)].pop(0))
    return stored


def readable(entries: Sequence[Stored]) -> list[tuple[int, bytes]]:
    """What a consumer reads: (place of the entry, value) of each message that has all its chunks, at its last."""
    return [
        (place, stored.message.value)
        for place, stored in enumerate(entries)
        if stored.chunk_id == stored.message.chunks - 1 and not stored.message.lost
    ]
