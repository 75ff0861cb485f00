"""Layers over a driver as a test needs them: a driver again, a script of errors, and a call that is held up."""

from __future__ import annotations

import contextlib
import fcntl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from offload_core.storage.tier import Layer, Tier
from offload_core.storage.tier.chain import Chain
from offload_hooks import ByteRange, hookimpl
from offload_hooks.testing import MemoryDriver
from offload_hooks.testing.layer_conformance import DriverOfHooks
from offload_layers.block_cache import BlockCacheLayer
from offload_layers.block_cache.chunk_cache import CacheStatistics
from offload_layers.block_cache.chunk_files import LAYOUT

DEADLINE_S = 30


def layer(make: Callable[..., object], **options: object) -> Layer:
    """A layer by its class."""
    return Layer(name=getattr(make, "__name__", "layer"), make=lambda rest: make(rest, **options))


def stack(driver: object, *layers: Layer) -> Tier:
    """A Tier of these."""
    return Tier(driver, layers)


class Layered(DriverOfHooks):
    """A driver that is a driver under layers, for whatever judges drivers."""

    def __init__(self, driver: object, layers: Sequence[Layer]) -> None:
        self._chain = Chain(driver, "layered", layers)
        super().__init__(self._chain.hooks)

    def close(self) -> None:
        self._chain.close()


class Calls:
    """A layer that writes down the reads, writes and stats that pass it, and lets a test act before each.

    `before(hook, arguments)` is called in the caller's thread; what it raises is the call's error.
    """

    def __init__(self, before: Callable[[str, dict[str, Any]], object] | None = None) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.before = before

    def layer(self) -> Layer:
        return Layer(name="calls", make=lambda rest: _Noting(rest, self))

    def of(self, hook: str) -> list[dict[str, Any]]:
        """The arguments of each call of a hook."""
        return [arguments for name, arguments in list(self.seen) if name == hook]

    def ranges(self) -> list[tuple[str, int, int]]:
        """All ranges that were read."""
        return [
            (each.key, each.offset, each.length) for call in self.of("read_ranges") for each in call["ranges"]
        ] + [(call["key"], call["offset"], call["length"]) for call in self.of("read_range")]

    def note(self, hook: str, **arguments: Any) -> None:
        self.seen.append((hook, arguments))
        if self.before is not None:
            self.before(hook, arguments)


class _Noting:
    def __init__(self, rest: Any, calls: Calls) -> None:
        self._rest, self._calls = rest, calls

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> Any:
        self._calls.note("read_range", key=key, offset=offset, length=length)
        return self._rest.read_range(key=key, offset=offset, length=length)

    @hookimpl
    def read_ranges(self, ranges: Any) -> Any:
        self._calls.note("read_ranges", ranges=list(ranges))
        return self._rest.read_ranges(ranges=ranges)

    @hookimpl
    def stat(self, key: str) -> Any:
        self._calls.note("stat", key=key)
        return self._rest.stat(key=key)

    @hookimpl(wrapper=True)
    def commit_data(self, upload: Any) -> Iterator[None]:
        self._calls.note("commit_data", upload=upload)
        return (yield)

    @hookimpl(wrapper=True)
    def list_objects(self, prefix: str, start_after: str) -> Iterator[None]:
        self._calls.note("list_objects", prefix=prefix, start_after=start_after)
        return (yield)


class Gate:
    """Holds up all calls, until it is opened."""

    def __init__(self) -> None:
        self._arrived = threading.Semaphore(0)
        self._open = threading.Event()

    def hold(self) -> None:
        """Wait until the gate is open."""
        self._arrived.release()
        assert self._open.wait(DEADLINE_S)

    def wait_for(self, count: int = 1) -> None:
        """Wait until `count` more calls have come."""
        for _ in range(count):
            assert self._arrived.acquire(timeout=DEADLINE_S)

    def open(self) -> None:
        """Let all through, now and later."""
        self._open.set()


# --- A block cache for tests: objects count as old, and what the store was asked for is written down.


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
            self._made.append(kind(rest, **given))
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
        """Number of the driver's calls of `stat`."""
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
            )  # no file is made or removed; one may still be moved to its place
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


# --- Calls of the hooks that ask something of a store, for tests of what comes when it does not answer well.


def calls(driver: Any) -> dict[str, tuple[str | None, Callable[[], object]]]:
    """Every hook that asks the store, with the key that its error must name."""
    return {
        "begin_data": ("k", lambda: driver.begin_data("k", "text/plain", {})),
        "write_index": ("k", lambda: driver.write_index("k", b"x", "text/plain", {}, False)),
        "create_only": ("k", lambda: driver.write_index("k", b"x", "text/plain", {}, True)),
        "read_range": ("k", lambda: driver.read_range("k", 0, 1)),
        "read_ranges": ("k", lambda: driver.read_ranges([ByteRange(key="k", offset=0, length=1)])),
        **(
            {"read_object": ("k", lambda: driver.read_object("k", 9))}
            if hasattr(driver, "read_object")
            else {}
        ),
        "stat": ("k", lambda: driver.stat("k")),
        "delete": ("k", lambda: driver.delete(["k"])),
        "list_objects": (None, lambda: list(driver.list_objects("", ""))),
        "list_uploads": (None, lambda: list(driver.list_uploads(""))),
    }
