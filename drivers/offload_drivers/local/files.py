"""What the local driver does to files: durable writes, directories, a lock, and the translation of OSError.

Each step that makes something visible is one rename. A file's bytes are synced before it is renamed, a
directory after a name in it has changed. The only place where an `OSError` becomes an `OffloadError` is
`translated`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator

from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    ObjectNotFoundError,
    OffloadError,
    StoreError,
    StoreFullError,
)

_KINDS: dict[int, type[StoreError]] = {
    errno.ENOENT: ObjectNotFoundError,
    errno.ENOSPC: StoreFullError,
    errno.EDQUOT: StoreFullError,
    errno.EACCES: AccessDeniedError,
    errno.EPERM: AccessDeniedError,
    errno.EROFS: AccessDeniedError,
}
_BAD_NAME = {
    errno.ENAMETOOLONG: "the path is too long",
    errno.ENOTDIR: "a part of the key is an object already",
    errno.EISDIR: "the key is a directory already",
    errno.ELOOP: "symbolic links go round in a circle",
}


@contextlib.contextmanager
def translated(doing: str, root: str, key: str | None = None) -> Iterator[None]:
    """Turn an `OSError` into the error of the hooks that it means; `doing` is a verb, as in "read"."""
    try:
        yield
    except OSError as error:
        if isinstance(error, OffloadError):
            raise
        raise _translate(error, doing, root, key) from error


def _translate(error: OSError, doing: str, root: str, key: str | None) -> StoreError | InvalidKeyError:
    number = error.errno or 0
    if number == errno.ENOENT and not os.path.isdir(root):
        return ObjectNotFoundError(f"the root {root} of the local tier does not exist", key=key)
    if number == errno.ENOTDIR and os.path.exists(root) and not os.path.isdir(root):
        return ObjectNotFoundError(f"the root {root} of the local tier is not a directory", key=key)
    if number in _BAD_NAME:
        return InvalidKeyError(f"cannot {doing}: {_BAD_NAME[number]}", key=key)
    kind = _KINDS.get(number, StoreError)
    if kind is ObjectNotFoundError:
        return ObjectNotFoundError(f"cannot {doing}: there is no such object in {root}", key=key)
    return kind(f"cannot {doing} in {root}: {error.strerror or error}", key=key)


@contextlib.contextmanager
def opened(path: str, flags: int) -> Iterator[int]:
    """A file descriptor for the time of the block."""
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock file `path` (made if need be) against all other processes and threads.

    The lock dies with its process. It is released explicitly, since a child forked meanwhile shares it.
    """
    with opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def opened_object(path: str) -> Iterator[int]:
    """A file descriptor for reading an object; `FileNotFoundError` for whatever is not a regular file."""
    stat_object(path)
    with opened(path, os.O_RDONLY) as descriptor:
        yield descriptor


def stat_object(path: str) -> os.stat_result:
    """What is known of an object's file; `FileNotFoundError` for whatever is not a regular file."""
    try:
        info = os.stat(path)
    except NotADirectoryError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
    if not stat.S_ISREG(info.st_mode):
        raise FileNotFoundError(errno.ENOENT, "Not a file", path)
    return info


def write_all(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of `data` at `offset`."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written


def write_durably(path: str, data: bytes) -> None:
    """Write a file so that it holds, after a crash at any time, what it held before or all of `data`."""
    unfinished = path + ".tmp"
    with opened(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as descriptor:
        write_all(descriptor, memoryview(data), 0)
        os.fsync(descriptor)
    os.replace(unfinished, path)
    sync_directory(os.path.dirname(path))


def sync_directory(path: str) -> None:
    """Make the names in a directory durable, where the file system can."""
    with opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise


def make_directories(path: str) -> None:
    """Make a directory and those above it, durably; what is there already is left."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        try:
            os.mkdir(each)
        except FileExistsError:
            if not os.path.isdir(each):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each) from None
        sync_directory(os.path.dirname(each))


def remove(path: str) -> bool:
    """Remove a file; whether it was there."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def read_whole(path: str) -> bytes | None:
    """A small file's bytes; None if it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
