"""The checksum file: CRC-32C of an offloaded object's blocks and index, in a small object beside the two.

A format of our own, which no reader needs. It shows whether bytes are those that were written, also where the format of
blocks and indexes has no checksum. Source: docs/formats/block-checksums.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Longs
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.index import ObjectIndex
from offload_core.format.codec.mapfile.sequence_file import Buffer
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    ChecksumError,
    TruncatedError,
    UnsupportedVersionError,
)

MAGIC = 0x504F4353
VERSION = 1
_HEAD = struct.Struct(">IIqqII")
_CHECKSUM = struct.Struct(">I")
_LINE = np.dtype([("length", ">i8"), ("crc", ">u4")])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockChecksums:
    """Lengths and checksums of an attempt's two objects.

    Attributes:
        lengths: of each block of the data object, as they follow one another from byte 0 on (int64); of a MapFile, of
            each stretch.
        crcs: the CRC-32C of each (uint32).
    """

    index_length: int
    index_crc: int
    lengths: Longs
    crcs: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, index_length: int, index_crc: int, blocks: Sequence[tuple[int, int]]) -> BlockChecksums:
        """Given length and CRC-32C of each block."""
        return cls._of_lines(index_length, index_crc, np.array(blocks, dtype=_LINE))

    @classmethod
    def _of_lines(cls, index_length: int, index_crc: int, lines: npt.NDArray[np.void]) -> BlockChecksums:
        return cls(
            index_length=index_length,
            index_crc=index_crc,
            lengths=lines["length"].astype(np.int64),
            crcs=lines["crc"].astype(np.uint32),
        )

    @property
    def data_length(self) -> int:
        """Of the data object: all blocks together."""
        # In halves: the sum of forged lengths can have more than 64 bits.
        return (int((self.lengths >> 32).sum()) << 32) + int((self.lengths & 0xFFFFFFFF).sum())


def packed_length(blocks: int) -> int:
    """Length in bytes of a checksum file for `blocks` blocks."""
    return _HEAD.size + blocks * _LINE.itemsize + _CHECKSUM.size


def pack_block_checksums(checksums: BlockChecksums) -> bytes:
    """Encode them."""
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        checksums.data_length,
        checksums.index_length,
        checksums.index_crc,
        len(checksums.lengths),
    )
    lines = np.empty(len(checksums.lengths), _LINE)
    lines["length"], lines["crc"] = checksums.lengths, checksums.crcs
    body = head + lines.tobytes()
    return body + _CHECKSUM.pack(crc32c(body))


def parse_block_checksums(data: Buffer) -> BlockChecksums:
    """Decode them.

    Raises:
        UnsupportedVersionError: a newer version.
        FormatError: they are damaged.
    """
    if len(data) < _HEAD.size:
        raise TruncatedError("block checksums are cut off", expected=f"{_HEAD.size} bytes", found=len(data))
    magic, version, data_length, index_length, index_crc, count = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise BadMagicError(
            "these are no block checksums", offset=0, expected=f"{MAGIC:08X}", found=f"{magic:08X}"
        )
    if version != VERSION:
        raise UnsupportedVersionError(
            "block checksums have a version that is not known", offset=4, expected=VERSION, found=version
        )
    if len(data) != packed_length(count):
        raise BadLengthError(
            "block checksums are not as long as they declare",
            offset=28,
            expected=f"{packed_length(count)} bytes for {count} blocks",
            found=len(data),
        )
    end = len(data) - _CHECKSUM.size
    (stored,), found = _CHECKSUM.unpack_from(data, end), crc32c(memoryview(data)[:end])
    if stored != found:
        raise ChecksumError(
            "block checksums do not match their own checksum", expected=f"{stored:08x}", found=f"{found:08x}"
        )
    lines = np.frombuffer(data, dtype=_LINE, count=count, offset=_HEAD.size)
    if index_length < 0 or (count and int(lines["length"].min()) < 1):
        raise BadLengthError("block checksums have a length that nothing has", offset=8)
    checksums = BlockChecksums._of_lines(index_length, index_crc, lines)
    if checksums.data_length != data_length:
        raise BadLengthError(
            "block checksums do not cover their data object",
            offset=8,
            expected=f"{data_length} bytes",
            found=checksums.data_length,
        )
    return checksums


def block_lengths_of(index: ObjectIndex) -> Longs:
    """The lengths of a data object's blocks as they follow one another (int64), whichever ledgers they are of."""
    offsets = np.concatenate([ledger.blocks.offsets for ledger in index.ledgers])
    lengths = np.concatenate([ledger.blocks.lengths for ledger in index.ledgers])
    return lengths[np.argsort(offsets, kind="stable")]


class RunningChecksums:
    """The CRC-32C of blocks whose bytes come by.

    Args:
        lengths: of the blocks, as they follow one another from the object's byte 0 on.

    Bytes of a block come by in order, and may come by again. A gap drops the block in which it ends, if it does not end
    where a block begins.
    """

    def __init__(self, lengths: Sequence[int] | Longs) -> None:
        self._borders: npt.NDArray[np.int64] = np.concatenate(
            [[0], np.cumsum(np.asarray(lengths, np.int64))]
        ).astype(np.int64)
        self._position = -1
        self._crc = 0
        self._is_whole = False

    def offset(self, block: int) -> int:
        """The place where a block begins, by its number from 0 on."""
        return int(self._borders[block])

    def rewind(self) -> None:
        """Accept bytes of any place next."""
        self._position, self._is_whole = -1, False

    def update(self, data: Buffer, offset: int) -> Iterator[tuple[int, int]]:
        """The object's bytes `data` come by, from its byte `offset` on; number and checksum of each block that ends."""
        end = min(offset + len(data), int(self._borders[-1]))
        view = memoryview(data)
        if not offset <= self._position:
            self._position, self._is_whole = offset, False
        while self._position < end:
            block = int(np.searchsorted(self._borders, self._position, side="right")) - 1
            if self._position == self._borders[block]:
                self._crc, self._is_whole = 0, True
            stop = min(end, int(self._borders[block + 1]))
            self._crc = crc32c(view[self._position - offset : stop - offset], self._crc)
            self._position = stop
            if stop == self._borders[block + 1] and self._is_whole:
                yield block, self._crc
