"""Block checksums: their bytes, everything that can be wrong with them, and how they are taken as bytes come by."""

from __future__ import annotations

from itertools import accumulate, pairwise
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.block_checksums import (
    BlockChecksums,
    RunningChecksums,
    crc32c,
    pack_block_checksums,
    parse_block_checksums,
)
from offload_core.format.codec.object_format import parse_block_checksums_key, parse_key
from offload_hooks.errors import BadLengthError, UnsupportedVersionError

BYTES = (Path(__file__).parents[1] / "docs" / "block-checksums-v1.bin").read_bytes()
UUID = "00000000-1111-4222-8333-00000000000c"


@given(
    st.integers(0, 2**62),
    st.integers(0, 2**32 - 1),
    st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 2**32 - 1)), max_size=20),
)
def test_they_come_back_as_they_were(index_length, crc, blocks):
    packed = pack_block_checksums(BlockChecksums.of(index_length, crc, blocks))
    read = parse_block_checksums(packed)
    assert (read.index_length, read.index_crc) == (index_length, crc)
    assert list(zip(read.lengths.tolist(), read.crcs.tolist(), strict=True)) == blocks
    assert read.data_length == sum(length for length, _ in blocks)


def resealed(body):
    return body + google_crc32c.value(body).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("offset", "value", "error"),
    [
        (7, b"\2", UnsupportedVersionError),
        (15, b"\0", BadLengthError),
        (16, b"\xff", BadLengthError),
        (31, b"\1", BadLengthError),
        (32, b"\xff", BadLengthError),
        (32, bytes(8), BadLengthError),
    ],
)
def test_what_contradicts_itself_is_refused_though_its_checksum_is_right(offset, value, error):
    body = BYTES[:-4]
    with pytest.raises(error):
        parse_block_checksums(resealed(body[:offset] + value + body[offset + len(value) :]))


def test_the_checksum_of_nothing_is_that_of_what_was_before():
    assert (crc32c(b""), crc32c(b"", 5), crc32c(memoryview(b"6789"), crc32c(b"12345"))) == (0, 5, 0xE3069283)


# --- as bytes come by ------------------------------------------------------------------------------

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=8)


def blocks_of(lengths):
    borders = [0, *accumulate(lengths)]
    data = bytes(i * 7 % 251 for i in range(borders[-1]))
    return [data[begin:end] for begin, end in pairwise(borders)]


@given(LENGTHS, st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10))))
def test_each_block_is_summed_up_once_however_its_bytes_come(lengths, windows):
    blocks = blocks_of(lengths)
    data, running, reached, found = b"".join(blocks), RunningChecksums(lengths), 0, []
    for length, again in [*windows, *[(10, 3)] * len(b"".join(blocks))]:
        begin = max(reached - again, 0)
        found += running.update(memoryview(data)[begin : reached + length], begin)
        reached = max(reached, min(reached + length, len(data)))
    assert found == [(number, google_crc32c.value(block)) for number, block in enumerate(blocks)]


@given(LENGTHS, st.data())
def test_a_block_of_which_bytes_are_missing_is_not_summed_up(lengths, draw):
    blocks = blocks_of(lengths)
    data, running = b"".join(blocks), RunningChecksums(lengths)
    begin = draw.draw(st.integers(0, len(data) - 1))
    end = draw.draw(st.integers(begin + 1, len(data)))
    found = [*running.update(data[:begin], 0), *running.update(data[end:], end)]
    borders = [0, *accumulate(lengths)]
    assert found == [
        (number, google_crc32c.value(blocks[number]))
        for number, (first, last) in enumerate(pairwise(borders))
        if last <= begin or first >= end
    ]


def test_what_comes_before_is_summed_up_after_going_back():
    blocks = blocks_of([4, 5])
    running = RunningChecksums([4, 5])
    assert list(running.update(blocks[1], 4)) == [(1, google_crc32c.value(blocks[1]))]
    assert list(running.update(blocks[0], 0)) == []
    running.rewind()
    assert list(running.update(blocks[0], 0)) == [(0, google_crc32c.value(blocks[0]))]


# --- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_key", "key"),
    [
        (f"{UUID}-ledger-7", f"{UUID}-ledger-7-checksums"),
        (f"a/{UUID}", f"a/{UUID}-checksums"),
        (f"t/n/persistent/topic/7-{UUID}/data", f"t/n/persistent/topic/7-{UUID}/_checksums"),
    ],
)
def test_the_key_tells_of_which_object_they_are(data_key, key):
    of = parse_key(data_key)
    assert (of.block_checksums_key, parse_block_checksums_key(key), parse_key(key)) == (key, of, None)
    assert of.block_checksums_key in of.companion_keys


@pytest.mark.parametrize(
    "key",
    [
        f"{UUID}-ledger-7",
        f"{UUID}-ledger-7-index",
        f"{UUID}-ledger-7-index-checksums",
        f"{UUID}-ledger-7-checksums-index",
        f"{UUID}/_checksums",
        f"t/n/persistent/topic/7-{UUID}/data-checksums",
        "-checksums",
        "_checksums",
    ],
)
def test_other_keys_are_of_no_checksums(key):
    assert parse_block_checksums_key(key) is None
