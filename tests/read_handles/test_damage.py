"""Damaged bytes end a read with an error that names the place, or it gives what the bytes say; it always ends."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenes.copies import by_id, gapped_copy, mapfile_copy, pip17_copy, streaming_copy

from offload_core.format.codec.block_layout import pack_frames
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_hooks.errors import DataLossError, EntryOrderError, FormatError

PAYLOADS = [bytes([i]) * (i % 40) for i in range(60)]
COPIES = {
    "pip17": pip17_copy(PAYLOADS, max_block_bytes=500),
    "directory": pip17_copy(PAYLOADS, max_block_bytes=500, stride=100),
    "streaming": streaming_copy(PAYLOADS, [20]),
    "gaps": gapped_copy({i: each for i, each in enumerate(PAYLOADS) if i % 3}, 60),
    "mapfile": mapfile_copy(PAYLOADS, FileCompression.RECORD),
    "mapfile in blocks": mapfile_copy(PAYLOADS, FileCompression.BLOCK),
}


def data_key(copy):
    (key,) = (each for each in copy.driver.objects if not each.endswith("index"))
    return key


def flip(copy, place, bits=0x01):
    """Change bits of a byte of its data object."""
    data = bytearray(copy.driver.objects[data_key(copy)])
    data[place] ^= bits
    copy.driver.objects[data_key(copy)] = bytes(data)


def read_all(reader):
    """Forward, a few bytes at a time; bounded, so that a loop without end is an error."""
    begin, count = 0, reader.status().entry_count
    for _ in range(5000):
        if begin >= count:
            return
        batch = reader.read(begin, count - 1, 100)
        yield from by_id(batch).items()
        begin = batch.stop_entry_id
    raise AssertionError("it goes on and on")


@pytest.mark.parametrize("name", COPIES)
@given(data=st.data())
def test_whatever_byte_is_changed_a_read_ends_and_names_the_place(name, data):
    copy = COPIES[name]
    objects = dict(copy.driver.objects)
    key = data.draw(st.sampled_from(sorted(each for each in objects if not each.endswith("index"))))
    damaged = bytearray(objects[key])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(
            st.sampled_from([0, 1, 0x7F, 0x80, 0xFF])
        )
    copy.driver.objects = objects | {key: bytes(damaged)}
    problem = None
    try:
        for first in data.draw(st.lists(st.integers(0, 59), max_size=3)):
            reader = copy.open(read_buffer_bytes=data.draw(st.sampled_from([50, 1 << 20])))
            reader.read(first, 59, 200)
        list(read_all(copy.open(read_buffer_bytes=70)))
    except FormatError as error:
        problem = error
    finally:
        copy.driver.objects = objects
    if problem is not None:
        assert (problem.key, problem.ledger_id) == (key, 7)
        assert problem.offset is not None


def test_gaps_in_an_object_that_is_not_filtered_are_damage():
    entries = {i: b"entry" for i in range(20) if i != 7}
    copy = gapped_copy(entries, 20)
    copy.driver._metadata.pop("pulsaroffloadfiltered")
    reader = copy.open()
    assert len(reader.read(0, 6)) == 7
    with pytest.raises(EntryOrderError) as raised:
        reader.read(7, 9)
    error = raised.value
    assert (error.ledger_id, error.block, error.entry_id) == (7, 1, 7)
    assert (error.expected, error.found) == ("entry id 7", "entry id 8")


def test_an_entry_whose_id_lies_behind_its_block_is_no_gap():
    copy = gapped_copy({i: each for i, each in enumerate(PAYLOADS) if i % 3 == 1}, 60)
    key = data_key(copy)
    data = copy.driver.objects[key]
    frame = data.rindex(struct.pack(">iq", len(PAYLOADS[58]), 58)) + 4
    copy.driver.objects[key] = data[:frame] + struct.pack(">q", 580) + data[frame + 8 :]
    for first in (0, 58):
        with pytest.raises(EntryOrderError) as caught:
            copy.open().read_sparse(first, 59, 1 << 20)
        assert (caught.value.entry_id, caught.value.offset) == (580, frame - 4)


def test_an_objects_block_whose_length_is_wrong_is_refused_where_it_begins():
    copy = pip17_copy(PAYLOADS, max_block_bytes=500)
    flip(copy, 500 + 19)
    with pytest.raises(FormatError) as raised:
        list(read_all(copy.open()))
    assert (raised.value.key, raised.value.block, raised.value.offset) == (data_key(copy), 2, 500 + 12)


def test_entries_behind_damage_cannot_be_reached_and_those_before_can():
    copy = pip17_copy([b"x" * 30] * 100, max_block_bytes=1000)
    place = 128 + 5 * 42
    flip(copy, place, 0xFF)
    reader = copy.open()
    assert len(reader.read(0, 4)) == 5
    for first in (5, 6, 10):
        with pytest.raises(FormatError) as raised:
            reader.read(first, first)
        assert (raised.value.entry_id, raised.value.offset, raised.value.block) == (5, place, 1)
    assert len(reader.read(20, 99, 1 << 20)) > 50


@pytest.mark.parametrize("seed", range(5))
def test_frames_forged_in_payloads_mislead_nobody_after_damage(seed):
    forged = pack_frames([b"forged"] * 9, 3)
    copy = pip17_copy([forged] * 30, max_block_bytes=100_000)
    size = len(copy.driver.objects[data_key(copy)])
    flip(copy, random.Random(seed).randrange(128, size), 0x10)
    try:
        found = [payload for _, payload in read_all(copy.open())]
    except (FormatError, DataLossError):
        return
    assert sum(payload != forged for payload in found) <= 1
