"""The entry directory: its bytes, which entries it has, and everything that can be wrong with it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from entries import ledger_metadata
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.entry_directory import (
    Anchors,
    find_directory,
    first_of_each_stride,
    pack_directory,
    parse_directory,
)
from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.pip17 import pack_pip17_index, parse_pip17_index
from offload_hooks.errors import EntryOrderError, UnsupportedVersionError

BYTES = bytes.fromhex(
    "504f4544 00000001 00000002 0000000000000000 0000000000000080 0000000000000005 0000000000100003 23c22ccb"
)


def anchors(*pairs):
    ids, places = zip(*pairs, strict=True) if pairs else ((), ())
    return Anchors(entry_ids=np.array(ids, dtype=np.int64), offsets=np.array(places, dtype=np.int64))


def pairs(given):
    return list(zip(given.entry_ids.tolist(), given.offsets.tolist(), strict=True))


def test_its_bytes_are_these():
    assert pack_directory(anchors((0, 128), (5, 0x100003))) == BYTES
    assert pairs(parse_directory(BYTES, 1 << 21)) == [(0, 128), (5, 0x100003)]


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(128, 2**62)), max_size=20))
def test_it_comes_back_as_it_was(drawn):
    ids, places = sorted({each[0] for each in drawn}), sorted({each[1] for each in drawn})
    given_pairs = list(zip(ids, places, strict=False))
    assert pairs(parse_directory(pack_directory(anchors(*given_pairs)), 2**62 + 1)) == given_pairs


def test_a_newer_version_is_named():
    with pytest.raises(UnsupportedVersionError, match="found 2"):
        parse_directory(BYTES[:7] + b"\2" + BYTES[8:], 1 << 21)


@pytest.mark.parametrize(
    "wrong",
    [
        [(0, 127)],
        [(-1, 128)],
        [(0, 1 << 21)],
        [(0, 128), (0, 200)],
        [(0, 128), (1, 128)],
        [(5, 128), (4, 200)],
    ],
)
def test_entries_that_do_not_ascend_inside_of_the_object_are_refused(wrong):
    with pytest.raises(EntryOrderError):
        parse_directory(pack_directory(anchors(*wrong)), 1 << 21)


@given(
    lengths=st.lists(st.integers(0, 50), min_size=1, max_size=40),
    stride=st.integers(1, 90),
    cuts=st.lists(st.integers(1, 39), max_size=4),
)
def test_it_has_the_first_entry_of_each_stride_however_entries_come(lengths, stride, cuts):
    places = 128 + np.cumsum([0, *(12 + each for each in lengths[:-1])]).astype(np.int64)
    ids = np.arange(len(lengths))
    expected = {}
    for entry_id, place in zip(ids.tolist(), places.tolist(), strict=True):
        expected.setdefault(place // stride, (entry_id, place))
    found, last = [], None
    borders = sorted({0, len(lengths), *(cut for cut in cuts if cut < len(lengths))})
    for first, stop in pairwise(borders):
        part = first_of_each_stride(ids[first:stop], places[first:stop], stride, last)
        found += pairs(part)
        last = int(places[stop - 1])
    assert found == list(expected.values())


def test_an_index_tells_where_it_stands_and_is_read_as_before():
    blocks = [BlockEntry(first_entry_id=0, part_number=1, offset=0)]
    plain = pack_pip17_index(ledger_metadata([b"x"]), blocks, 1 << 21)
    index = pack_pip17_index(ledger_metadata([b"x"]), blocks, 1 << 21, BYTES)
    parsed = parse_pip17_index(index, 7)
    assert (parsed.directory.offset, parsed.directory.length) == (len(plain), len(BYTES))
    assert parsed.ledgers == parse_pip17_index(plain, 7).ledgers
    assert parse_pip17_index(plain, 7).directory is None
    assert int.from_bytes(index[4:8], "big") == len(index)
    assert find_directory(plain + b"\xe1\xd3\xe1\xd3 a fork's", len(plain)) is None
    assert find_directory(plain + BYTES[:4], len(plain)) is None
