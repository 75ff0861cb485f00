"""What a walk over a data object finds: frames, and the stretches of it that have them one behind the other."""

from __future__ import annotations

from dataclasses import dataclass, field

from offload_core.codec.block_header import BlockHeader
from offload_core.codec.frames import FRAME_HEADER_BYTES
from offload_core.repair.evidence import Verdict


@dataclass(slots=True, kw_only=True)
class FoundFrame:
    """A frame: where it begins, the id that it has by itself, and its payload's bytes.

    Attributes:
        entry_id: as stored; −1 of something that should be a frame, and cannot be told apart.
        length: of the payload; found out where the stored one lies.
        is_linked: it begins where the one before it ends, or the block's header.
        is_exact: the stored length is right.
        size: bytes of the entry, where they are stored in another form.
    """

    offset: int
    entry_id: int
    length: int
    verdict: Verdict
    is_linked: bool
    is_exact: bool = True
    size: int | None = None

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.offset + FRAME_HEADER_BYTES + self.length


@dataclass(slots=True, kw_only=True)
class Stretch:
    """Frames of one block, or of what is left of one.

    Attributes:
        offset: where it begins.
        header: the block's; None if that is damaged or gone.
        header_bytes: what stands there, whatever it is; empty if it begins in the middle of a block.
        stop: where it ends, behind its padding.
        ends_well: a block's right end follows its last frame.
    """

    offset: int
    header: BlockHeader | None
    header_bytes: bytes = b""
    frames: list[FoundFrame] = field(default_factory=list)
    stop: int = 0
    ends_well: bool = False

    @property
    def begins_block(self) -> bool:
        """Whether it begins with a block."""
        return bool(self.header_bytes)
