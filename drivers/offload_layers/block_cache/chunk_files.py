"""Chunks on disk, in a directory that processes share and any of them may be killed in at any point.

    <directory>/offload-block-cache-v1/     mode 0700, this user's
        room                                 the lock, and how many bytes are taken; see `chunk_room`
        <2 hex>/<32 hex>.chunk               one chunk, mode 0600, named by the hash of its identity
        writing/<32 hex>     one that is being written

A chunk's file is, little endian:

    magic "OFFCHNK1"     8 bytes
    identity length      8
    data length          8
    xxh3_64              8, of identity and data
    identity             which chunk it is, see `chunk_names`
    data

It appears by a rename, so it is whole while the system runs; after a power failure it may be anything. Whatever is
not exactly the chunk that was asked for (torn, changed, another's) is a miss, and removed. A file's time of change is
the time of its last use, kept to the minute.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import struct
import time
from pathlib import Path

import xxhash

from offload_hooks.errors import OptionError
from offload_hooks.private_files import make_directories, open_file
from offload_layers.block_cache.chunk_names import ChunkName, file_name
from offload_layers.block_cache.chunk_room import CHUNK_SUFFIX, ChunkRoom

LAYOUT = "offload-block-cache-v1"
MAGIC = b"OFFCHNK1"

_HEADER = struct.Struct("<8sQQQ")
_USE_NOTED_S = 60.0
_log = logging.getLogger("offload_layers.block_cache")


class BrokenChunkError(Exception):
    """A chunk's file is not what it should be; it was removed."""


class ChunkFiles:
    """The chunks in one directory; it is made, or found to be this user's alone, else `OptionError`.

    Whatever goes wrong with the disk later is logged, and no error: the chunk is not kept then.

    Args:
        directory: where; other users' caches may lie in the same place.
        most_bytes: all files together are never larger than this.
    """

    def __init__(self, directory: str, most_bytes: int) -> None:
        self._root = Path(directory).expanduser().absolute() / LAYOUT
        self._most_bytes = most_bytes
        self._warned: set[int | None] = set()
        self._make_root()
        self._room = ChunkRoom(self._root, most_bytes)

    def read(self, name: ChunkName) -> bytes | None:
        """A chunk's bytes, None if it is not kept; `BrokenChunkError` after removing a file that is not it."""
        identity = name.identity()
        path = self._path(identity)
        try:
            found = _contents(path, _HEADER.size + len(identity) + name.length)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ELOOP:
                self._warn("read", error)
                return None
            found = None  # a symbolic link, which is none of ours
        data = None if found is None else _decoded(found, identity)
        if data is None:
            with contextlib.suppress(OSError):
                path.unlink()
            raise BrokenChunkError(path.name)
        return data

    def write(self, name: ChunkName, data: bytes) -> None:
        """Keep a chunk, for which others may have to go."""
        identity = name.identity()
        path = self._path(identity)
        size_bytes = _HEADER.size + len(identity) + len(data)
        if size_bytes > self._most_bytes or os.path.lexists(path):
            return
        try:
            written = self._room.reserve(size_bytes)
            if written is not None:
                _fill(written, path, _encoded(identity, data))
        except FileNotFoundError:  # somebody has removed the directory, or the file that was being written
            with contextlib.suppress(OptionError):
                self._make_root()
        except OSError as error:
            self._warn("keep", error)

    def _warn(self, deed: str, error: OSError) -> None:
        if error.errno not in self._warned:  # once for each kind: a full disk stays full for a while
            self._warned.add(error.errno)
            _log.warning("the block cache cannot %s a chunk: %s", deed, os.strerror(error.errno or errno.EIO))

    def _path(self, identity: bytes) -> Path:
        name = file_name(identity)
        return self._root / name[:2] / f"{name}{CHUNK_SUFFIX}"

    def _make_root(self) -> None:
        try:
            make_directories(self._root.parent)
            with contextlib.suppress(FileExistsError):
                self._root.mkdir(0o700)
            info = self._root.lstat()
        except OSError as error:
            raise OptionError(
                "the block cache's directory cannot be made", found=os.strerror(error.errno or errno.EIO)
            ) from error
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise OptionError(
                f"the block cache's directory {str(self._root)!r} is not this user's alone",
                expected="a directory of mode 0700",
                found=f"{stat.filemode(info.st_mode)} of user {info.st_uid}",
            )


def _contents(path: Path, size_bytes: int) -> memoryview | None:
    """A file's bytes, None if it is no file of this size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_size != size_bytes:
            return None
        found = memoryview(bytearray(size_bytes))
        done = 0
        while done < size_bytes:
            more = os.readv(descriptor, [found[done:]])
            if not more:
                return None
            done += more
        if abs(time.time() - info.st_mtime) > _USE_NOTED_S:
            os.utime(descriptor)
        return found
    finally:
        os.close(descriptor)


def _decoded(found: memoryview, identity: bytes) -> bytes | None:
    magic, identity_bytes, data_bytes, checksum = _HEADER.unpack_from(found)
    body = found[_HEADER.size :]
    sound = (
        magic == MAGIC
        and identity_bytes == len(identity)
        and data_bytes == len(body) - len(identity)
        and checksum == xxhash.xxh3_64_intdigest(body)
        and body[: len(identity)] == identity
    )
    return bytes(body[len(identity) :]) if sound else None


def _encoded(identity: bytes, data: bytes) -> list[bytes]:
    hashed = xxhash.xxh3_64(identity)
    hashed.update(data)
    return [_HEADER.pack(MAGIC, len(identity), len(data), hashed.intdigest()), identity, data]


def _fill(written: Path, path: Path, parts: list[bytes]) -> None:
    """Fill a file and put it in its place. It is not synced: after a power failure the checksum tells."""
    try:
        with os.fdopen(open_file(written, os.O_WRONLY), "wb", buffering=0) as file:
            for part in parts:
                left = memoryview(part)
                while left:
                    left = left[file.write(left) :]
        path.parent.mkdir(0o700, exist_ok=True)
        written.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            written.unlink()
        raise
