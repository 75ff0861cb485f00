"""Changing requests of this process of which it is not known whether the store carried them out.

Google's store has no ids of requests. A create-only write whose answer was lost, made again, finds an object: its
own one perhaps. Whoever noted here that the outcome was not known may then compare what is there with what was sent.
Without such a note nothing is compared: an object that somebody else made, were it the same, is somebody else's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from offload_hooks.errors import StoreUnavailableError

_REMEMBERED = 1000


class UnsureWrites:
    """Which writes ended without an answer; from any thread."""

    def __init__(self) -> None:
        self._writes: dict[Hashable, None] = {}

    @contextmanager
    def noting(self, write: Hashable) -> Iterator[None]:
        """Note the write when it ends with `StoreUnavailableError`; forget it when it ends otherwise."""
        try:
            yield
        except StoreUnavailableError:
            self._writes[write] = None
            for oldest in list(self._writes)[:-_REMEMBERED]:
                self._writes.pop(oldest, None)
            raise
        except BaseException:
            self._writes.pop(write, None)
            raise
        self._writes.pop(write, None)

    def __contains__(self, write: Hashable) -> bool:
        return write in self._writes
