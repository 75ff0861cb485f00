"""State with locks and threads that each process has for itself: neither survives a fork in a usable form."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class PerProcess(Generic[_T]):
    """One value for each process, made by `make` at its first use there."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._made: dict[int, _T] = {}

    def get(self) -> _T:
        """This process's value."""
        # No lock, which a fork could copy while it is held: the second thread uses what the first one made.
        process = os.getpid()
        value = self._made.get(process)
        return self._made.setdefault(process, self._make()) if value is None else value

    def made(self) -> _T | None:
        """This process's value, if it was used here."""
        return self._made.get(os.getpid())
