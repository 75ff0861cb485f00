"""A block read window by window is the block read whole, wherever it is cut; and as strict."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from effort import effort
from entries import pip17_object
from hypothesis import given
from hypothesis import strategies as st

import offload_core.format.codec.blocks as blocks
from offload_core.format.codec.blocks import BlockCursor
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.object_format import ObjectFormat
from offload_hooks.errors import BadLengthError, EntryOrderError, FormatError, PaddingError, TruncatedError


def walk(data, indexed, cuts, form, **options):
    """The entries of a block that comes in windows, cut at these places (from the header's end on)."""
    borders = [0, *sorted({cut for cut in cuts if 128 <= cut < len(data)}), len(data)]
    first, *rest = itertools.pairwise(borders)
    others = [(data[a:b], a) for a, b in rest]
    first = data[slice(*first)]
    cursor = BlockCursor(first, ObjectFormat.PIP17, 7, indexed, more=bool(others), **options)
    entries: list[tuple[int, bytes]] = []
    for window in [None, *others]:
        if window is not None and not cursor.done:
            assert cursor.starved
            cursor.feed(*window)
        entries += list(copied(cursor) if form == "copy" else located(cursor))
    return entries


def located(cursor):
    ids, offsets, lengths = (np.empty(3, dtype=np.int64) for _ in range(3))
    while not cursor.done and not cursor.starved:
        count = cursor.locate(ids, offsets, lengths, 100)
        for i in range(count):
            yield int(ids[i]), cursor.array[offsets[i] : offsets[i] + lengths[i]].tobytes()
            here = cursor.offset + int(offsets[i])
            assert int.from_bytes(cursor.array[offsets[i] - 8 : offsets[i]].tobytes(), "big") == ids[i]
            assert here < 1 << 30


def copied(cursor):
    room = 40
    while not cursor.done and not cursor.starved:
        values, borders = np.empty(room, dtype=np.uint8), np.empty(4, dtype=np.int32)
        ids = np.empty(3, dtype=np.int64)
        count = cursor.copy(values, borders, ids)
        room = 40
        if count == 0 and not cursor.done and not cursor.starved:
            room = cursor.next_length
            assert room <= 400
        for i in range(count):
            yield int(ids[i]), values[borders[i] : borders[i + 1]].tobytes()


def block_of(payloads, padded):
    """A block of these payloads with `padded` bytes of padding, and how an index describes it."""
    content = sum(12 + len(payload) for payload in payloads)
    written = pip17_object([*payloads, b"x" * (padded + 1)], max_block_bytes=128 + content + padded)
    length = 128 + content + padded
    return written.data[:length], IndexedBlock(
        part_number=1, offset=0, length=length, first_entry_id=0, end_entry_id=len(payloads)
    )


@pytest.mark.parametrize("form", ["locate", "copy"])
@given(data=st.data())
@effort(2)
def test_windows_give_the_entries_of_the_whole_block(form, data):
    payloads = data.draw(
        st.lists(st.binary(max_size=60) | st.binary(min_size=300, max_size=400), min_size=1, max_size=12)
    )
    block, indexed = block_of(payloads, data.draw(st.integers(0, 40)))
    cuts = data.draw(st.lists(st.integers(128, len(block)), max_size=8))
    stop = data.draw(st.none() | st.integers(1, len(payloads)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "TOGETHER_BYTES", data.draw(st.sampled_from([0, 1, 20, 100, 1 << 20])))
        found = walk(block, indexed, cuts, form, stop_entry_id=stop)
    assert found == list(enumerate(payloads))[:stop]


@given(data=st.data())
@effort(2)
def test_a_damaged_block_is_refused_window_by_window_as_it_is_whole(data):
    payloads = data.draw(st.lists(st.binary(max_size=30), min_size=1, max_size=8))
    block, indexed = block_of(payloads, data.draw(st.integers(0, 20)))
    damaged = bytearray(block)
    place = data.draw(st.integers(128, len(block) - 1))
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    cuts = data.draw(st.lists(st.integers(128, len(block)), min_size=1, max_size=6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "TOGETHER_BYTES", data.draw(st.sampled_from([0, 10, 1 << 20])))
        assert outcome(bytes(damaged), indexed, cuts) == outcome(bytes(damaged), indexed, [])


def outcome(data, indexed, cuts):
    try:
        return walk(data, indexed, cuts, "locate")
    except FormatError as error:
        return error.fields()


def test_the_beginning_of_a_block_is_refused_where_nothing_follows():
    block, indexed = block_of([b"abc"], 0)
    with pytest.raises(TruncatedError):
        BlockCursor(block[:-1], ObjectFormat.PIP17, 7, indexed)
    with pytest.raises(TruncatedError):
        BlockCursor(block + b"x", ObjectFormat.PIP17, 7, indexed, more=True)
    with pytest.raises(TruncatedError):
        BlockCursor(block[:100], ObjectFormat.PIP17, 7, indexed, more=True)


def test_faults_before_a_cut_are_found_before_what_follows_comes():
    block, indexed = block_of([b"a" * 20] * 3, 0)
    for place, fault in ((128, BadLengthError), (135, EntryOrderError)):
        damaged = bytearray(block)
        damaged[place] ^= 0x40
        with pytest.raises(fault):
            list(located(BlockCursor(bytes(damaged[:150]), ObjectFormat.PIP17, 7, indexed, more=True)))


def test_padding_that_goes_over_several_windows_is_checked_to_its_end():
    block, indexed = block_of([b"abc"], 30)
    assert walk(block, indexed, [145, 150, 160], "copy") == [(0, b"abc")]
    with pytest.raises(PaddingError):
        walk(block[:-1] + b"\0", indexed, [145, 150, 160], "copy")
