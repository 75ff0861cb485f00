"""`SegmentOffloader`: opens segments of a tier for streaming offload (PIP-76), and deletes what attempts left.

What it does is without records, as of `LedgerOffloader`: who calls it records the attempt's uuid before, and its end
after. Source: docs/formats/streaming.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial
from importlib.metadata import version
from uuid import UUID

from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import EntryPosition
from offload_core.offload.attempt_objects import delete_attempt
from offload_core.offload.growing_block import LEAST_BLOCK_BYTES
from offload_core.offload.ledger_offloader import DEFAULT_MAX_BLOCK_BYTES
from offload_core.offload.object_metadata import user_metadata
from offload_core.offload.offload_handle import OffloadHandle
from offload_core.offload.segment_filter import SegmentFilter
from offload_core.offload.segment_upload import SegmentUpload
from offload_core.offload.streaming_blocks import BlockLimits, StreamingBlocks
from offload_core.tier import MemoryBudget, Tier, check_blocks
from offload_core.tier.block_upload import DEFAULT_PARTS_IN_FLIGHT
from offload_hooks.errors import OptionError

MAX_FRAME_BYTES = 2**31 - 1
"""A frame's length is an i32, and Pulsar holds a block in one array."""


class SegmentOffloader:
    """Opens segments in one tier. Calls may come from many threads at once.

    Args:
        tier: where to; it is not closed.
        budget: the memory that all open blocks and all blocks on their way take together; shared by all segments.
        executor: threads that call the store, shared by all segments; it outlives them.
        max_block_bytes: the length of a full block; an entry that fits none has one of its own.
        parts_in_flight: the most blocks of one segment on their way at once.
        checksums: write those of all blocks and the index beside them.

    Raises:
        OptionError: the tier or the budget takes no such blocks.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        budget: MemoryBudget,
        executor: Executor,
        max_block_bytes: int = DEFAULT_MAX_BLOCK_BYTES,
        parts_in_flight: int = DEFAULT_PARTS_IN_FLIGHT,
        checksums: bool = False,
    ) -> None:
        takes = tier.describe().capabilities
        check_blocks(takes, max_block_bytes)
        if max_block_bytes < LEAST_BLOCK_BYTES or parts_in_flight < 1:
            raise OptionError(
                "a block has room for one entry, and at least one part is in flight",
                expected=f"{LEAST_BLOCK_BYTES} bytes or more",
                found=f"{max_block_bytes} bytes, {parts_in_flight} parts",
            )
        budget.check(2 * max_block_bytes, "a block that grows")
        self._tier = tier
        self._budget = budget
        self._executor = executor
        self._parts_in_flight = parts_in_flight
        self._checksums = checksums
        self._limits = BlockLimits(
            max_block_bytes=max_block_bytes,
            min_block_bytes=takes.min_block_bytes,
            largest_block_bytes=min(takes.max_block_bytes, budget.limit_bytes, MAX_FRAME_BYTES),
            max_blocks=takes.max_blocks,
        )

    def open_segment(
        self,
        uuid: UUID,
        begin: EntryPosition,
        extra_metadata: Mapping[str, str],
        *,
        max_segment_bytes: int | None = None,
        segment_filter: SegmentFilter | None = None,
    ) -> OffloadHandle:
        """Open a segment; nothing is asked of the store before its first block goes.

        Args:
            uuid: the attempt's, never used before.
            begin: the entry that is offered first; or where a ledger ends of which the segment gets no entry.
            extra_metadata: user metadata of both objects; with `managedledgername` a bucket explains itself.
            max_segment_bytes: with the entry whose payload reaches this the segment closes by itself; of what is
                written of them.
            segment_filter: what all that is offered goes through; both objects say so.

        Raises:
            OptionError: `max_segment_bytes` is not positive.
        """
        if max_segment_bytes is not None and max_segment_bytes < 1:
            raise OptionError("a segment has at least one byte", found=max_segment_bytes)
        upload = SegmentUpload(
            self._tier,
            segment_key(uuid),
            partial(_about, dict(extra_metadata), segment_filter),
            self._executor,
            self._budget,
            parts_in_flight=self._parts_in_flight,
            checksums=self._checksums,
        )
        blocks = StreamingBlocks(begin, self._limits, self._budget, upload.send)
        return OffloadHandle(blocks, upload, max_segment_bytes, segment_filter)

    def delete_offloaded(self, uuid: UUID) -> None:
        """Delete an attempt's objects and uploads, whatever there is of them; nothing is there when it returns.

        Raises:
            StoreError: the store fails; it can be called again.
        """
        delete_attempt(self._tier, segment_key(uuid))


def _about(extra: Mapping[str, str], segment_filter: SegmentFilter | None, role: str) -> dict[str, str]:
    """The user metadata of a segment's data object, when it is begun, or of the others, at its end."""
    if segment_filter is not None:
        extra = {**extra, **(segment_filter.about_index() if role == "index" else segment_filter.about)}
    return user_metadata(role, f"pulsar-offload {version('pulsar-offload')}", extra)


def segment_key(uuid: UUID) -> ObjectKey:
    """The key of a segment's data object."""
    return ObjectKey(folder="", uuid=uuid, ledger_id=None, is_index=False)
