"""The layer `block-cache`: what was read lately is read from memory or disk.

Reads are widened to aligned chunks (`chunk_names`), which are kept in memory by each process, and on disk by all
processes that are given the same directory (`chunk_files`). The chunks that a call lacks are fetched by one
`read_ranges`, and none by two threads at once (`chunk_cache`).

What is right:
- A chunk belongs to a version of its object: its size and time of change, as `stat` says. That is asked again after
  `validate_s`, so what is replaced or deleted elsewhere may be read in its old version for that long. A write or
  delete through this layer is seen at once by its own process. `stat` itself is always asked of the store.
- An object that was changed within the last two seconds is not cached: a time of change in whole seconds would not
  tell a second change in the same second.
- Only bytes whose checksum and identity were verified are answered from disk.

What goes past the cache: calls for more than `bulk_bytes`, which are scans, read once and in order, and would push out
all else; and ranges that an object does not have, so that the store says what is wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from offload_hooks import ByteRange, ObjectStat, ReadableBuffer, Upload, hookimpl
from offload_hooks.bounded_cache import BoundedCache
from offload_hooks.errors import ObjectNotFoundError, RangeError
from offload_hooks.option_text import as_count, as_seconds
from offload_hooks.values import SETTLED_S
from offload_layers.block_cache.chunk_cache import CacheStatistics, ChangedObjectError, ChunkCache
from offload_layers.block_cache.chunk_files import ChunkFiles
from offload_layers.block_cache.chunk_names import ChunkName, ObjectVersion, chunks_of, version_of
from offload_layers.per_process import PerProcess
from offload_layers.rest import Rest

_MOST = 100_000


class KnownStats:
    """What `stat` has said lately.

    A stat that was asked for before a change and answered after it must not be remembered: so who asks notes the
    `epoch` before, and hands it over with the answer.

    Args:
        valid_s: for how long a stat counts; 0: not at all.
        clock: seconds that never go back.
    """

    def __init__(self, valid_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._valid_s = valid_s
        self._clock = clock
        self._lock = threading.Lock()
        self._stats: BoundedCache[str, tuple[float, ObjectStat]] = BoundedCache(_MOST)
        self.epoch = 0

    def get(self, key: str) -> ObjectStat | None:
        """The object's stat if it still counts."""
        found = self._stats.get(key)
        return found[1] if found is not None and self._clock() < found[0] + self._valid_s else None

    def remember(self, stat: ObjectStat, asked_in: int, asked_at: float) -> None:
        """Keep a stat that was asked for in this epoch, at this time of the clock."""
        with self._lock:
            if asked_in != self.epoch or self._valid_s <= 0:
                return
            self._stats.put(stat.key, (asked_at, stat))

    def forget(self, keys: Iterable[str]) -> None:
        """Drop what is known of objects that were, or may have been, changed."""
        with self._lock:
            self.epoch += 1
            for key in keys:
                self._stats.pop(key)


_Wrapper = Generator[None, Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """When a stat was asked for."""

    epoch: int
    clock: float
    wall_clock: float


class BlockCacheLayer:
    """Reads what was read lately from memory or disk.

    Args:
        rest: the hooks below.
        directory: where chunks are kept on disk, for all processes that are given the same; none: in memory only.
            Bytes of the store are there in clear, for this user only.
        memory_bytes: the most bytes held in memory by each process; 0: none.
        disk_bytes: the most bytes of all files in the directory together.
        chunk_bytes: how large the aligned chunks are.
        bulk_bytes: a call for more bytes than this goes past the cache.
        validate_s: how long an object's size and time of change count before they are asked again; 0: not at all.
    """

    clock: Callable[[], float] = staticmethod(time.monotonic)
    wall_clock: Callable[[], float] = staticmethod(time.time)

    def __init__(
        self,
        rest: Rest,
        directory: str | None = None,
        memory_bytes: int | str = 64 << 20,
        disk_bytes: int | str = 1 << 30,
        chunk_bytes: int | str = 1 << 20,
        bulk_bytes: int | str = 4 << 20,
        validate_s: float | str = 60.0,
    ) -> None:
        self._rest = rest
        self._chunk_bytes = as_count("chunk_bytes", chunk_bytes)
        self._bulk_bytes = as_count("bulk_bytes", bulk_bytes, least=0)
        valid_s = as_seconds("validate_s", validate_s)
        in_memory = as_count("memory_bytes", memory_bytes, least=0)
        on_disk = as_count("disk_bytes", disk_bytes)
        files = ChunkFiles(directory, on_disk) if directory else None
        self._cache = PerProcess(lambda: ChunkCache(files, in_memory, self._fetch))
        self._stats = PerProcess(lambda: KnownStats(valid_s, self.clock))
        self._tier = ""

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> ReadableBuffer:
        """See `TierHooks`."""
        found = self._cached([ByteRange(key=key, offset=offset, length=length)])
        if found is None:
            return self._rest.read_range(key=key, offset=offset, length=length)
        return found[0]

    @hookimpl
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """See `TierHooks`."""
        found = self._cached(ranges)
        return self._rest.read_ranges(ranges=ranges) if found is None else found

    @hookimpl(wrapper=True)
    def stat(self) -> _Wrapper:
        """See `TierHooks`."""
        asked = self._asked()
        stat = yield
        self._remember(stat, asked)
        return stat

    @hookimpl(wrapper=True)
    def commit_data(self, upload: Upload) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._changing([upload.key]))

    @hookimpl(wrapper=True)
    def write_index(self, key: str) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._changing([key]))

    @hookimpl(wrapper=True)
    def delete(self, keys: Sequence[str]) -> _Wrapper:
        """See `TierHooks`."""
        return (yield from self._changing(keys))

    def statistics(self) -> CacheStatistics:
        """What the cache was good for in this process."""
        return self._cache.get().statistics()

    def close(self) -> None:
        """Give back this process's memory; what is on disk stays."""
        cache = self._cache.made()
        if cache is not None:
            cache.clear()

    def _changing(self, keys: Sequence[str]) -> _Wrapper:
        try:
            return (yield)
        finally:  # after an error, too: what was done is not known then
            self._stats.get().forget(keys)

    def _cached(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer] | None:
        """The ranges by way of the cache, None if they are to go past it."""
        cache = self._cache.get()
        chunks = self._chunks(ranges)
        if chunks is not None:
            try:
                return _assembled(ranges, chunks, cache.get([name for names in chunks for name in names]))
            except (ObjectNotFoundError, RangeError, ChangedObjectError):
                # Replaced or deleted since its stat: what is there now is read past the cache.
                self._stats.get().forget({wanted.key for wanted in ranges})
        cache.passed_by()
        return None

    def _chunks(self, ranges: Sequence[ByteRange]) -> list[list[ChunkName]] | None:
        """The chunks of each range, None if they are to go past the cache."""
        sound = all(wanted.offset >= 0 and wanted.length > 0 for wanted in ranges)
        if not ranges or not sound or sum(wanted.length for wanted in ranges) > self._bulk_bytes:
            return None
        chunks = []
        for wanted in ranges:
            version = self._version(wanted)
            if version is None:
                return None
            chunks.append(list(chunks_of(version, wanted, self._chunk_bytes)))
        together = {name for names in chunks for name in names}
        return chunks if sum(name.length for name in together) <= self._bulk_bytes else None

    def _version(self, wanted: ByteRange) -> ObjectVersion | None:
        """The version of a range's object; None if it cannot be told, or does not have this range."""
        stat = self._stats.get().get(wanted.key)
        if stat is None or wanted.end > stat.size_bytes:
            asked = self._asked()
            stat = self._rest.stat(key=wanted.key)
            if not self._remember(stat, asked) or wanted.end > stat.size_bytes:
                return None
        if not self._tier:
            self._tier = self._rest.describe().identity
        return version_of(self._tier, stat)

    def _asked(self) -> _Asked:
        return _Asked(epoch=self._stats.get().epoch, clock=self.clock(), wall_clock=self.wall_clock())

    def _remember(self, stat: ObjectStat, asked: _Asked) -> bool:
        """Keep a stat, unless its object is so new that a later version may look alike."""
        settled = stat.modified_at.timestamp() + SETTLED_S <= asked.wall_clock
        if settled:
            self._stats.get().remember(stat, asked.epoch, asked.clock)
        return settled

    def _fetch(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        return self._rest.read_ranges(ranges=ranges)


def _assembled(
    ranges: Sequence[ByteRange], chunks: Sequence[Sequence[ChunkName]], data: dict[ChunkName, bytes]
) -> list[ReadableBuffer]:
    found: list[ReadableBuffer] = []
    for wanted, names in zip(ranges, chunks, strict=True):
        parts = [
            memoryview(data[name])[max(0, wanted.offset - name.offset) : wanted.end - name.offset]
            for name in names
        ]
        found.append(parts[0] if len(parts) == 1 else b"".join(parts))
    return found
