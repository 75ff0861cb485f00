"""Chunks from memory, from disk, or from the store: each is fetched once, however many threads want it at a time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

from offload_hooks import ByteRange, ReadableBuffer
from offload_hooks.bounded_cache import BoundedCache
from offload_layers.block_cache.chunk_files import BrokenChunkError, ChunkFiles
from offload_layers.block_cache.chunk_names import ChunkName

Fetch = Callable[[Sequence[ByteRange]], list[ReadableBuffer]]


class ChangedObjectError(Exception):
    """The store gave other lengths than an object of this version has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheStatistics:
    """What became of the chunks that one process wanted, in numbers of chunks, and of its calls.

    Attributes:
        memory_hits: found in memory.
        disk_hits: found on disk.
        misses: fetched from the store.
        waited: another thread was already fetching them.
        broken_files: files that were no such chunk, and were removed; their chunks count as misses, too.
        passed_by: calls that went past the cache.
        memory_bytes: what is held in memory now.
    """

    memory_hits: int = 0
    disk_hits: int = 0
    misses: int = 0
    waited: int = 0
    broken_files: int = 0
    passed_by: int = 0
    memory_bytes: int = 0


@dataclass(slots=True)
class _Flight:
    """A chunk that is on its way: `data` once `landed`, None if it could not be had."""

    landed: threading.Event = field(default_factory=threading.Event)
    data: bytes | None = None


class ChunkCache:
    """The chunks of one process, over those on disk that all share.

    Args:
        files: the chunks on disk, if any are kept there.
        memory_bytes: how much is held in memory.
        fetch: reads ranges from the store.
    """

    def __init__(self, files: ChunkFiles | None, memory_bytes: int, fetch: Fetch) -> None:
        self._files = files
        self._fetch = fetch
        self._lock = threading.Lock()
        self._memory = BoundedCache[ChunkName, bytes](memory_bytes, size_of=len)
        self._flights: dict[ChunkName, _Flight] = {}
        self._counts: Counter[str] = Counter()

    def get(self, names: Sequence[ChunkName]) -> dict[ChunkName, bytes]:
        """The bytes of all these chunks; those that miss are fetched by one call.

        Errors: those of `fetch`, and `ChangedObjectError`.
        """
        got, mine, others = self._claim(names)
        # What is claimed is fetched before what others fetch is waited for, so that no two wait for each other.
        try:
            got |= self._from_disk(mine)
            missing = [name for name in mine if name not in got]
            if missing:
                fetched = self._fetched(missing)
                for name, data in fetched.items():
                    self._land(name, mine[name], data)
                got |= fetched
                self._to_disk(fetched)
        finally:
            for name, flight in mine.items():
                self._land(name, flight, None)
        late = []
        for name, flight in others.items():
            flight.landed.wait()
            if flight.data is None:
                late.append(name)
            else:
                got[name] = flight.data
        # Whoever fetched these has failed, perhaps because of another chunk: the error must be this call's own.
        return got | self._fetched(late) if late else got

    def passed_by(self) -> None:
        """Count a call that goes past the cache."""
        with self._lock:
            self._counts["passed_by"] += 1

    def clear(self) -> None:
        """Drop what is in memory."""
        with self._lock:
            self._memory.clear()

    def statistics(self) -> CacheStatistics:
        """What became of all chunks until now."""
        with self._lock:
            counted = {each.name: self._counts[each.name] for each in fields(CacheStatistics)}
            return CacheStatistics(**{**counted, "memory_bytes": self._memory.used})

    def _claim(
        self, names: Sequence[ChunkName]
    ) -> tuple[dict[ChunkName, bytes], dict[ChunkName, _Flight], dict[ChunkName, _Flight]]:
        """What is in memory, what this thread is to fetch, and what other threads are fetching."""
        got: dict[ChunkName, bytes] = {}
        mine: dict[ChunkName, _Flight] = {}
        others: dict[ChunkName, _Flight] = {}
        with self._lock:
            for name in dict.fromkeys(names):
                data = self._memory.get(name)
                if data is not None:
                    got[name] = data
                elif name in self._flights:
                    others[name] = self._flights[name]
                else:
                    mine[name] = self._flights[name] = _Flight()
            self._counts.update(memory_hits=len(got), waited=len(others))
        return got, mine, others

    def _from_disk(self, mine: dict[ChunkName, _Flight]) -> dict[ChunkName, bytes]:
        got: dict[ChunkName, bytes] = {}
        if self._files is None:
            return got
        for name, flight in mine.items():
            try:
                data = self._files.read(name)
            except BrokenChunkError:
                self._count("broken_files")
                continue
            if data is not None:
                got[name] = data
                self._land(name, flight, data)
        self._count("disk_hits", len(got))
        return got

    def _to_disk(self, chunks: dict[ChunkName, bytes]) -> None:
        if self._files is not None:
            for name, data in chunks.items():
                self._files.write(name, data)

    def _fetched(self, names: Sequence[ChunkName]) -> dict[ChunkName, bytes]:
        """Chunks from the store; those that adjoin are one range."""
        runs: list[list[ChunkName]] = []
        for name in sorted(names, key=lambda name: (name.version.key, name.number)):
            last = runs[-1][-1] if runs else None
            if last is not None and last.version == name.version and last.number + 1 == name.number:
                runs[-1].append(name)
            else:
                runs.append([name])
        ranges = [
            ByteRange(key=run[0].version.key, offset=run[0].offset, length=sum(name.length for name in run))
            for run in runs
        ]
        answers = self._fetch(ranges)
        if len(answers) != len(ranges):
            raise ChangedObjectError
        chunks: dict[ChunkName, bytes] = {}
        for run, wanted, answer in zip(runs, ranges, answers, strict=True):
            view = memoryview(answer).cast("B")
            if view.nbytes != wanted.length:
                raise ChangedObjectError
            for name in run:
                # Bytes of their own: a slice would keep all of the answer in memory.
                begin = name.offset - wanted.offset
                chunks[name] = bytes(view[begin : begin + name.length])
        self._count("misses", len(chunks))
        return chunks

    def _land(self, name: ChunkName, flight: _Flight, data: bytes | None) -> None:
        """End a flight of this thread, if that has not been done; without data it has failed."""
        with self._lock:
            if self._flights.get(name) is not flight:
                return
            del self._flights[name]
            if data is not None:
                self._memory.put(name, data)
            flight.data = data
        flight.landed.set()

    def _count(self, what: str, more: int = 1) -> None:
        with self._lock:
            self._counts[what] += more
