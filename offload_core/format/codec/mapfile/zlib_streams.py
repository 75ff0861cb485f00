"""zlib streams (Hadoop's `DefaultCodec`), bounded: no more is inflated than is asked for.

Bytes are deflated by zlib itself, at its default level, as Hadoop does: they are the same then. They are inflated by
isal, which is faster; many small streams by a kernel, `kernels.mapfile.inflate_values`.
"""

from __future__ import annotations

import zlib

from isal import igzip_lib, isal_zlib

from offload_core.format.codec.mapfile.fields import Buffer
from offload_hooks.errors import DecompressionError

MOST_PER_BYTE = 1032
"""One byte of a zlib stream gives at most so many."""

MAX_INFLATED_BYTES = (256 << 20) + 4
"""The most that a value may become: an entry of 256 MiB, with its length."""


def deflate(data: Buffer) -> bytes:
    """`data` as a zlib stream."""
    return zlib.compress(data)


def inflate(data: Buffer, most: int) -> bytes:
    """What the zlib stream `data` holds, which must be the whole of it.

    Raises:
        DecompressionError: broken, cut off, more than `most` bytes, or something behind it.
    """
    inflater = isal_zlib.decompressobj()
    try:
        inflated: bytes = inflater.decompress(data, most + 1)
    except isal_zlib.error as error:
        raise DecompressionError(f"a zlib stream is broken: {error}") from error
    if len(inflated) > most:
        raise DecompressionError("a zlib stream holds more than it may", expected=f"at most {most} bytes")
    if not inflater.eof or inflater.unused_data:
        raise DecompressionError(
            "a zlib stream does not end where it should",
            found=f"{len(inflater.unused_data)} bytes behind it"
            if inflater.eof
            else "a stream that is cut off",
        )
    return inflated


def most_of(stored_bytes: int) -> int:
    """The most that so many bytes of a zlib stream may become: what they can, but at most 256 MiB and a little."""
    return min(stored_bytes * MOST_PER_BYTE, MAX_INFLATED_BYTES)


class Inflater:
    """A zlib stream that is inflated bit by bit.

    `data` is the whole stream.
    """

    def __init__(self, data: Buffer) -> None:
        self._inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_ZLIB)
        self._data = data

    def read(self, length: int) -> bytes:
        """Exactly the next `length` bytes.

        Raises:
            DecompressionError: the stream is broken, or ends before.
        """
        parts = [part := self._decompress(length)]
        done = len(part)
        while done < length:
            part = self._decompress(length - done)
            if not part:
                raise DecompressionError(
                    "a zlib stream ends too early", expected=f"{length} bytes", found=f"{done} bytes"
                )
            parts.append(part)
            done += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def finish(self) -> None:
        """Check that the stream ends here, and its checksum.

        Raises:
            DecompressionError: it goes on, or something stands behind it.
        """
        more = self._decompress(1)
        if more or not self._inflater.eof or self._inflater.unused_data:
            raise DecompressionError("a zlib stream goes on behind what it must hold")

    def _decompress(self, length: int) -> bytes:
        if self._inflater.eof or not length:
            return b""
        data, self._data = self._data, b""
        try:
            inflated: bytes = self._inflater.decompress(data, length)
        except igzip_lib.error as error:
            raise DecompressionError(f"a zlib stream is broken: {error}") from error
        return inflated
