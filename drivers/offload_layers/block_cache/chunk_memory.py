"""Chunks in memory: the least recently used go first. Not thread-safe; its owner has the lock."""

from __future__ import annotations

from collections import OrderedDict

from offload_layers.block_cache.chunk_names import ChunkName


class ChunkMemory:
    """At most `most_bytes` of chunks; a chunk larger than that is not kept."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._chunks: OrderedDict[ChunkName, bytes] = OrderedDict()
        self.held_bytes = 0

    def get(self, name: ChunkName) -> bytes | None:
        """A chunk, which is the most recently used one then."""
        data = self._chunks.get(name)
        if data is not None:
            self._chunks.move_to_end(name)
        return data

    def put(self, name: ChunkName, data: bytes) -> None:
        """Keep a chunk."""
        if len(data) > self._most_bytes or name in self._chunks:
            return
        while self.held_bytes + len(data) > self._most_bytes:
            _, dropped = self._chunks.popitem(last=False)
            self.held_bytes -= len(dropped)
        self._chunks[name] = data
        self.held_bytes += len(data)

    def clear(self) -> None:
        """Drop all."""
        self._chunks.clear()
        self.held_bytes = 0
