"""The bytes of one object at any place, read in chunks, the last of which are kept."""

from __future__ import annotations

from collections import OrderedDict

from offload_core.tier import Tier

CHUNK_BYTES = 4 << 20
_CHUNKS_KEPT = 8


class ObjectBytes:
    """An object of `size` bytes; used by one thread. Errors are the store's."""

    def __init__(self, tier: Tier, key: str, size: int, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._tier = tier
        self.key = key
        self.size = size
        self._chunk_bytes = chunk_bytes
        self._chunks: OrderedDict[int, memoryview] = OrderedDict()

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from `offset` on, fewer where the object ends."""
        stop = min(offset + length, self.size)
        if stop <= offset:
            return b""
        parts = []
        while offset < stop:
            number = offset // self._chunk_bytes
            begin = number * self._chunk_bytes
            chunk = self._chunk(number)
            parts.append(chunk[offset - begin : stop - begin])
            offset = begin + len(chunk)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _chunk(self, number: int) -> memoryview:
        chunk = self._chunks.get(number)
        if chunk is None:
            begin = number * self._chunk_bytes
            chunk = self._tier.read_range(self.key, begin, min(self._chunk_bytes, self.size - begin))
            self._chunks[number] = chunk
            if len(self._chunks) > _CHUNKS_KEPT:
                self._chunks.popitem(last=False)
        else:
            self._chunks.move_to_end(number)
        return chunk
