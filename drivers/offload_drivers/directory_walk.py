"""Objects that are files in directories, in order of their keys, lazily, one directory at a time.

A directory is sorted as its name with a slash, which puts all keys in the order of their UTF-8 bytes, whatever order
the store lists in. Directories that cannot hold a wanted key are not read. What vanishes during the walk is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or directory; `name` is the last part of its path. Size and time count for files only."""

    name: str
    is_directory: bool
    size_bytes: int
    modified_at: datetime


class IsKey(Protocol):
    """Judges texts."""

    def __call__(self, text: str, *, is_directory: bool = False) -> bool:
        """True if a text is a key, or, of a directory, if keys begin with it."""


def walk(
    entries: Callable[[str], Iterable[Entry]], is_key: IsKey, prefix: str, start_after: str
) -> Iterator[tuple[str, Entry]]:
    """All files whose key begins with `prefix` and comes after `start_after`, with their keys.

    Args:
        entries: what is in a directory below the root, given with a slash at its end, empty for the root itself;
            nothing for one that is not there.
        is_key: names that are no keys are skipped.
    """
    start = prefix.rpartition("/")[0]
    if start and not is_key(start, is_directory=True):
        return
    wanted = _bytes(prefix), _bytes(start_after)
    levels = [_sorted(entries, is_key, f"{start}/" if start else "", *wanted)]
    while levels:  # an explicit stack: a path may have more parts than Python has frames
        key, entry = next(levels[-1], ("", None))
        if entry is None:
            levels.pop()
        elif entry.is_directory:
            levels.append(_sorted(entries, is_key, key + "/", *wanted))
        else:
            yield key, entry


def _sorted(
    entries: Callable[[str], Iterable[Entry]], is_key: IsKey, base: str, prefix: bytes, start_after: bytes
) -> Iterator[tuple[str, Entry]]:
    """The wanted objects and directories in one directory."""
    found: list[tuple[bytes, str, Entry]] = []
    for entry in entries(base):
        key = base + entry.name
        if is_key(key, is_directory=entry.is_directory):
            order = _bytes(key + "/" if entry.is_directory else key)
            if _is_wanted(order, entry.is_directory, prefix, start_after):
                found.append((order, key, entry))
    found.sort(key=lambda each: each[0])
    return iter([(key, entry) for _, key, entry in found])


def _is_wanted(order: bytes, is_directory: bool, prefix: bytes, start_after: bytes) -> bool:
    if is_directory:
        may_begin = order.startswith(prefix) or prefix.startswith(order)
        return may_begin and (order > start_after or start_after.startswith(order))
    return order.startswith(prefix) and order > start_after


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
