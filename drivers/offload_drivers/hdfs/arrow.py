"""HDFS by pyarrow: Hadoop's own Java client, through libhdfs. It can only read.

It stands in for the library's client in `HdfsClient`, with the few requests that reading takes. Writing is refused:
libhdfs cannot replace a file by renaming another one. What else it cannot do: times are whole seconds, and a process
that was forked from one with a Java machine has none. Asked for the status of a file, libhdfs says that there
is none, also when it was denied or the NameNode does not answer; so who finds none tries to open it, which tells.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NoReturn

from offload_drivers.hdfs.options import HdfsOptions
from offload_hooks.errors import OptionError

_process_of_java = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """A file's or directory's status, as the library gives it."""

    path: str
    isdir: bool
    length: int
    modification_time: int


class _Reader:
    """A file opened for reading, safe to use from many threads."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._length = int(file.size())

    def file_length(self) -> int:
        """The file's length in bytes."""
        return self._length

    def read_range(self, offset: int, length: int) -> bytes:
        """Exactly these bytes."""
        data: bytes = self._file.read_at(length, offset)
        if len(data) != length:
            raise OSError(f"{len(data)} bytes came instead of {length}")
        return data


class ArrowClient:
    """What `HdfsClient` needs to read."""

    def __init__(self, options: HdfsOptions) -> None:
        self._files = _connected(options)

    @property
    def inner(self) -> ArrowClient:
        """What has `read`."""
        return self

    def read(self, path: str) -> _Reader:
        """Open a file for reading."""
        try:
            return _Reader(self._files.open_input_file(path))
        except PermissionError as error:
            if self._is_below_a_file(path):
                raise FileNotFoundError(path) from error
            raise

    def get_file_info(self, path: str) -> _Status:
        """The status of a file or directory; FileNotFoundError if there is none."""
        found = self._files.get_file_info([path])[0]
        if found.type.name == "NotFound":
            self.read(path)
            raise FileNotFoundError(path)
        return _status(found)

    def list_status(self, path: str) -> Iterator[_Status]:
        """The statuses in a directory; FileNotFoundError if there is none."""
        if not self.get_file_info(path).isdir:
            raise FileNotFoundError(path)
        yield from map(_status, self._list(path))

    def mkdirs(self, *_: object) -> NoReturn:
        """Refuse, as all else that writes."""
        raise _read_only()

    create = rename = delete = set_times = recover_lease = mkdirs

    def _is_below_a_file(self, path: str) -> bool:
        """Whether a part of the path is a file, which libhdfs calls denied."""
        above = [str(each) for each in PurePosixPath(path).parents]
        return any(found.type.name == "File" for found in self._files.get_file_info(above))

    def _list(self, path: str) -> list[Any]:
        from pyarrow.fs import FileSelector

        found: list[Any] = self._files.get_file_info(FileSelector(path))
        return found


def _status(found: Any) -> _Status:
    is_directory = found.type.name == "Directory"
    return _Status(
        path=found.path,
        isdir=is_directory,
        length=0 if is_directory else found.size,
        modification_time=found.mtime_ns // 1_000_000,
    )


def _connected(options: HdfsOptions) -> Any:
    from pyarrow.fs import HadoopFileSystem  # absent from a pyarrow that was built without HDFS

    global _process_of_java
    if _process_of_java not in (0, os.getpid()):
        raise OptionError(
            "client='pyarrow' cannot be used in a process that was forked from one that has used it",
            hint="Start processes by 'spawn', or use client='hdfs-native'.",
        )
    _process_of_java = os.getpid()
    if not os.environ.get("CLASSPATH"):
        raise OptionError(
            "client='pyarrow' finds Hadoop's classes by CLASSPATH, which is not set",
            hint='Set it: export CLASSPATH="$(hadoop classpath --glob)".',
        )
    host, _, port = options.authority.partition(":")
    return HadoopFileSystem(
        host or "default",
        int(port or 0),
        user=options.user or None,
        kerb_ticket=options.kerberos_cache or None,
    )


def _read_only() -> OptionError:
    return OptionError("client='pyarrow' can only read", hint="Write with client='hdfs-native'.")
