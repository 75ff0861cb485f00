"""The entry directory: places of some entries of a data object, so that a random read need not walk a whole block.

Our own, after the last block of a PIP-17 index, where Pulsar's reader does not look; it is an aid and nothing else: a
reader without it, or of a damaged one, walks from a block's beginning. Source: docs/formats/entry-directory.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from offload_core.format.codec.arrays import Longs
from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES
from offload_core.format.codec.crc32c import crc32c
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    ChecksumError,
    EntryOrderError,
    TruncatedError,
    UnsupportedVersionError,
)

DIRECTORY_MAGIC = 0x504F4544
VERSION = 1
STRIDE_BYTES = 1 << 20
"""Distance in bytes: the directory has the first entry that begins in each such part of a data object."""

_HEAD = struct.Struct(">III")
_CHECKSUM = struct.Struct(">I")
_ANCHOR_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryPlace:
    """The place of the directory in its index object: `length` bytes from `offset` on."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """Entries of a ledger whose frames' places in the data object are known, both ascending (int64, equally long)."""

    entry_ids: Longs
    offsets: Longs

    def before(self, entry_id: int) -> tuple[int, int] | None:
        """The last of them up to `entry_id`, as (entry id, offset); None if there is none."""
        at = int(np.searchsorted(self.entry_ids, entry_id, side="right")) - 1
        return None if at < 0 else (int(self.entry_ids[at]), int(self.offsets[at]))

    def behind(self, entry_id: int) -> int | None:
        """The offset of the first of them after `entry_id`; None if there is none."""
        at = int(np.searchsorted(self.entry_ids, entry_id, side="right"))
        return None if at == len(self.offsets) else int(self.offsets[at])

    def joined(self, other: Anchors) -> Anchors:
        """Those of both."""
        if not len(self.entry_ids):
            return other
        entry_ids, first = np.unique(np.concatenate([self.entry_ids, other.entry_ids]), return_index=True)
        return Anchors(entry_ids=entry_ids, offsets=np.concatenate([self.offsets, other.offsets])[first])


def no_anchors() -> Anchors:
    """None is known."""
    return Anchors(entry_ids=np.empty(0, dtype=np.int64), offsets=np.empty(0, dtype=np.int64))


def first_of_each_stride(
    entry_ids: Longs, offsets: Longs, stride_bytes: int, last_offset: int | None = None
) -> Anchors:
    """Of entries that follow one another, with their frames' places: the first that begins in each stride.

    `last_offset` is the place of the entry before them, if there is one.
    """
    strides = offsets // stride_bytes
    before = -1 if last_offset is None else last_offset // stride_bytes
    chosen = np.flatnonzero(np.diff(strides, prepend=before))
    return Anchors(entry_ids=entry_ids[chosen], offsets=offsets[chosen])


def pack_directory(anchors: Anchors) -> bytes:
    """Encode a directory."""
    pairs = np.column_stack([anchors.entry_ids, anchors.offsets]).astype(">i8").tobytes()
    body = _HEAD.pack(DIRECTORY_MAGIC, VERSION, len(anchors.entry_ids)) + pairs
    return body + _CHECKSUM.pack(crc32c(body))


def find_directory(index: bytes | memoryview, offset: int) -> DirectoryPlace | None:
    """The place of an index object's directory, whose last block ends at `offset`; None if it has none.

    Other bytes there are not read.
    """
    if len(index) - offset < _HEAD.size or _HEAD.unpack_from(index, offset)[0] != DIRECTORY_MAGIC:
        return None
    return DirectoryPlace(offset=offset, length=len(index) - offset)


def parse_directory(data: bytes | memoryview, data_length: int) -> Anchors:
    """Decode a directory, of a data object of `data_length` bytes.

    Raises:
        UnsupportedVersionError: a newer one.
        FormatError: it is damaged.
    """
    if len(data) < _HEAD.size:
        raise TruncatedError("an entry directory is cut off", expected=f"{_HEAD.size} bytes", found=len(data))
    magic, version, count = _HEAD.unpack_from(data)
    if magic != DIRECTORY_MAGIC:
        raise BadMagicError(
            "this is not an entry directory", expected=f"{DIRECTORY_MAGIC:08X}", found=f"{magic:08X}"
        )
    if version != VERSION:
        raise UnsupportedVersionError(
            "an entry directory has a version that is not known", expected=VERSION, found=version
        )
    end = _HEAD.size + count * _ANCHOR_BYTES
    if len(data) != end + _CHECKSUM.size:
        raise BadLengthError(
            "an entry directory is not as long as it declares",
            expected=f"{end + _CHECKSUM.size} bytes for {count} entries",
            found=len(data),
        )
    (checksum,) = _CHECKSUM.unpack_from(data, end)
    found = crc32c(data[:end])
    if found != checksum:
        raise ChecksumError(
            "an entry directory does not match its checksum", expected=f"{checksum:08x}", found=f"{found:08x}"
        )
    pairs = np.frombuffer(data, dtype=">i8", count=2 * count, offset=_HEAD.size).astype(np.int64)
    entry_ids, offsets = pairs[::2].copy(), pairs[1::2].copy()
    if count and not (
        entry_ids[0] >= 0
        and offsets[0] >= BLOCK_HEADER_BYTES
        and offsets[-1] < data_length
        and bool((np.diff(entry_ids) > 0).all())
        and bool((np.diff(offsets) > 0).all())
    ):
        raise EntryOrderError(
            "the entries of an entry directory do not ascend, or lie outside of their object"
        )
    return Anchors(entry_ids=entry_ids, offsets=offsets)
