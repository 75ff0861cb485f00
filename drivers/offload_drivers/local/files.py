"""What the local driver does to files: durable writes, directories, a lock, and the translation of OSError.

Each step that makes something visible is one rename. A file's bytes are synced before it is renamed, a
directory after a name in it has changed. The only place where an `OSError` becomes an `OffloadError` is
`translated`.

Everything below a root is reached by descriptors of the directories on the way, each opened without following a
symbolic link: what is planted there, before or while a call is under way, leads nowhere else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    ObjectNotFoundError,
    OffloadError,
    StoreError,
    StoreFullError,
)
from offload_hooks.private_files import FILE_MODE, make_directories, open_file, sync_directory

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PATH_MAX = 4096
"""Of a whole path: a longer one could be made step by step, and opened by no other program."""

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
    errno.ELOOP: "a symbolic link is in the way, and below the root none is followed",
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
        return ObjectNotFoundError(f"the directory {root} does not exist", key=key)
    if number == errno.ENOTDIR and os.path.exists(root) and not os.path.isdir(root):
        return ObjectNotFoundError(f"{root} is not a directory", key=key)
    if number in _BAD_NAME:
        return InvalidKeyError(f"cannot {doing}: {_BAD_NAME[number]}", key=key)
    kind = _KINDS.get(number, StoreError)
    if kind is ObjectNotFoundError:
        return ObjectNotFoundError(f"cannot {doing}: there is no such object in {root}", key=key)
    return kind(f"cannot {doing} in {root}: {error.strerror or error}", key=key)


@dataclass(frozen=True, slots=True)
class Directory:
    """An open directory of a tier; what is done in it is done by names, and no link is followed.

    Attributes:
        file_mode: of files that are created.
    """

    descriptor: int
    file_mode: int = FILE_MODE

    @contextlib.contextmanager
    def opened(self, name: str, flags: int) -> Iterator[int]:
        """A regular file's descriptor for the time of the block; `OSError` as of `open_file`."""
        descriptor = open_file(name, flags, mode=self.file_mode, dir_fd=self.descriptor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold a lock file (made if need be) against all other processes and threads.

        The lock dies with its process. It is released explicitly, since a child forked meanwhile shares it.
        """
        with self.opened(name, os.O_RDWR | os.O_CREAT) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def stat(self, name: str) -> os.stat_result | None:
        """The entry of this name, also a link itself; None if there is none."""
        try:
            return os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def stat_object(self, name: str) -> os.stat_result:
        """State of an object's file.

        Raises:
            FileNotFoundError: there is no regular file of this name.
            OSError: it is a symbolic link (`ELOOP`), as of `os.stat` else.
        """
        info = self.stat(name)
        if info is not None and stat.S_ISLNK(info.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        if info is None or not stat.S_ISREG(info.st_mode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return info

    @contextlib.contextmanager
    def opened_object(self, name: str) -> Iterator[int]:
        """A descriptor for reading an object; `OSError` as of `stat_object`."""
        self.stat_object(name)
        with self.opened(name, os.O_RDONLY) as descriptor:
            yield descriptor

    def is_directory(self, name: str) -> bool:
        """True if a directory has this name."""
        info = self.stat(name)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def read_whole(self, name: str) -> bytes | None:
        """A small file's bytes; None if no regular file has this name."""
        info = self.stat(name)
        if info is None or not stat.S_ISREG(info.st_mode):
            return None
        try:
            with os.fdopen(open_file(name, os.O_RDONLY, dir_fd=self.descriptor), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def write_durably(self, name: str, data: bytes) -> None:
        """Write a file so that it holds, after a crash at any time, what it held before or all of `data`."""
        unfinished = name + ".tmp"
        self.remove(unfinished)
        with self.opened(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
            write_all(descriptor, memoryview(data), 0)
            os.fsync(descriptor)
        self.move(unfinished, self, name)

    def move(self, name: str, to: Directory, new_name: str) -> None:
        """Rename a file, durably; what has the new name is replaced, a link itself."""
        os.replace(name, new_name, src_dir_fd=self.descriptor, dst_dir_fd=to.descriptor)
        to.sync()

    def remove(self, name: str) -> bool:
        """Remove a file; whether it was there."""
        try:
            os.unlink(name, dir_fd=self.descriptor)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """Make the names in it durable, where the file system can."""
        sync_directory(self.descriptor)


@contextlib.contextmanager
def opened_directory(root: str, path: str = "", file_mode: int | None = None) -> Iterator[Directory]:
    """The directory at `path` below a root, for the time of the block; the root itself may be a link.

    Args:
        path: names with `/` between; empty for the root.
        file_mode: of files to be created; with it directories that are missing are made, durably.

    Raises:
        FileNotFoundError: a directory is not there.
        OSError: a symbolic link is on the way (`ELOOP`); a directory cannot be opened or made.
    """
    if len(os.fsencode(f"{root}/{path}")) >= _PATH_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    if file_mode is not None:
        make_directories(root, directory_mode(file_mode))
    descriptor = os.open(root, _DIRECTORY)
    try:
        for name in path.split("/") if path else ():
            deeper = _opened_below(descriptor, name, file_mode)
            os.close(descriptor)
            descriptor = deeper
        yield Directory(descriptor, FILE_MODE if file_mode is None else file_mode)
    finally:
        os.close(descriptor)


def directory_mode(file_mode: int) -> int:
    """The mode of directories beside files of this mode: readers of those may also search these."""
    return file_mode | (file_mode & 0o444) >> 2


def _opened_below(above: int, name: str, file_mode: int | None) -> int:
    while True:
        try:
            return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        except FileNotFoundError:
            if file_mode is None:
                raise
        except NotADirectoryError as error:
            info = Directory(above).stat(name)
            if info is not None and stat.S_ISLNK(info.st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from error
            if file_mode is None:  # nothing can be below
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name) from error
            raise
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, directory_mode(file_mode), dir_fd=above)
        sync_directory(above)


def write_all(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of `data` at `offset`."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
