"""libdeflate's functions by address, and what serves in their place where they cannot be found."""

from __future__ import annotations

import ctypes
import zlib
from random import Random

import numpy as np
import pytest
from effort import effort
from hypothesis import example, given
from hypothesis import strategies as st

from offload_core.format.codec.kernels import c_functions
from offload_core.format.codec.kernels import mapfile as kernels
from offload_core.format.codec.mapfile.record_batches import inflate, most_of
from offload_hooks.errors import DecompressionError

DAMAGE = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 255)), max_size=2)
CHECKSUM = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)


@pytest.fixture(scope="module", params=["libdeflate", "a build that hides its functions"])
def functions(request):
    cached = (c_functions._library, c_functions.crc32_address, c_functions.inflate_address)

    def forget():
        for each in cached:
            each.cache_clear()

    with pytest.MonkeyPatch.context() as patch:
        forget()
        if request.param != "libdeflate":
            patch.setattr(ctypes, "CDLL", lambda _: object())
        assert (c_functions._library() is None) == (request.param != "libdeflate")
        yield request.param
    forget()


DECOMPRESSOR = c_functions.Decompressor()


def inflated(streams, room, enough):
    """What the kernel makes of these streams."""
    window = np.frombuffer(b"before" + b"".join(streams), dtype=np.uint8)
    window.flags.writeable = False
    lengths = np.array([len(each) for each in streams], dtype=np.int64)
    offsets = 6 + np.cumsum(lengths) - lengths
    out, sizes = np.zeros(room, dtype=np.uint8), np.zeros(len(streams), dtype=np.int64)
    count = kernels.inflate_values(
        c_functions.inflate_address(),
        DECOMPRESSOR.address,
        window,
        offsets,
        lengths,
        enough,
        out,
        sizes,
        np.empty(2, dtype=np.uint64),
    )
    ends = np.cumsum(sizes[:count])
    return [out[end - size : end].tobytes() for end, size in zip(ends, sizes[:count], strict=True)]


def damaged(stream, damage, appended):
    changed = bytearray(stream)
    for at, bits in damage:
        changed[at % len(changed)] ^= bits
    return bytes(changed) + appended


def inflated_plainly(stream):
    """By the twin; None if it refuses the stream."""
    try:
        return inflate(stream, most_of(len(stream)))
    except DecompressionError:
        return None


@effort(2)  # the first one compiles
@given(
    st.lists(
        st.builds(
            damaged,
            st.builds(zlib.compress, st.binary(max_size=300), st.sampled_from([0, 1, 6, 9])),
            st.one_of(st.just([]), DAMAGE),
            st.sampled_from([b"", b"", b"", b"x"]),
        ),
        max_size=6,
    )
)
@example([zlib.compress(b"")])
@example([b""])
@pytest.mark.usefixtures("functions")
def test_streams_are_inflated_up_to_the_first_that_the_twin_refuses(streams):
    found = inflated(streams, 1 << 20, 1 << 20)
    assert found == [inflated_plainly(stream) for stream in streams[: len(found)]]
    if len(found) < len(streams):
        assert inflated_plainly(streams[len(found)]) is None


@pytest.mark.usefixtures("functions")
def test_no_more_is_inflated_than_there_is_room_for_or_than_is_enough():
    values = [Random(i).randbytes(100) for i in range(5)]
    streams = [zlib.compress(value) for value in values]
    assert inflated(streams, 500, 10_000) == values
    assert inflated(streams, 499, 10_000) == values[:4]
    assert inflated(streams, 99, 10_000) == []
    assert inflated(streams, 500, 200) == values[:2]
    assert inflated(streams, 500, 201) == values[:3]


@pytest.mark.usefixtures("functions")
@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 3000])
def test_the_checksum_is_the_one_of_zlib(length):
    data = Random(length).randbytes(length)
    assert CHECKSUM(c_functions.crc32_address())(0, data, length) == zlib.crc32(data)
    checksums = np.empty(-(-length // 512) * 4, dtype=np.uint8)
    kernels.make_checksums(c_functions.crc32_address(), np.frombuffer(data, dtype=np.uint8), 512, checksums)
    chunks = [data[at : at + 512] for at in range(0, length, 512)]
    assert checksums.tobytes() == b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)


@pytest.mark.parametrize("functions", ["libdeflate"], indirect=True)
@pytest.mark.usefixtures("functions")
def test_a_decompressor_is_freed_with_its_owner(monkeypatch):
    freed: list[int] = []
    library = c_functions._library()
    monkeypatch.setattr(library, "libdeflate_free_decompressor", freed.append)
    decompressor = c_functions.Decompressor()
    address = decompressor.address
    del decompressor
    assert freed == [address] != [0]


@pytest.mark.parametrize("functions", ["libdeflate"], indirect=True)
@pytest.mark.usefixtures("functions")
def test_a_decompressor_that_cannot_be_made_is_an_error(monkeypatch):
    monkeypatch.setattr(c_functions._library(), "libdeflate_alloc_decompressor", lambda: None)
    with pytest.raises(MemoryError, match="libdeflate"):
        c_functions.Decompressor()
