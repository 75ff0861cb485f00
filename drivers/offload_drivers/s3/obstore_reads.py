"""Ranges read by obstore, a client in Rust: for any driver that can hand it a store and has another way to read.

obstore has threads of its own, which a fork does not copy: in a child of a process that has used it every request
would wait for ever. So it serves the process that used it first, and in all that were forked from that one it says, by
None, that they must read the other way. It says the same of whatever it could not read. The other way then
reads it, or knows the error in its own terms.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from offload_hooks.errors import MissingExtraError

_log = logging.getLogger(__name__)

_first_user: int | None = None
"""The process that used obstore before all others: this one, or one that it was forked from."""


class ObstoreReads:
    """One obstore store for each process that can have one, made by `make` at its first use there."""

    def __init__(self, make: Callable[[], Any]) -> None:
        try:
            # Now, and not by a thread's first read: a fork meanwhile would leave the module locked in the child.
            import obstore.store  # noqa: F401
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "the option client='obstore' needs the module 'obstore', which is not installed",
                hint="Install it: pip install 'pulsar-offload[obstore]'",
            ) from error
        self._make = make
        self._made: dict[int, Any] = {}
        # At the latest while Python is still whole: a store that is dropped as it ends may abort the process.
        weakref.finalize(self, _drop, self._made)

    def read(self, name: str, offset: int, length: int) -> memoryview | None:
        """Exactly `length` bytes of an object from an offset, or None."""
        import obstore

        store = self._store()
        if store is None:
            return None
        try:
            data = memoryview(obstore.get_range(store, name, start=offset, length=length))
        except Exception as error:
            _log.info(
                "obstore could not read a range (%s), which is read the other way", type(error).__name__
            )
            return None
        return data if data.nbytes == length else None

    def read_many(self, places: Sequence[tuple[str, int, int]], at_once: int) -> list[memoryview | None]:
        """Many ranges as name, offset and length, `at_once` of them at a time; None for each that is not read."""
        if len(places) == 1:
            return [self.read(*places[0])]
        # Not by obstore's coroutines: one of its threads hands over their answers, and if Python ends
        # just then, as a short command does after its last range, the process is aborted.
        with ThreadPoolExecutor(min(len(places), at_once)) as pool:
            return list(pool.map(lambda place: self.read(*place), places))

    def close(self) -> None:
        """Give back this process's connections; a later use makes new ones."""
        _drop(self._made)

    def _store(self) -> Any:
        global _first_user
        process = os.getpid()
        if _first_user is None:
            _first_user = process
        if _first_user != process:
            return None
        store = self._made.get(process)
        if store is None:
            store = self._made.setdefault(process, self._make())
        return store


def _drop(made: dict[int, Any]) -> None:
    made.pop(os.getpid(), None)
