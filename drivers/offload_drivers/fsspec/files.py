"""What the driver asks of a file system, by fsspec's own interface: whatever it raises is translated by `errors`.

Two kinds are told apart. A file system that has its own `mv` renames: it has directories, and a file that is being
written can be seen, so files get their names by a rename. All others (object stores, `memory`) make a file visible
whole, when it is closed or copied, and need no directories.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from offload_drivers.directory_walk import Entry
from offload_drivers.filesystems import is_default
from offload_drivers.fsspec.errors import kind_of
from offload_drivers.replaced_sidecar import FileIdentity
from offload_hooks import ReadableBuffer
from offload_hooks.errors import InvalidKeyError, StoreError, StoreUnavailableError
from offload_hooks.values import utc_time

_JOINED_BYTES = 8 << 20
"""How much of a block is read at once, when blocks are joined."""

_TIMES = (
    *("mtime", "LastModified", "last_modified", "timeModified", "updated", "modificationTime"),
    *("modified", "modify"),
)
"""What file systems call a file's time of modification."""

_MILLISECONDS_FROM = 1e11
"""A number as large is no time in seconds (the year 5138) but one in milliseconds."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file or directory that is there; `changed_at` is None where the file system has no times."""

    is_file: bool
    size_bytes: int
    changed_at: datetime | None

    @property
    def modified_at(self) -> datetime:
        """The time of the last change; the present where there is none: such a file is never taken for an old one."""
        return self.changed_at or datetime.now(timezone.utc)

    @property
    def identity(self) -> FileIdentity:
        """The file's identity."""
        modified_ms = 0 if self.changed_at is None else round(self.changed_at.timestamp() * 1000)
        return FileIdentity(modified_ms=modified_ms, length=self.size_bytes)


def find(filesystem: Any, path: str) -> Found | None:
    """A file or directory; None if there is none, or if a part of the path is a file."""
    try:
        info = filesystem.info(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # not every server says why
        if _is_below_a_file(filesystem, path):
            return None
        raise
    return _found(filesystem, info)


def find_file(filesystem: Any, path: str) -> Found | None:
    """A file; None if there is none, or a directory."""
    found = find(filesystem, path)
    return found if found is not None and found.is_file else None


def entries(filesystem: Any, directory: str) -> list[Entry]:
    """What is in a directory; nothing if there is none."""
    try:
        infos = filesystem.ls(directory, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return list(_entries(filesystem, directory, infos))


def read(filesystem: Any, path: str, start: int, end: int) -> ReadableBuffer:
    """The bytes from `start` to `end`, or as many of them as there are."""
    if not is_default(filesystem, "cat_file"):
        return filesystem.cat_file(path, start=start, end=end)  # type: ignore[no-any-return]
    with filesystem.open(path, "rb", cache_type="none") as file:  # nothing is read ahead
        if hasattr(file, "readv"):  # of paramiko: requests for many pieces are under way at once
            end = min(end, file.stat().st_size)
            return b"".join(file.readv([(start, end - start)])) if start < end else b""
        file.seek(start)
        return file.read(end - start)  # type: ignore[no-any-return]


def read_whole(filesystem: Any, path: str, most: int) -> bytes | None:
    """A small file's bytes, or the first so many of them; None if it is not there."""
    found = find_file(filesystem, path)
    if found is None or not found.size_bytes:
        return None if found is None else b""
    with suppress(FileNotFoundError):
        return bytes(read(filesystem, path, 0, min(found.size_bytes, most)))
    return None


def write(filesystem: Any, path: str, data: ReadableBuffer) -> None:
    """Write a file whole, with the directories that it needs."""
    try:
        _write(filesystem, path, bytes(data))
    except FileNotFoundError:
        if not is_renaming(filesystem):  # then it is the bucket that is missing, and is not made here
            raise
        _make_directory(filesystem, path.rpartition("/")[0])
        _write(filesystem, path, bytes(data))
    _check_size(filesystem, path, len(data))


def join(filesystem: Any, source: Any, files: Sequence[tuple[str, int]], target: str) -> None:
    """Write files, each a path and its size, one after another into a new one.

    They are read by another file system, `source`: while paramiko writes without waiting for answers, whatever else its
    client is asked takes these.
    """
    with _opened_to_write(filesystem, target) as joined:
        for path, size in files:
            for place in range(0, size, _JOINED_BYTES):
                joined.write(read(source, path, place, min(place + _JOINED_BYTES, size)))
    _check_size(filesystem, target, sum(size for _, size in files))


def is_renaming(filesystem: Any) -> bool:
    """True if a file system renames files, rather than copying them."""
    return not is_default(filesystem, "mv")


def move(filesystem: Any, source: str, target: str, *, replaces: bool) -> None:
    """Give a file another path, with the directories that it needs; where it is copied, it stays where it was, too.

    Args:
        replaces: there is a file of that path. Where the file system does not rename over it, it is removed first.
    """
    if not is_renaming(filesystem):
        filesystem.cp_file(source, target)
        return
    _make_directory(filesystem, target.rpartition("/")[0])
    try:
        filesystem.mv(source, target)
    except Exception as error:
        if not replaces or kind_of(error).retryable or find_file(filesystem, source) is None:
            raise
    if replaces and find_file(filesystem, source) is not None:
        remove(filesystem, target)
        filesystem.mv(source, target)


def put(filesystem: Any, path: str, data: ReadableBuffer, staged: str) -> None:
    """Put a small file in place whole: where files are renamed, by way of the path `staged`."""
    if is_renaming(filesystem):
        write(filesystem, staged, data)
        move(filesystem, staged, path, replaces=find_file(filesystem, path) is not None)
    else:
        write(filesystem, path, data)


def remove(filesystem: Any, path: str) -> bool:
    """Remove a file; whether it was there."""
    if find_file(filesystem, path) is None:
        return False
    try:
        filesystem.rm_file(path)
    except OSError:
        if find_file(filesystem, path) is not None:
            raise
        return False
    return True


def _entries(filesystem: Any, directory: str, infos: Sequence[dict[str, Any]]) -> Iterator[Entry]:
    for info in infos:
        path = str(info["name"]).rstrip("/")
        if path.strip("/") == directory.strip("/"):  # some list the directory itself
            continue
        with suppress(FileNotFoundError):  # it vanished
            found = _found(filesystem, info)
            if found.is_file or info["type"] == "directory":
                name = path.rpartition("/")[2]
                yield Entry(name, not found.is_file, found.size_bytes, found.modified_at)


def _found(filesystem: Any, info: dict[str, Any]) -> Found:
    if info["type"] != "file":
        return Found(False, 0, None)
    if info.get("size") is None:
        raise StoreError("the file system does not say how long a file is", found=info["name"])
    return Found(True, int(info["size"]), _changed_at(filesystem, info))


def _changed_at(filesystem: Any, info: dict[str, Any]) -> datetime | None:
    times = (_as_time(info.get(name)) for name in _TIMES)
    found = next((time for time in times if time is not None), None)
    if found is None and not is_default(filesystem, "modified"):
        with suppress(NotImplementedError, RuntimeError, KeyError):
            found = _as_time(filesystem.modified(info["name"]))
    return found or _as_time(info.get("created") or info.get("timeCreated"))


def _as_time(value: object) -> datetime | None:
    """A time as file systems give it: a `datetime`, seconds or milliseconds since 1970, ISO 8601 or FTP's digits."""
    if isinstance(value, str):
        form = "%Y%m%d%H%M%S" if value.isdecimal() and len(value) == 14 else ""
        try:
            value = datetime.strptime(value, form) if form else datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return utc_time((value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp())
    if isinstance(value, int | float):
        return utc_time(value / 1000 if value > _MILLISECONDS_FROM else value)
    return None


def _write(filesystem: Any, path: str, data: bytes) -> None:
    if is_default(filesystem, "pipe_file"):
        with _opened_to_write(filesystem, path) as file:
            file.write(data)
    else:
        filesystem.pipe_file(path, data)


def _opened_to_write(filesystem: Any, path: str) -> Any:
    file = filesystem.open(path, "wb")
    if hasattr(file, "set_pipelined"):  # of paramiko: it does not wait for the answer to each 32 KiB
        file.set_pipelined(True)
    return file


def _check_size(filesystem: Any, path: str, expected: int) -> None:
    """Whatever became of the bytes on their way: a file of another length was not written."""
    found = find_file(filesystem, path)
    if found is None or found.size_bytes != expected:
        raise StoreUnavailableError(
            "a file is not there as it was written",
            expected=f"{expected:,} bytes",
            found="none" if found is None else f"{found.size_bytes:,} bytes",
        )


def _make_directory(filesystem: Any, path: str) -> None:
    if find(filesystem, path or "/") is not None:
        return
    try:
        filesystem.makedirs(path, exist_ok=True)
    except Exception as error:
        found = find(filesystem, path)  # another thread may have been faster
        if _is_below_a_file(filesystem, f"{path}/x"):
            raise InvalidKeyError("a part of the key is an object already") from error
        if found is None or found.is_file:
            filesystem.makedirs(path, exist_ok=True)


def _is_below_a_file(filesystem: Any, path: str) -> bool:
    """True if a part of the path is a file. Only asked when something failed: it may take some requests."""
    parent = path.rpartition("/")[0]
    while parent.strip("/"):
        if filesystem.isfile(parent):
            return True
        parent = parent.rpartition("/")[0]
    return False
