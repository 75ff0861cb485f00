"""The objects of a local tier in order of their keys, lazily, one directory at a time.

A directory is sorted as its name with a slash, which puts all keys in the order of their UTF-8 bytes.
Directories that cannot hold a wanted key are not looked into. What vanishes during the walk is left out.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from offload_drivers.local.files import opened_directory, translated
from offload_drivers.local.paths import is_key
from offload_hooks import ListedObject
from offload_hooks.values import utc_time

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""It vanished, or is a link."""

_Found = tuple[bytes, str, os.stat_result]


def list_keys(root: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
    """List the objects whose key begins with `prefix` and comes after `start_after`.

    Errors, at the call: `ObjectNotFoundError` for a missing root; while listing: `AccessDeniedError`,
    `StoreError`.
    """
    with translated("list", root):
        os.stat(f"{root}/")  # with the slash, what is no directory is refused
    return _walk(root, _bytes(prefix), _bytes(start_after), prefix.rpartition("/")[0])


def _walk(root: str, prefix: bytes, start_after: bytes, start: str) -> Iterator[ListedObject]:
    # An explicit stack: a path may have more directories than Python has frames.
    if start and not is_key(start, is_directory=True):
        return
    base = f"{start}/" if start else ""
    levels = [(base, _sorted_directory(root, base, prefix, start_after))]
    while levels:
        parent, names = levels[-1]
        found = next(names, None)
        if found is None:
            levels.pop()
            continue
        _, name, info = found
        key = parent + name
        if stat.S_ISDIR(info.st_mode):
            levels.append((key + "/", _sorted_directory(root, key + "/", prefix, start_after)))
        else:
            modified_at = utc_time(info.st_mtime)
            yield ListedObject(key=key, size_bytes=info.st_size, modified_at=modified_at)


def _sorted_directory(root: str, base: str, prefix: bytes, start_after: bytes) -> Iterator[_Found]:
    """The wanted objects and directories in the directory `base` (with its slash; empty for the root)."""
    found: list[_Found] = []
    with translated("list", root, base or None):
        try:
            with (
                opened_directory(root, base.removesuffix("/")) as here,
                os.scandir(here.descriptor) as entries,
            ):
                for entry in entries:
                    info = _wanted(base, entry, prefix, start_after)
                    if info is not None:
                        slash = "/" if stat.S_ISDIR(info.st_mode) else ""
                        found.append(((entry.name + slash).encode(), entry.name, info))
        except OSError as error:
            if error.errno in _NOT_THERE:
                return iter(())
            raise
    found.sort(key=lambda each: each[0])
    return iter(found)


def _wanted(base: str, entry: os.DirEntry[str], prefix: bytes, start_after: bytes) -> os.stat_result | None:
    """Kind of an entry, if it is an object or directory to be listed or read; no link is."""
    key = base + entry.name
    try:
        is_directory = entry.is_dir(follow_symlinks=False)
        if not is_key(key, is_directory=is_directory):
            return None
        if is_directory:
            inside = (key + "/").encode()
            wanted = (inside.startswith(prefix) or prefix.startswith(inside)) and (
                inside > start_after or start_after.startswith(inside)
            )
        else:
            wanted = key.encode().startswith(prefix) and key.encode() > start_after
        if not wanted:
            return None
        info = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    return info if is_directory or stat.S_ISREG(info.st_mode) else None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
