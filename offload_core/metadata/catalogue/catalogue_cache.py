"""Keep on disk what was read of a tier's objects, user metadata and indexes, so that the next look needs one listing.

There is one SQLite file for each tier, in this user's cache folder. A pair is found by its data object's key, and
counts only while both objects have the sizes, times and versions that they had when it was read; where a store gives
no versions, nothing is kept. Nothing here is needed: a file that is in use, or cannot be written, is passed over, and
one that is damaged, or of another version of this program, is deleted. Source: ADR 0069.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
import xxhash

from offload_core.storage.tier import Tier
from offload_hooks.bounded_cache import BoundedCache
from offload_hooks.errors import FormatError
from offload_hooks.json_text import read_json
from offload_hooks.private_files import create_file, is_private_folder, make_directories
from offload_hooks.values import SETTLED_S, ListedObject

FOLDER_VARIABLE = "PULSAR_OFFLOAD_CACHE"
"""In the environment: another folder than the user's own, or `off`."""

MOST_BYTES = 1 << 30
"""The most bytes of all files together; the tiers that were not looked at for longest go first."""

MOST_INDEX_BYTES = 1 << 16
"""A larger index is not kept: it has some 3,000 blocks, of 64 MiB in most objects."""

_LAYOUT = 1
"""Of the tables, and of what they hold."""

_BUSY_S = 1.0
_AT_ONCE = 500
_MOST_METADATA = 10_000
_PAGE_BYTES = 4096
_TABLES = f"""
    CREATE TABLE IF NOT EXISTS metadata (id INTEGER PRIMARY KEY, text TEXT UNIQUE);
    CREATE TABLE IF NOT EXISTS pairs (
        key TEXT PRIMARY KEY, fingerprint TEXT, metadata INTEGER, contents BLOB, checksum INTEGER) WITHOUT ROWID;
    PRAGMA user_version = {_LAYOUT};
"""
_FIND = """
    SELECT key, fingerprint, text, contents, checksum FROM pairs LEFT JOIN metadata ON metadata.id = pairs.metadata
    WHERE key IN ({marks})
"""
_KEEP = """
    INSERT OR REPLACE INTO pairs VALUES (?, ?, (SELECT id FROM metadata WHERE text = ?), ?, ?)
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CachedPair:
    """What was read of a pair of objects.

    Attributes:
        key: of the data object.
        fingerprint: see `fingerprint_of`.
        user_metadata: of the pair; shared by pairs that have the same.
        index_contents: the index object's bytes; None if they were not read.
    """

    key: str
    fingerprint: str
    user_metadata: Mapping[str, str]
    index_contents: bytes | None


def fingerprint_of(data: ListedObject | None, index: ListedObject | None) -> str | None:
    """What a listing, or a lookup, shows of both objects as long as neither is replaced.

    None if that cannot be known: one is not there, or has no version.
    """
    if data is None or index is None or data.version is None or index.version is None:
        return None
    # In whole seconds: lookups have no more.
    data_s, index_s = int(data.modified_at.timestamp()), int(index.modified_at.timestamp())
    return f"{data.size_bytes} {data_s} {data.version} {index.size_bytes} {index_s} {index.version}"


def is_settled(*objects: ListedObject | None) -> bool:
    """True if no object was written so lately that a later write could look alike."""
    youngest = time.time() - SETTLED_S
    return all(each is None or each.modified_at.timestamp() <= youngest for each in objects)


class CatalogueCache:
    """The pairs of one tier that were read before. For one thread.

    Args:
        path: the file; its folder is there.
        most_bytes: the file does not grow beyond this.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._metadata: BoundedCache[str, Mapping[str, str]] = BoundedCache(_MOST_METADATA)
        self._file: sqlite3.Connection | None = None
        with self._passed_over():
            self._file = self._opened()

    def find(self, keys: Iterable[str]) -> dict[str, CachedPair]:
        """The pairs of these data objects' keys that are kept, by key."""
        found: dict[str, CachedPair] = {}
        with self._passed_over():
            for some in _parts(keys):
                if self._file is None:
                    break
                query = _FIND.format(marks=",".join("?" * len(some)))
                for key, fingerprint, text, contents, checksum in self._file.execute(query, some):
                    if text is None or checksum != _checksum(key, fingerprint, text, contents):
                        raise sqlite3.DatabaseError("a row is damaged")
                    found[key] = CachedPair(key, fingerprint, self._parsed(text), contents)
        return found

    def keep(self, pairs: Sequence[CachedPair]) -> None:
        """Keep these pairs, in place of what was known of their keys."""
        with self._passed_over():
            if self._file is None or not pairs or self._is_full():
                return
            rows = []
            for pair in pairs:
                contents = pair.index_contents
                if contents is not None and len(contents) > MOST_INDEX_BYTES:
                    contents = None
                text = json.dumps(dict(pair.user_metadata), sort_keys=True)
                checksum = _checksum(pair.key, pair.fingerprint, text, contents)
                rows.append((pair.key, pair.fingerprint, text, contents, checksum))
            with self._file:
                texts = {row[2] for row in rows}
                self._file.executemany(
                    "INSERT OR IGNORE INTO metadata (text) VALUES (?)", [(text,) for text in texts]
                )
                self._file.executemany(_KEEP, rows)

    def close(self) -> None:
        """Close the file; delete it if it is full, and others if all together are too large."""
        if self._file is None:
            return
        self._file.close()
        with suppress(OSError):
            if self._path.stat().st_size >= self._most_bytes:
                self._delete()  # of objects that are gone, perhaps
                return
            os.utime(self._path)
            _make_room(self._path, self._most_bytes)

    def _opened(self) -> sqlite3.Connection:
        create_file(self._path)
        file = sqlite3.connect(self._path, timeout=_BUSY_S)
        try:
            file.text_factory = _lenient
            # What a crash of the machine damages is deleted: no write waits for the disk.
            file.execute("PRAGMA synchronous = OFF")
            (layout,) = file.execute("PRAGMA user_version").fetchone()
            if not layout:  # another process may make them at the same time
                file.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
            elif layout != _LAYOUT:
                raise sqlite3.DatabaseError("another version of this program made it")
        except BaseException:
            file.close()
            raise
        return file

    def _is_full(self) -> bool:
        assert self._file is not None
        (pages,) = self._file.execute("PRAGMA page_count").fetchone()
        return bool(pages * _PAGE_BYTES >= self._most_bytes)

    def _parsed(self, text: str) -> Mapping[str, str]:
        return self._metadata.load(text, lambda: read_json(text, "a cache of user metadata"))

    @contextmanager
    def _passed_over(self) -> Iterator[None]:
        """Go on without the file if something is wrong with it, and delete it if it is damaged."""
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            self._give_up(f"is not used: {error}")
        except (
            sqlite3.DatabaseError,
            FormatError,
            UnicodeDecodeError,
        ) as error:  # a text of SQLite's own, too
            self._give_up(f"is deleted: {error}")
            with suppress(OSError):
                self._delete()

    def _delete(self) -> None:
        for each in (self._path, Path(f"{self._path}-journal")):
            each.unlink(missing_ok=True)

    def _give_up(self, why: str) -> None:
        _log.info("the catalogue's cache %s %s", self._path, why)
        if self._file is not None:
            self._file.close()
        self._file = None


@contextmanager
def catalogue_cache(tier: Tier, *, is_used: bool) -> Iterator[CatalogueCache | None]:
    """The cache of a tier; None if it `is_used` not, or there is no place for it."""
    folder = cache_folder() if is_used else None
    if folder is None:
        yield None
        return
    name = hashlib.sha256(tier.describe().identity.encode()).hexdigest()[:32]
    with closing(CatalogueCache(folder / f"{name}.sqlite")) as cache:
        yield cache


def cache_folder() -> Path | None:
    """The folder of all caches, which only this user can write to; None if there is none."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named == "off":
        return None
    folder = Path(named) if named else platformdirs.user_cache_path("pulsar-offload", appauthor=False)
    folder = folder / "catalogues"
    if not folder.is_absolute():  # so for a user without a home
        return None
    try:
        make_directories(folder)
        return folder if is_private_folder(folder) else None
    except OSError as error:
        _log.info("there is no folder for the catalogue's cache: %s", error)
        return None


def _make_room(path: Path, most_bytes: int) -> None:
    """Delete the files that were not used for longest, never this one, until all together have few enough bytes."""
    others = []
    left = most_bytes - path.stat().st_size
    for each in path.parent.glob("*.sqlite"):
        if each != path:
            with suppress(OSError):
                found = each.stat()
                others.append((found.st_mtime, found.st_size, each))
    for _, size, each in sorted(others, reverse=True):
        left -= size
        if left < 0:
            each.unlink(missing_ok=True)


def _parts(keys: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(keys)
    for at in range(0, len(ordered), _AT_ONCE):
        yield ordered[at : at + _AT_ONCE]


def _lenient(data: bytes) -> str:
    """Text, and what is none: its checksum then shows that."""
    return data.decode(errors="replace")


def _checksum(key: str, fingerprint: str, text: str, contents: Any) -> int:
    digest = xxhash.xxh3_64(f"{key}\0{fingerprint}\0{text}\0{contents is None}\0".encode())
    digest.update(contents or b"")
    return digest.intdigest() >> 1
