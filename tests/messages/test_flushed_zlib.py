"""ZLIB as Pulsar's Java client leaves it: a stream that is flushed and not finished, without an Adler-32."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from offload_core.format.messages.compression import decompress_into
from offload_hooks.errors import DecompressionError
from offload_proto.messages_pb2 import ZLIB

PAYLOAD = b"something that compresses, that compresses" * 3


def flushed(payload):
    """As `java.util.zip.Deflater` makes it with SYNC_FLUSH."""
    deflater = zlib.compressobj()
    return deflater.compress(payload) + deflater.flush(zlib.Z_SYNC_FLUSH)


def decompressed(stored, size):
    out = np.empty(size, dtype=np.uint8)
    decompress_into(ZLIB, stored, out)
    return out.tobytes()


@pytest.mark.parametrize("size", [1, 2, 100, 70_000, 1 << 20])
def test_a_flushed_stream_is_read(size):
    payload = (PAYLOAD * (size // len(PAYLOAD) + 1))[:size]
    assert decompressed(flushed(payload), size) == payload


def test_a_flushed_stream_that_is_cut_off_is_refused():
    stored = flushed(PAYLOAD)
    for length in range(len(stored)):
        with pytest.raises(DecompressionError):
            decompressed(stored[:length], len(PAYLOAD))


@pytest.mark.parametrize("declared", [0, 1, len(PAYLOAD) - 1, len(PAYLOAD) + 1, 1 << 20])
def test_a_flushed_stream_of_another_size_is_refused(declared):
    with pytest.raises(DecompressionError):
        decompressed(flushed(PAYLOAD), declared)
