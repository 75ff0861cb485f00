"""Tiers that watch their calls: `CountedTier` for a topic's statistics, `MeasuredTier` in units that stores charge for.

A counted tier notes what is read and written, how long reads take, and what fails. A measured one counts listings,
lookups, ranges and bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from offload_core.format.codec.object_format import parse_key
from offload_core.storage.offloader_stats import OffloaderStats
from offload_core.storage.tier.tier import BYTES, NO_METADATA, Tier
from offload_hooks import (
    BlockReceipt,
    ByteRange,
    ListedObject,
    ObjectStat,
    ReadableBuffer,
    Upload,
    WholeObject,
)
from offload_hooks.errors import OffloadError


class TierView(Tier):
    """A view of a Tier: the same place, connections and threads, which are closed with it and not with the view."""

    def __init__(self, tier: Tier) -> None:
        vars(self).update(vars(tier))  # it is that tier, driver and layers and all

    def close(self) -> None:
        """Does nothing: the opener of the tier closes it."""


_T = TypeVar("_T")


class CountedTier(TierView):
    """A view of a Tier that counts for one topic.

    Args:
        tier: what is called.
        stats: counts its calls.
        topic: of whom, `persistent://tenant/namespace/topic`.
    """

    def __init__(self, tier: Tier, stats: OffloaderStats, topic: str) -> None:
        super().__init__(tier)
        self._stats = stats
        self._topic = topic

    def begin_data(
        self, key: str, *, content_type: str = BYTES, user_metadata: Mapping[str, str] = NO_METADATA
    ) -> Upload:
        """See `Tier`."""
        begin = super().begin_data
        return self._written(lambda: begin(key, content_type=content_type, user_metadata=user_metadata))

    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `Tier`."""
        write = super().write_block
        receipt = self._written(lambda: write(upload, part_number, offset, data))
        self._stats.count_offloaded(self._topic, receipt.length)
        return receipt

    def commit_data(
        self, upload: Upload, receipts: Sequence[BlockReceipt], *, create_only: bool = False
    ) -> ObjectStat:
        """See `Tier`."""
        commit = super().commit_data
        return self._written(lambda: commit(upload, receipts, create_only=create_only))

    def write_index(
        self,
        key: str,
        data: ReadableBuffer,
        *,
        content_type: str = BYTES,
        user_metadata: Mapping[str, str] = NO_METADATA,
        create_only: bool = False,
    ) -> ObjectStat:
        """See `Tier`."""
        write = super().write_index
        return self._written(
            lambda: write(
                key, data, content_type=content_type, user_metadata=user_metadata, create_only=create_only
            )
        )

    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        """See `Tier`."""
        read = super().read_range
        return self._read(key, lambda: read(key, offset, length), len)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """See `Tier`."""
        read = super().read_ranges
        return (
            self._read(ranges[0].key, lambda: read(ranges), lambda views: sum(map(len, views)))
            if ranges
            else []
        )

    def read_object(self, key: str, most_bytes: int) -> WholeObject:
        """See `Tier`."""
        read = super().read_object
        return self._read(key, lambda: read(key, most_bytes), lambda whole: whole.stat.size_bytes)

    def stat(self, key: str) -> ObjectStat:
        """See `Tier`."""
        stat = super().stat
        return self._or_read_error(lambda: stat(key))

    def _read(self, key: str, read: Callable[[], _T], bytes_of: Callable[[_T], int]) -> _T:
        began = time.perf_counter()
        answer = self._or_read_error(read)
        seconds = time.perf_counter() - began
        place = parse_key(key)
        if place is not None and place.is_index:
            self._stats.time_index_read(self._topic, seconds)
        else:
            self._stats.time_data_read(self._topic, seconds)
        self._stats.count_read(self._topic, bytes_of(answer))
        return answer

    def _or_read_error(self, read: Callable[[], _T]) -> _T:
        try:
            return read()
        except OffloadError:
            self._stats.count_read_error(self._topic)
            raise

    def _written(self, write: Callable[[], _T]) -> _T:
        try:
            return write()
        except OffloadError:
            self._stats.count_write_error(self._topic)
            raise


LIST_PAGE_KEYS = 1000
"""Keys that one request of a listing returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests of a store, by the price that applies.

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
    """A view of a Tier that counts reads.

    What layers below ask for again, and a store's own client, is not seen.
    """

    def __init__(self, tier: Tier) -> None:
        super().__init__(tier)
        self._lock = threading.Lock()
        self._requests = [Requests()]  # shared with views of this one

    @property
    def requests(self) -> Requests:
        """The requests so far."""
        with self._lock:
            return self._requests[0]

    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        """See `Tier`."""
        self._count(Requests(gets=1, read_bytes=length))
        return super().read_range(key, offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """See `Tier`."""
        self._count(Requests(gets=len(ranges), read_bytes=sum(each.length for each in ranges)))
        return super().read_ranges(ranges)

    def read_object(self, key: str, most_bytes: int) -> WholeObject:
        """See `Tier`."""
        whole = super().read_object(key, most_bytes)
        size_bytes = whole.stat.size_bytes
        is_one = self.reads_whole
        self._count(
            Requests(heads=int(not is_one), gets=int(is_one or size_bytes > 0), read_bytes=size_bytes)
        )
        return whole

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
            self._requests[0] += more
