"""Payloads decompressed by C functions, all at once: what the codecs make of them one by one, or left to these."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from effort import effort
from entries import batch_entry
from hypothesis import example, given
from hypothesis import strategies as st
from scenes.messages import decoded_rows, reference_rows

from offload_core.format.codec.kernels import c_functions
from offload_core.format.messages import payload_opener as decompressors
from offload_core.format.messages.compression import Compression, compress, decompress_into
from offload_core.format.messages.payload_opener import LEFT_ALONE, decompress_payloads
from offload_hooks.errors import DecompressionError

SHOWN = (Compression.LZ4, Compression.ZLIB, Compression.ZSTD)
VALUES = st.one_of(st.binary(max_size=40), st.integers(0, 3000).map(lambda n: b"offloaded" * n))
DAMAGE = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=1)


@pytest.fixture(scope="module", params=["a build that shows them", "a build that hides them"])
def functions(request):
    cached = (decompressors._lz4, decompressors._zstd, c_functions._library, c_functions.inflate_address)

    def forget():
        for each in cached:
            each.cache_clear()
        decompressors._threads.__dict__.clear()

    with pytest.MonkeyPatch.context() as patch:
        forget()
        if request.param == "a build that hides them":
            patch.setattr(ctypes, "CDLL", lambda _: object())
        yield request.param
    forget()


def decompressed(stored, scratch):
    """What is made of payloads (codec, bytes, size to become), and which of them are left."""
    block = np.frombuffer(b"before" + b"".join(data for _, data, _ in stored), dtype=np.uint8)
    block.flags.writeable = False
    lengths = np.array([len(data) for _, data, _ in stored], dtype=np.int64)
    sizes = np.array([size for _, _, size in stored], dtype=np.int64)
    places = np.cumsum(sizes) - sizes
    codecs = np.array([codec for codec, _, _ in stored], dtype=np.int64)
    starts = 6 + np.cumsum(lengths) - lengths
    left = decompress_payloads(block, starts, lengths, codecs, scratch, places, sizes)
    made = [scratch[at : at + size].tobytes() for at, size in zip(places, sizes, strict=True)]
    return made, left.tolist()


def plainly(codec, data, size):
    """By the codec itself; None if it refuses."""
    out = np.empty(size, dtype=np.uint8)
    try:
        decompress_into(codec, data, out)
    except DecompressionError:
        return None
    return out.tobytes()


def payload(codec, value, damage, appended, more):
    """A payload as it is stored, damaged or not, and the size that is declared for it."""
    data = bytearray(compress(codec, value))
    for at, bits in damage:
        data[at % len(data)] ^= bits
    return codec, bytes(data) + appended, max(0, len(value) + more)


@effort(2)  # the first one compiles
@given(
    st.lists(
        st.builds(
            payload,
            st.sampled_from([*SHOWN, Compression.SNAPPY]),
            VALUES,
            st.one_of(st.just([]), DAMAGE),
            st.sampled_from([b"", b"", b"", b"x"]),
            st.sampled_from([0, 0, 0, 0, -1, 1]),
        ),
        max_size=6,
    )
)
@example([(Compression.LZ4, b"", 0), (Compression.ZSTD, b"", 5), (9, b"abc", 3)])
@pytest.mark.usefixtures("functions")
def test_what_is_decompressed_is_what_the_codec_makes_and_the_rest_is_left_to_it(stored):
    room = sum(size for _, _, size in stored)
    scratch = np.full(room + 16, 0xA5, dtype=np.uint8)
    made, left = decompressed(stored, scratch)
    assert scratch[room:].tobytes() == b"\xa5" * 16
    for i, (codec, data, size) in enumerate(stored):
        if i not in left:
            assert plainly(codec, data, size) == made[i]


def test_only_what_has_no_function_or_is_not_right_is_left(functions):
    good = [(codec, compress(codec, bytes(range(256)) * 40), 10240) for codec in SHOWN]
    snappy = (Compression.SNAPPY, compress(Compression.SNAPPY, b"a" * 100), 100)
    alone = (LEFT_ALONE, good[0][1], 10240)
    short = (Compression.LZ4, good[0][1], 10239)
    _, left = decompressed([*good, snappy, alone, short], np.empty(70_000, dtype=np.uint8))
    assert left == [3, 4, 5] if functions == "a build that shows them" else [0, 2, 3, 4, 5]


@pytest.mark.usefixtures("functions")
def test_no_payload_is_read_or_written_out_of_bounds():
    data = compress(Compression.LZ4, b"a" * 1000)
    block = np.frombuffer(data, dtype=np.uint8)
    block.flags.writeable = False

    def left(start, length, place, size):
        numbers = (np.array([each], dtype=np.int64) for each in (start, length, Compression.LZ4, place, size))
        starts, lengths, codecs, places, sizes = numbers
        scratch = np.empty(1000, dtype=np.uint8)
        return decompress_payloads(block, starts, lengths, codecs, scratch, places, sizes).tolist()

    for start, length, place, size in (
        (1, len(data), 0, 1000),
        (-1, len(data), 0, 1000),
        (0, -1, 0, 1000),
        (0, len(data), 1, 1000),
        (0, len(data), -1, 1000),
        (0, len(data), 0, -1),
        (0, 2**62, 0, 2**62),
    ):
        assert left(start, length, place, size) == [0]


@pytest.mark.usefixtures("functions")
def test_batches_of_every_codec_are_what_the_twin_reads():
    stored = [
        batch_entry([b"value" * i for i in range(50)], compression=codec)
        for codec in (*Compression, *Compression)
    ]
    assert decoded_rows(stored) == reference_rows(stored)


@pytest.mark.usefixtures("functions")
def test_threads_do_not_disturb_each_other():
    values = [bytes([i]) * (5000 + i) for i in range(64)]

    def read(codec):
        stored = [(codec, compress(codec, value), len(value)) for value in values]
        made, left = decompressed(stored, np.empty(400_000, dtype=np.uint8))
        return all(made[i] == value for i, value in enumerate(values) if i not in left)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, SHOWN * 8))
