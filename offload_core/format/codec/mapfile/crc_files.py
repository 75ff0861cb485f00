"""The `.crc` file that Hadoop keeps beside a file on a local root: a CRC-32 of each 512 bytes.

`crc` NUL, i32 bytes per checksum, then an u32 for each chunk, the last of which may be shorter. Source:
docs/formats/mapfile.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from isal import isal_zlib

from offload_core.format.codec.arrays import Bytes, read_only
from offload_core.format.codec.kernels import mapfile as kernels
from offload_core.format.codec.kernels.c_functions import crc32_address
from offload_core.format.codec.mapfile.sequence_file import Buffer
from offload_hooks.errors import BadLengthError, BadMagicError, ChecksumError, TruncatedError

CHUNK_BYTES = 512
"""What Hadoop covers by one checksum."""

HEAD_BYTES = 8
CHECKSUM_BYTES = 4

MAX_CHUNK_BYTES = 1 << 20
"""A file of checksums whose chunks are longer is refused."""

_MAGIC = b"crc\0"
_HEAD = struct.Struct(">4si")


def make_checksums(data: Buffer) -> bytes:
    """The `.crc` file of a file."""
    sums = _checksums_of(read_only(data), CHUNK_BYTES, -(-len(data) // CHUNK_BYTES))
    return _HEAD.pack(_MAGIC, CHUNK_BYTES) + sums.tobytes()


def parse_checksum_head(data: Buffer) -> int:
    """Bytes per checksum, by the beginning of a `.crc` file.

    Raises:
        TruncatedError, BadMagicError, BadLengthError: it is none.
    """
    if len(data) < HEAD_BYTES:
        raise TruncatedError(
            "a .crc file is cut off", offset=0, expected=f"{HEAD_BYTES} bytes", found=len(data)
        )
    magic, chunk_bytes = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise BadMagicError("this is not a .crc file", offset=0, expected=_MAGIC.hex(), found=magic.hex())
    if not 0 < chunk_bytes <= MAX_CHUNK_BYTES:
        raise BadLengthError(
            "a .crc file has chunks of no such size",
            offset=4,
            expected=f"1 to {MAX_CHUNK_BYTES} bytes",
            found=chunk_bytes,
        )
    return int(chunk_bytes)


def checksums_length(data_length: int, chunk_bytes: int = CHUNK_BYTES) -> int:
    """Bytes of the `.crc` file of a file of `data_length` bytes."""
    return HEAD_BYTES + -(-data_length // chunk_bytes) * CHECKSUM_BYTES


def verify_whole(data: Buffer, checksums: Buffer) -> None:
    """Verify a whole file by its `.crc` file.

    Raises:
        ChecksumError: bytes that are not those that were written; names the chunk's byte.
        FormatError: the `.crc` file is none, or not of this file's length.
    """
    chunk_bytes = parse_checksum_head(checksums)
    expected = checksums_length(len(data), chunk_bytes)
    if len(checksums) != expected:
        raise BadLengthError(
            "a .crc file does not cover its file", expected=f"{expected} bytes", found=len(checksums)
        )
    verifier = ChecksumVerifier(
        checksums=memoryview(checksums)[HEAD_BYTES:], chunk_bytes=chunk_bytes, begin=0, data_length=len(data)
    )
    verifier.update(data, 0)


@dataclass(slots=True, kw_only=True)
class ChecksumVerifier:
    """Verifies a stretch of a file by its checksums, as its bytes come by.

    Args:
        checksums: those of the chunks from the file's byte `begin` on, which is a chunk's begin.
        data_length: of the whole file.

    Only chunks that come by whole are verified. Bytes may come by again; a gap drops the chunks that it touches.
    """

    checksums: memoryview
    chunk_bytes: int
    begin: int
    data_length: int
    _position: int = -1
    _crc: int = 0
    _is_whole: bool = False

    def update(self, data: Buffer, offset: int) -> None:
        """The file's bytes `data` come by, from its byte `offset` on.

        Raises:
            ChecksumError: a chunk's bytes are not those that were written.
        """
        view = memoryview(data)
        end = offset + len(view)
        if not offset <= self._position:
            self._position, self._crc, self._is_whole = offset, 0, False
        size = self.chunk_bytes
        while self._position < end:
            if self._position % size == 0:
                self._crc, self._is_whole = 0, True
                self._position += self._verify_many(view[self._position - offset :]) * size
                if self._position == end:
                    return
            chunk_end = min(self._position - self._position % size + size, self.data_length)
            stop = min(chunk_end, end)
            self._crc = isal_zlib.crc32(view[self._position - offset : stop - offset], self._crc)
            self._position = stop
            if stop == chunk_end and self._is_whole:
                self._compare((stop - 1) // size * size, self._crc)

    def _verify_many(self, view: memoryview) -> int:
        """Verify the whole chunks at the start of `view`, which is where `_position` is; how many they are."""
        size = self.chunk_bytes
        count = len(view) // size
        found = _checksums_of(read_only(view), size, count)
        first = (self._position - self.begin) // size * CHECKSUM_BYTES
        if found.tobytes() != self.checksums[first : first + len(found)]:
            for i in range(count):
                crc = int.from_bytes(found[i * CHECKSUM_BYTES : (i + 1) * CHECKSUM_BYTES], "big")
                self._compare(self._position + i * size, crc)
        return count

    def _compare(self, chunk: int, crc: int) -> None:
        at = (chunk - self.begin) // self.chunk_bytes * CHECKSUM_BYTES
        stored = int.from_bytes(self.checksums[at : at + CHECKSUM_BYTES], "big")
        if at + CHECKSUM_BYTES > len(self.checksums) or stored != crc:
            raise ChecksumError(
                "the CRC-32 of a chunk is not that of its .crc file",
                offset=chunk,
                expected=f"{stored:08x}",
                found=f"{crc:08x}",
            )


def _checksums_of(data: Bytes, chunk_bytes: int, count: int) -> Bytes:
    """The CRC-32 of each of the first `count` chunks, as a `.crc` file has them."""
    checksums = np.empty(count * CHECKSUM_BYTES, dtype=np.uint8)
    kernels.make_checksums(crc32_address(), data, chunk_bytes, checksums)
    return checksums
