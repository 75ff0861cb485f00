"""Files and folders that only this user may read: created private, through no link, their names durable.

A new file has mode 0600, a new folder 0700, whatever the umask allows; existing ones keep their
mode. The last part of a path is never followed if it is a symbolic link, and must be a regular file: a pipe that
lies there is refused instead of waited for. A file that has other names, too (hard links), is not written to.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def open_file(
    path: str | os.PathLike[str], flags: int, *, mode: int = FILE_MODE, dir_fd: int | None = None
) -> int:
    """Open a regular file; answers its descriptor.

    Args:
        flags: as of `os.open`. With `O_CREAT` a file that is not there is created, and its name made durable.
        mode: of a file that is created.
        dir_fd: the open folder that `path` is in, where `path` is a mere name.

    Raises:
        OSError: as of `os.open`; `ELOOP` for a symbolic link, `EISDIR` for a folder, `EPERM` for a pipe, socket or
            device; `EMLINK` for a file that is to be written and has other names.
    """
    always = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while flags & os.O_CREAT:
        try:
            descriptor = os.open(path, flags | always | os.O_EXCL, mode, dir_fd=dir_fd)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
        else:
            try:
                sync_directory(os.path.dirname(os.path.abspath(path)) if dir_fd is None else dir_fd)
            except BaseException:
                os.close(descriptor)
                raise
            return descriptor
        try:
            return _checked(os.open(path, flags & ~os.O_CREAT | always, dir_fd=dir_fd), path, flags)
        except FileNotFoundError:  # deleted meanwhile
            continue
    return _checked(os.open(path, flags | always, dir_fd=dir_fd), path, flags)


def create_file(path: str | os.PathLike[str]) -> None:
    """Make sure that there is a regular file: create an empty one if need be, its name durable.

    The file is never open here under its name: closing it would take away the locks that SQLite, in another thread of
    this process, holds on it.

    Raises:
        OSError: as of `open_file`.
    """
    if _found(path) is None:
        folder, name = os.path.split(os.path.abspath(path))
        partial = _beside(folder, name)
        os.close(_new_file(partial))
        try:
            os.link(partial, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links
            with contextlib.suppress(FileExistsError):
                os.close(_new_file(os.fspath(path)))
        finally:
            os.unlink(partial)
        sync_directory(folder)
    check_file(path)


def check_file(path: str | os.PathLike[str]) -> None:
    """Refuse what `open_file` refuses, for those who open the file themselves.

    Raises:
        OSError: as of `open_file`, `FileNotFoundError` if nothing is there.
    """
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    if not stat.S_ISREG(found.st_mode):
        raise _refused(path, found)


def sync_directory(directory: str | os.PathLike[str] | int) -> None:
    """Make the names in a folder durable, where the file system can; a path, or the descriptor of an open one."""
    if not isinstance(directory, int):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_directory(descriptor)
        finally:
            os.close(descriptor)
        return
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def make_directories(path: str | os.PathLike[str], mode: int = FOLDER_MODE) -> None:
    """Make a folder and those above it that are missing, durably; existing ones are not changed.

    Raises:
        NotADirectoryError: something else is there. OSError: as of `os.mkdir`.
    """
    missing = []
    above = os.path.abspath(path)
    while not os.path.isdir(above):
        missing.append(above)
        above = os.path.dirname(above)
    for each in reversed(missing):
        try:
            os.mkdir(each, mode)
        except FileExistsError:
            if not os.path.isdir(each):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each) from None
        sync_directory(os.path.dirname(each))


def is_private_folder(path: str | os.PathLike[str]) -> bool:
    """True if no other user can put anything there: it is this user's own folder, no link, and others cannot write.

    Raises:
        OSError: as of `os.lstat`.
    """
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path`, whole and durably, if the block ends without an error.

    It lies beside `path` under a name that cannot be guessed, and is removed if there is an error. A file that is
    replaced hands its mode on; a symbolic link is replaced itself.

    Raises:
        OSError: it cannot be written, or a folder or anything else that is no file has this name.
    """
    folder, name = os.path.split(os.path.abspath(path))
    partial = _beside(folder, name)
    descriptor = _new_file(partial)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            found = _found(os.path.join(folder, name))
            if found is not None and stat.S_ISREG(found.st_mode):
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & 0o777)
            elif found is not None and not stat.S_ISLNK(found.st_mode):
                raise _refused(path, found)
            os.fsync(descriptor)
        os.replace(partial, os.path.join(folder, name))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    sync_directory(folder)


def _beside(folder: str, name: str) -> str:
    """A path in the same folder that cannot be guessed."""
    return os.path.join(folder, f".{name[:40]}.{secrets.token_hex(8)}.partial")


def _new_file(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)


def _found(path: str | os.PathLike[str]) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _checked(descriptor: int, path: str | os.PathLike[str], flags: int) -> int:
    """The descriptor, if it is a regular file's that may be used so; else it is closed."""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, found)
        if found.st_nlink > 1 and flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EMLINK, "This file has other names, too (hard links)", os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _refused(path: str | os.PathLike[str], found: os.stat_result) -> OSError:
    if stat.S_ISDIR(found.st_mode):
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    return PermissionError(errno.EPERM, "This is no regular file", os.fspath(path))
