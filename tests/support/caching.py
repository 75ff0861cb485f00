"""A block cache for tests: objects count as old, and what the store was asked for is written down."""

from __future__ import annotations

import contextlib
import fcntl
import time
from pathlib import Path

from layered import Calls, layer

from offload_core.tier import Tier
from offload_hooks.testing import MemoryDriver
from offload_layers.block_cache import BlockCacheLayer
from offload_layers.block_cache.chunk_cache import CacheStatistics
from offload_layers.block_cache.chunk_files import LAYOUT

CHUNK = 100


class EagerCache(BlockCacheLayer):
    """Caches what was changed a moment ago, too."""

    wall_clock = staticmethod(lambda: time.time() + 3600)


class Cached:
    """A Tier with a block cache of small chunks over a driver, and what the cache asked of the driver.

    Options that are not given: chunks of 100 bytes, in memory only, stats that count for ever.
    """

    def __init__(self, driver: object, kind: type[BlockCacheLayer] = EagerCache, **options: object) -> None:
        given = {"chunk_bytes": CHUNK, "bulk_bytes": 1_000_000, "validate_s": 1e9, **options}
        self._made: list[BlockCacheLayer] = []

        def make(rest: object) -> BlockCacheLayer:
            self._made.append(kind(rest, **given))  # type: ignore[arg-type]
            return self._made[-1]

        self.calls = Calls()
        self.tier = Tier(driver, [layer(make), self.calls.layer()])

    @property
    def statistics(self) -> CacheStatistics:
        return self._made[0].statistics()

    def read(self, key: str, offset: int, length: int) -> bytes:
        return bytes(self.tier.read_range(key, offset, length))

    def fetched(self) -> list[tuple[str, int, int]]:
        """The ranges that were read from the driver since the last time."""
        ranges = self.calls.ranges()
        self.calls.seen = [(hook, arguments) for hook, arguments in self.calls.seen if hook == "stat"]
        return ranges

    def stats(self) -> int:
        """How often the driver was asked for a stat."""
        return len(self.calls.of("stat"))


def put(driver: MemoryDriver, key: str, data: bytes) -> None:
    """Store an object beside the cache."""
    driver.write_index(key, data, "text/plain", {}, False)


def chunk_files(directory: Path) -> list[Path]:
    """The files of all chunks."""
    return sorted(directory.rglob("*.chunk"))


def size_of(directory: Path) -> int:
    """The bytes of all chunks and of those that are being written, at one moment."""
    root = directory / LAYOUT
    try:
        with (root / "room").open("rb") as lock:
            fcntl.flock(
                lock, fcntl.LOCK_EX
            )  # nobody makes or removes a file; it may be moved to its place still
            sizes = _sizes(root / "writing") | {
                inode: size
                for folder in root.glob("[0-9a-f][0-9a-f]")
                for inode, size in _sizes(folder).items()
            }
            fcntl.flock(lock, fcntl.LOCK_UN)
    except FileNotFoundError:
        return 0
    return sum(sizes.values())


def _sizes(folder: Path) -> dict[int, int]:
    sizes = {}
    for path in folder.iterdir() if folder.exists() else ():
        with contextlib.suppress(FileNotFoundError):
            info = path.stat()
            sizes[info.st_ino] = info.st_size
    return sizes
