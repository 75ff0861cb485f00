"""How a topic is streamed: when its segments close, and how large their blocks are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from offload_core.offload.growing_block import LEAST_BLOCK_BYTES
from offload_core.offload.ledger_offloader import DEFAULT_MAX_BLOCK_BYTES
from offload_core.offload.recorded_segments import SegmentBounds
from offload_core.offload.streaming_blocks import LEAST_EARLY_BYTES
from offload_hooks.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingSettings:
    """Bounds of one segment; it closes with the first of them that is reached.

    Attributes:
        max_segment_bytes: of payloads; `maxSizePerOffloadSegmentMbytes`. The entry that reaches it is the last.
        max_segment_age_s: since its first entry waits, also on an idle topic; `maxOffloadSegmentRolloverTimeMinutes`.
        block_bytes: the length of a full block.
        checksums: write those of all blocks and the index beside them.
    """

    max_segment_bytes: int = 1024 << 20
    max_segment_age_s: float = 600
    block_bytes: int = DEFAULT_MAX_BLOCK_BYTES
    checksums: bool = False

    def __post_init__(self) -> None:
        for name, least in (
            ("max_segment_bytes", 1),
            ("max_segment_age_s", 0),
            ("block_bytes", LEAST_BLOCK_BYTES),
        ):
            value = getattr(self, name)
            if not value >= least:
                raise OptionError(
                    f"streaming has an impossible {name}", expected=f"{least} or more", found=value
                )

    @classmethod
    def within(cls, budget_bytes: int) -> Self:
        """The defaults, with blocks for which the memory of a pool is enough."""
        return cls(block_bytes=max(LEAST_BLOCK_BYTES, min(DEFAULT_MAX_BLOCK_BYTES, budget_bytes // 2)))

    @property
    def feed_bytes(self) -> int:
        """How much has to wait before it is offloaded, where nothing else asks for it: enough for a block to go."""
        return min(LEAST_EARLY_BYTES, self.block_bytes, self.max_segment_bytes)

    @property
    def max_age_ms(self) -> int:
        """The age in ms."""
        return int(self.max_segment_age_s * 1000)

    @property
    def of_segments(self) -> SegmentBounds:
        """What is said of one segment."""
        return SegmentBounds(
            max_segment_bytes=self.max_segment_bytes, block_bytes=self.block_bytes, checksums=self.checksums
        )
