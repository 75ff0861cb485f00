"""A Tier that counts what it is asked for, in the units that stores charge for: listings, lookups, ranges, bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from offload_core.tier.tier import Tier
from offload_core.tier.view import TierView
from offload_hooks import ByteRange, ListedObject, ObjectStat

LIST_PAGE_KEYS = 1000
"""So many keys come by one request of a listing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests of a store, by what they are charged as.

    Attributes:
        lists: pages of listings.
        heads: lookups of one object's size and user metadata.
        gets: ranges of objects that are read.
        puts: objects that are stored whole, parts of uploads, and the beginning and end of each upload.
        read_bytes: what the ranges have together.
    """

    lists: int = 0
    heads: int = 0
    gets: int = 0
    puts: int = 0
    read_bytes: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            lists=self.lists + other.lists,
            heads=self.heads + other.heads,
            gets=self.gets + other.gets,
            puts=self.puts + other.puts,
            read_bytes=self.read_bytes + other.read_bytes,
        )

    @property
    def total(self) -> int:
        """All requests."""
        return self.lists + self.heads + self.gets + self.puts


class MeasuredTier(TierView):
    """A view of a Tier that counts what is read.

    What layers below ask for again, and a store's own client, is not seen.
    """

    def __init__(self, tier: Tier) -> None:
        super().__init__(tier)
        self._lock = threading.Lock()
        self._requests = Requests()

    @property
    def requests(self) -> Requests:
        """What was asked for so far."""
        with self._lock:
            return self._requests

    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        """See `Tier`."""
        self._count(Requests(gets=1, read_bytes=length))
        return super().read_range(key, offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """See `Tier`."""
        self._count(Requests(gets=len(ranges), read_bytes=sum(each.length for each in ranges)))
        return super().read_ranges(ranges)

    def stat(self, key: str) -> ObjectStat:
        """See `Tier`."""
        self._count(Requests(heads=1))
        return super().stat(key)

    def list_objects(self, prefix: str = "", start_after: str = "") -> Iterator[ListedObject]:
        """See `Tier`."""
        self._count(Requests(lists=1))
        for number, listed in enumerate(super().list_objects(prefix, start_after)):
            if number and number % LIST_PAGE_KEYS == 0:
                self._count(Requests(lists=1))
            yield listed

    def _count(self, more: Requests) -> None:
        with self._lock:
            self._requests += more
