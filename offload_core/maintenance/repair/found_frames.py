"""Bytes of a damaged object, the verdict on an entry, and the frames that a scan finds.

Pulsar's entries mostly have a CRC-32C over all but a broker's own metadata. One without it may have changed; whether it
can be parsed at all is some evidence, in objects whose other entries can."""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass, field
from functools import partial

from offload_core.format.codec.block_layout import FRAME_HEADER_BYTES, BlockHeader
from offload_core.format.messages.checksum import crc32c
from offload_core.format.messages.entry import CHECKSUM_MAGIC, skip_broker_metadata, split_entry
from offload_core.storage.tier import Tier
from offload_hooks.bounded_cache import BoundedCache
from offload_hooks.errors import FormatError

CHUNK_BYTES = 4 << 20
_CHUNKS_KEPT = 8


class ObjectBytes:
    """An object of `size` bytes; used by one thread. Errors are the store's."""

    def __init__(self, tier: Tier, key: str, size: int, *, chunk_bytes: int = CHUNK_BYTES) -> None:
        self._tier = tier
        self.key = key
        self.size = size
        self._chunk_bytes = chunk_bytes
        self._chunks: BoundedCache[int, memoryview] = BoundedCache(_CHUNKS_KEPT)

    def read(self, offset: int, length: int) -> bytes:
        """Bytes from `offset` on, fewer where the object ends."""
        stop = min(offset + length, self.size)
        if stop <= offset:
            return b""
        parts = []
        while offset < stop:
            number = offset // self._chunk_bytes
            begin = number * self._chunk_bytes
            length_of_chunk = min(self._chunk_bytes, self.size - begin)
            chunk = self._chunks.load(
                number, partial(self._tier.read_range, self.key, begin, length_of_chunk)
            )
            parts.append(chunk[offset - begin : stop - begin])
            offset = begin + len(chunk)
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


_CHECKSUM_HEAD_BYTES = 6


class EntryVerdict(enum.Enum):
    """Certainty of an entry's bytes."""

    SOUND = "sound"
    """Its checksum matches."""
    PLAIN = "plain"
    """It has no checksum, and nothing speaks against it."""
    UNSURE = "unsure"
    """It has no checksum, and cannot be parsed, though other entries of its object can."""
    BAD = "bad"
    """Its checksum does not match."""


def judge(entry: bytes, *, are_pulsars: bool) -> EntryVerdict:
    """Return what is to be thought of an entry; `are_pulsars` if the object has entries of Pulsar's."""
    try:
        start = skip_broker_metadata(entry)
    except FormatError:
        return EntryVerdict.UNSURE if are_pulsars else EntryVerdict.PLAIN
    if len(entry) - start >= _CHECKSUM_HEAD_BYTES:
        magic, stored = struct.unpack_from(">HI", entry, start)
        if magic == CHECKSUM_MAGIC:
            found = crc32c(entry[start + _CHECKSUM_HEAD_BYTES :])
            return EntryVerdict.SOUND if found == stored else EntryVerdict.BAD
    return EntryVerdict.PLAIN if not are_pulsars or can_be_parsed(entry) else EntryVerdict.UNSURE


def can_be_parsed(entry: bytes) -> bool:
    """Return whether it is an entry of Pulsar's, by its form."""
    try:
        split_entry(entry)
    except FormatError:
        return False
    return True


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
    verdict: EntryVerdict
    is_linked: bool
    is_exact: bool = True
    size: int | None = None

    @property
    def end(self) -> int:
        """Return where the next one begins."""
        return self.offset + FRAME_HEADER_BYTES + self.length


@dataclass(slots=True, kw_only=True)
class BlockFrames:
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
        """True if it begins with a block."""
        return bool(self.header_bytes)
