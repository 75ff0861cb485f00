"""The objects of a tier in HDFS in order of their keys, lazily, one directory at a time.

A directory is sorted as its name with a slash, which puts all keys in the order of their UTF-8 bytes; a NameNode's own
order takes bytes for signed. Directories that cannot hold a wanted key are not looked into. What vanishes during the
walk is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from offload_drivers.hdfs.uploads import HdfsTier
from offload_hooks import ListedObject
from offload_hooks.errors import ObjectNotFoundError
from offload_hooks.values import utc_time


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file or directory that is to be listed or looked into."""

    key: str
    is_directory: bool
    length: int
    modified_ms: int


def list_keys(tier: HdfsTier, prefix: str, start_after: str) -> Iterator[ListedObject]:
    """List the objects whose key begins with `prefix` and comes after `start_after`.

    Errors, at the call: `ObjectNotFoundError` for a missing root.
    """
    root = tier.client.status(tier.paths.root)
    if root is None or not root.isdir:
        raise ObjectNotFoundError(f"the root of the tier does not exist: {tier.client.location}")
    return _walk(tier, _bytes(prefix), _bytes(start_after), prefix.rpartition("/")[0])


def _walk(tier: HdfsTier, prefix: bytes, start_after: bytes, start: str) -> Iterator[ListedObject]:
    if start and not tier.paths.is_key(start, is_directory=True):
        return
    levels = [_sorted_directory(tier, f"{start}/" if start else "", prefix, start_after)]
    while levels:  # an explicit stack: a path may have more parts than Python has frames
        entry = next(levels[-1], None)
        if entry is None:
            levels.pop()
        elif entry.is_directory:
            levels.append(_sorted_directory(tier, entry.key + "/", prefix, start_after))
        else:
            modified_at = utc_time(entry.modified_ms / 1000)
            yield ListedObject(key=entry.key, size_bytes=entry.length, modified_at=modified_at)


def _sorted_directory(tier: HdfsTier, base: str, prefix: bytes, start_after: bytes) -> Iterator[_Entry]:
    """The wanted objects and directories in the directory `base` (with its slash; empty for the root)."""
    found: list[tuple[bytes, _Entry]] = []
    try:
        for status in tier.client.listing((tier.paths.base + base).rstrip("/") or "/"):
            key = base + str(status.path).rpartition("/")[2]
            order = _bytes(key + "/" if status.isdir else key)
            is_key = tier.paths.is_key(key, is_directory=status.isdir)
            if is_key and _is_wanted(order, status.isdir, prefix, start_after):
                found.append((order, _Entry(key, status.isdir, status.length, status.modification_time)))
    except ObjectNotFoundError:
        return iter(())
    found.sort(key=lambda each: each[0])
    return iter([entry for _, entry in found])


def _is_wanted(order: bytes, is_directory: bool, prefix: bytes, start_after: bytes) -> bool:
    if is_directory:
        may_begin = order.startswith(prefix) or prefix.startswith(order)
        return may_begin and (order > start_after or start_after.startswith(order))
    return order.startswith(prefix) and order > start_after


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
