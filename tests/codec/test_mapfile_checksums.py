"""`.crc` files: what is covered is verified, by whole files and by the windows of a stretch."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.mapfile.crc_files import (
    CHECKSUM_BYTES,
    CHUNK_BYTES,
    HEAD_BYTES,
    ChecksumVerifier,
    checksums_length,
    make_checksums,
    parse_checksum_head,
    verify_whole,
)
from offload_hooks.errors import BadLengthError, BadMagicError, ChecksumError

DATA = Random(5).randbytes(3000)


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 1024, 3000])
def test_what_is_made_is_verified(length):
    checksums = make_checksums(DATA[:length])
    assert len(checksums) == checksums_length(length)
    verify_whole(DATA[:length], checksums)


def test_a_changed_byte_anywhere_is_found_and_its_chunk_named():
    checksums = make_checksums(DATA)
    for at in range(0, len(DATA), 7):
        changed = bytearray(DATA)
        changed[at] ^= 1
        with pytest.raises(ChecksumError) as caught:
            verify_whole(changed, checksums)
        assert caught.value.offset == at // CHUNK_BYTES * CHUNK_BYTES


@pytest.mark.parametrize("chunk_bytes", [0, -1, (1 << 20) + 1])
def test_chunks_of_no_possible_size_are_refused(chunk_bytes):
    with pytest.raises(BadLengthError, match="chunks"):
        parse_checksum_head(b"crc\0" + chunk_bytes.to_bytes(4, "big", signed=True))
    with pytest.raises(BadMagicError):
        parse_checksum_head(b"CRC\0\0\0\2\0")


def run(data, begin, end, steps):
    """Windows of these sizes over `data[begin:end]`, each beginning so many bytes before the last one's end."""
    first, last = begin // CHUNK_BYTES, -(-end // CHUNK_BYTES)
    part = make_checksums(DATA)[HEAD_BYTES + first * CHECKSUM_BYTES : HEAD_BYTES + last * CHECKSUM_BYTES]
    verify = ChecksumVerifier(
        checksums=memoryview(part), chunk_bytes=CHUNK_BYTES, begin=first * CHUNK_BYTES, data_length=len(DATA)
    )
    at = begin
    for size, back in steps:
        start = max(begin, at - back)
        at = min(end, start + size)
        verify.update(data[start:at], start)
    verify.update(data[at:end], at)


@given(
    st.integers(0, len(DATA) - 1),
    st.integers(1, len(DATA)),
    st.lists(st.tuples(st.integers(1, 900), st.integers(0, 300)), max_size=12),
    st.integers(0, len(DATA) - 1),
)
def test_exactly_the_chunks_that_come_by_whole_are_verified(begin, length, steps, wrong):
    end = min(len(DATA), begin + length)
    run(DATA, begin, end, steps)
    changed = bytearray(DATA)
    changed[wrong] ^= 0x40
    chunk = wrong // CHUNK_BYTES * CHUNK_BYTES
    if begin <= chunk and min(chunk + CHUNK_BYTES, len(DATA)) <= end:
        with pytest.raises(ChecksumError) as caught:
            run(bytes(changed), begin, end, steps)
        assert caught.value.offset == chunk
    else:
        run(bytes(changed), begin, end, steps)
