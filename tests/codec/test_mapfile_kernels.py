"""The compiled walks over the records of a SequenceFile do what their plain Python twins do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from offload_core.format.codec.kernels import frames
from offload_core.format.codec.kernels import mapfile as kernels
from offload_core.format.codec.mapfile.record_batches import (
    Record,
    open_value,
    read_lengths_plainly,
    walk_records,
)
from offload_core.format.codec.mapfile.sequence_file import CutOffError, FieldReader, pack_vint
from offload_hooks.errors import FormatError

SYNC = bytes(range(1, 17))
MARK = b"\xff\xff\xff\xff" + SYNC
VALUES = st.one_of(st.binary(max_size=30), st.integers(0, 200).map(bytes))
DAMAGE = st.lists(st.tuples(st.integers(0, 2000), st.sampled_from([0, 1, 8, 0x7F, 0x80, 0xFF])), max_size=3)


def readonly(data: bytes) -> np.ndarray:
    array = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array


@st.composite
def stretches(draw: st.DrawFn) -> tuple[bytes, int]:
    """Records and sync marks, often damaged; how many bytes the stretch has (it may go on behind the window)."""
    data = bytearray()
    key = draw(st.integers(-1, 5))
    for value in draw(st.lists(VALUES, max_size=10)):
        if draw(st.booleans()):
            data += MARK
        data += (8 + len(value)).to_bytes(4, "big") + (8).to_bytes(4, "big")
        data += key.to_bytes(8, "big", signed=True) + value
        key += draw(st.sampled_from([1, 1, 1, 5, 0]))
    if draw(st.integers(0, 9)) == 0:
        data += MARK
    for position, byte in draw(DAMAGE):
        if position < len(data):
            data[position] = byte
    end = len(data) + draw(st.sampled_from([0, 0, 1, 30]))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data), end


def twin(window: bytes, end: int) -> tuple[list[Record], int]:
    records: list[Record] = []
    needed = None
    try:
        for record in walk_records(window, 0, end, SYNC, -2):
            records.append(record)
    except FormatError:
        return records, frames.BAD_FRAME
    except CutOffError as cut:
        needed = cut.needed
    assert needed is None or len(window) < needed <= end
    return records, frames.ALL_READ if needed is None else frames.CUT_OFF


@settings(deadline=None)  # the first example may compile
@given(stretches(), st.integers(1, 4), st.integers(1, 60))
def test_locating_records_is_walking_them(case: tuple[bytes, int], room: int, byte_room: int):
    window, end = case
    records, expected = twin(window, end)
    found: list[Record] = []
    keys, offsets, lengths = np.empty((3, room), dtype=np.int64)
    position, status, last = 0, frames.OUT_OF_ROOM, -2
    while status == frames.OUT_OF_ROOM:
        status, position, count = kernels.locate_records(
            readonly(window), position, end, readonly(SYNC), last, room, byte_room, keys, offsets, lengths
        )
        assert count or status != frames.OUT_OF_ROOM
        assert sum(lengths[: max(0, count - 1)].tolist()) < byte_room
        found += map(Record, keys[:count].tolist(), offsets[:count].tolist(), lengths[:count].tolist())
        last = found[-1].key if found else -2
    assert (found, status) == (records, expected)
    if status == frames.ALL_READ:
        assert position == end


@settings(deadline=None)
@given(st.lists(st.tuples(VALUES, st.integers(-1, 1)), max_size=8))
def test_opening_values_is_opening_each(values: list[tuple[bytes, int]]):
    stored = [(len(value) + off).to_bytes(4, "big", signed=True) + value for value, off in values]
    stored += [b"\0\0\0"][: len(values) % 2]  # too short for a length
    sizes = np.array([len(value) for value in stored], dtype=np.int64)
    offsets = np.cumsum(sizes) - sizes
    array = readonly(b"".join(stored))
    right = kernels.open_values(array, offsets, sizes)
    opened: list[bytes] = []
    for value in stored:
        try:
            opened.append(bytes(open_value(value, 0)))
        except FormatError:
            break
    assert right == len(opened)
    assert [array[offsets[i] : offsets[i] + sizes[i]].tobytes() for i in range(right)] == opened


@settings(deadline=None)
@given(st.lists(VALUES, max_size=8), st.integers(0, 400), st.data())
def test_copying_values_is_joining_them(values: list[bytes], room_bytes: int, data: st.DataObject):
    room = data.draw(st.integers(0, len(values)))
    sizes = np.array([len(value) for value in values], dtype=np.int64)
    out, borders = np.zeros(room_bytes, dtype=np.uint8), np.empty(room + 1, dtype=np.int32)
    count = kernels.copy_values(
        readonly(b"".join(values)), np.cumsum(sizes) - sizes, sizes, room, out, borders
    )
    fits = [n for n in range(room + 1) if len(b"".join(values[:n])) <= room_bytes]
    assert count == max(fits)
    assert [out[borders[i] : borders[i + 1]].tobytes() for i in range(count)] == values[:count]


LENGTHS = st.one_of(
    st.integers(0, 300), st.integers(0, (1 << 31) - 1), st.sampled_from([127, 128, 255, 256, 65535, 65536])
)


@settings(deadline=None)
@given(st.lists(LENGTHS, max_size=8), st.binary(max_size=6), st.integers(0, 9), DAMAGE)
def test_reading_lengths_is_reading_each(lengths, tail, count, damage):
    data = bytearray(b"".join(map(pack_vint, lengths)) + tail)
    for position, byte in damage:
        if position < len(data):
            data[position] = byte
    out = np.empty(count, dtype=np.int64)
    read, position = kernels.read_lengths(readonly(bytes(data)), out)
    assert (out[:read].tolist(), position) == read_lengths_plainly(bytes(data), count)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_variable_length_integer_is_read_back(value: int):
    packed = pack_vint(value)
    reader = FieldReader(packed, 0, len(packed), 0)
    assert reader.vint("a number") == value
    assert reader.remaining == 0


def test_variable_length_integers_are_those_of_hadoop():
    known = {0: "00", 127: "7f", 128: "8f80", 255: "8fff", 256: "8e0100", -1: "ff", -112: "90", -113: "8770"}
    assert {value: pack_vint(value).hex() for value in known} == known
