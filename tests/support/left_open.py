"""Stores that a scene leaves open, as a killed process does: they are closed when the test ends.

A test of all crash points makes hundreds of scenes, and a system does not open any number of files.
"""

from __future__ import annotations

from typing import Protocol, TypeVar


class _Closed(Protocol):
    def close(self) -> None: ...


_Store = TypeVar("_Store", bound=_Closed)
_left: list[_Closed] = []


def left_open(store: _Store) -> _Store:
    """The store, of which nobody says when it is not needed any more."""
    _left.append(store)
    return store


def close_what_is_left() -> None:
    """Close all that were left open so far."""
    while _left:
        _left.pop().close()
