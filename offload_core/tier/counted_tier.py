"""A Tier as one topic uses it: what is read and written, how long reads take, and what fails are counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from offload_core.codec.object_format import parse_key
from offload_core.offloader_stats import OffloaderStats
from offload_core.tier.tier import BYTES, NO_METADATA, Tier
from offload_core.tier.view import TierView
from offload_hooks import BlockReceipt, ByteRange, ObjectStat, ReadableBuffer, Upload
from offload_hooks.errors import OffloadError

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
        return self._read(key, lambda: [read(key, offset, length)])[0]

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """See `Tier`."""
        read = super().read_ranges
        return self._read(ranges[0].key, lambda: read(ranges)) if ranges else []

    def stat(self, key: str) -> ObjectStat:
        """See `Tier`."""
        stat = super().stat
        return self._or_read_error(lambda: stat(key))

    def _read(self, key: str, read: Callable[[], list[memoryview]]) -> list[memoryview]:
        began = time.perf_counter()
        views = self._or_read_error(read)
        seconds = time.perf_counter() - began
        place = parse_key(key)
        if place is not None and place.is_index:
            self._stats.time_index_read(self._topic, seconds)
        else:
            self._stats.time_data_read(self._topic, seconds)
        self._stats.count_read(self._topic, sum(view.nbytes for view in views))
        return views

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
