"""Compression of payloads and records, and decompression into room of exactly the declared size, never more.

Pulsar's codecs: LZ4 raw blocks, zlib, zstd frames, raw snappy blocks. Source: docs/formats/entry.md.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import cramjam
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from offload_hooks.errors import DecompressionError


class Compression(enum.IntEnum):
    """`CompressionType` of Pulsar's message metadata."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


FLUSHED = b"\0\0\xff\xff"
"""The end of a zlib stream that is flushed and not finished, as Pulsar's Java client writes it: without an Adler-32."""

Buffer = npt.NDArray[np.uint8] | memoryview | bytes | bytearray


def decompress_into(compression: int, payload: Buffer, out: npt.NDArray[np.uint8]) -> None:
    """Decompress `payload` into `out` (uint8), which is as long as the payload declares to become.

    Raises:
        DecompressionError: an unknown codec, broken data, or another size than declared.
    """
    codec = _CODECS.get(compression)
    if codec is None:
        known = ", ".join(f"{known.value} {known.name}" for known in Compression)
        raise DecompressionError("a payload's compression is not known", expected=known, found=compression)
    if len(out) == len(payload) == 0:
        return  # an empty message that its client did not compress at all
    room = out if len(out) else np.empty(1, dtype=np.uint8)  # a codec must have somewhere to write
    try:
        size = codec(payload, room)
    except (cramjam.DecompressionError, isal_zlib.error, ValueError) as error:
        raise DecompressionError(
            f"a payload cannot be decompressed by {Compression(compression).name}: {error}",
            expected=f"{len(out)} bytes",
        ) from error
    if size != len(out):
        raise DecompressionError(
            f"a payload decompressed by {Compression(compression).name} to another size than declared",
            expected=f"{len(out)} bytes",
            found=f"{size} bytes",
        )


def compress(compression: Compression, payload: bytes) -> bytes:
    """Compress `payload` in the form that Pulsar reads; `Compression.NONE` gives it back."""
    return _COMPRESSORS[compression](payload)


def _zlib(payload: Buffer, out: npt.NDArray[np.uint8]) -> int:
    inflater = isal_zlib.decompressobj()
    # One byte more than declared shows a payload that goes on; memory stays bounded.
    inflated = inflater.decompress(payload, len(out) + 1)
    if not inflater.eof and len(inflated) <= len(out) and bytes(payload[-4:]) != FLUSHED:
        raise ValueError("the stream is cut off")
    out[: len(inflated)] = np.frombuffer(inflated, dtype=np.uint8)[: len(out)]
    return len(inflated)


def _lz4(payload: Buffer, out: npt.NDArray[np.uint8]) -> int:
    return int(cramjam.lz4.decompress_block_into(payload, out, output_len=len(out)))


def _zstd(payload: Buffer, out: npt.NDArray[np.uint8]) -> int:
    return int(cramjam.zstd.decompress_into(payload, out))


def _snappy(payload: Buffer, out: npt.NDArray[np.uint8]) -> int:
    return int(cramjam.snappy.decompress_raw_into(payload, out))


_CODECS: dict[int, Callable[[Buffer, npt.NDArray[np.uint8]], int]] = {
    Compression.LZ4: _lz4,
    Compression.ZLIB: _zlib,
    Compression.ZSTD: _zstd,
    Compression.SNAPPY: _snappy,
}

_COMPRESSORS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: bytes,
    Compression.LZ4: lambda payload: bytes(cramjam.lz4.compress_block(payload, store_size=False)),
    Compression.ZLIB: lambda payload: bytes(isal_zlib.compress(payload)),
    Compression.ZSTD: lambda payload: bytes(cramjam.zstd.compress(payload)),
    Compression.SNAPPY: lambda payload: bytes(cramjam.snappy.compress_raw(payload)),
}
