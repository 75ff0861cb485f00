"""Small objects that are read whole: their size, and how that is made of other hooks."""

from __future__ import annotations

from typing import Protocol

from offload_hooks.errors import RangeError
from offload_hooks.values import ObjectStat, ReadableBuffer, WholeObject


class StatAndRange(Protocol):
    """The two hooks that it can be made of."""

    def stat(self, *, key: str) -> ObjectStat:
        """See `TierHooks`."""

    def read_range(self, *, key: str, offset: int, length: int) -> ReadableBuffer:
        """See `TierHooks`."""


def read_by_stat_and_range(hooks: StatAndRange, key: str, most_bytes: int) -> WholeObject:
    """Do what the hook `read_object` demands by two requests, which another process may come between."""
    stat = hooks.stat(key=key)
    check_size(key, stat.size_bytes, most_bytes)
    data = hooks.read_range(key=key, offset=0, length=stat.size_bytes) if stat.size_bytes else b""
    return WholeObject(stat=stat, data=data)


def check_size(key: str, size_bytes: int, most_bytes: int) -> None:
    """Refuse to read an object whole that is larger than was wanted (`RangeError`)."""
    if size_bytes > most_bytes:
        raise RangeError(
            "the object is too large to be read whole",
            key=key,
            expected=f"at most {most_bytes:,} bytes",
            found=f"{size_bytes:,}",
        )
