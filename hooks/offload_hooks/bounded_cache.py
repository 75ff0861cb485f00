"""A cache of bounded size that drops what was not used for longest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class BoundedCache(Generic[_Key, _Value]):
    """Values by key, the least recently used of which are dropped. Thread-safe, but not across a fork.

    Args:
        limit: the most values, or the most that their sizes have in all.
        size_of: the size of a value, 1 by default; a value larger than the limit is not kept.
    """

    def __init__(self, limit: int, *, size_of: Callable[[_Value], int] = lambda _: 1) -> None:
        self._limit = limit
        self._size_of = size_of
        self._lock = threading.Lock()
        self._values: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()
        self._used = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def used(self) -> int:
        """The number of values, or the sum of their sizes."""
        return self._used

    def get(self, key: _Key) -> _Value | None:
        """The value of a key; it counts as used now."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: _Key, value: _Value) -> None:
        """Keep a value, in place of the key's earlier one."""
        size = self._size_of(value)
        with self._lock:
            self._pop(key)
            if size > self._limit:
                return
            self._values[key] = value, size
            self._used += size
            while self._used > self._limit:
                self._used -= self._values.popitem(last=False)[1][1]

    def load(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        """The value of a key, made now if it is not kept; threads that need it at the same time may make it twice."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
                return found[0]
        value = make()
        self.put(key, value)
        return value

    def pop(self, key: _Key) -> None:
        """Drop the value of a key, if there is one."""
        with self._lock:
            self._pop(key)

    def clear(self) -> None:
        """Drop all."""
        with self._lock:
            self._values.clear()
            self._used = 0

    def _pop(self, key: _Key) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self._used -= found[1]
