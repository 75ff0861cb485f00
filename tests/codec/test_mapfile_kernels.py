"""The compiled walks over the records of a SequenceFile do what their plain Python twins do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.kernels import mapfile as kernels
from offload_core.format.codec.mapfile.record_batches import open_value
from offload_core.format.codec.mapfile.sequence_file import FieldReader, pack_vint
from offload_hooks.errors import FormatError

VALUES = st.one_of(st.binary(max_size=30), st.integers(0, 200).map(bytes))


def readonly(data):
    array = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array


@given(st.lists(st.tuples(VALUES, st.integers(-1, 1)), max_size=8))
def test_opening_values_is_opening_each(values):
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


@given(st.lists(VALUES, max_size=8), st.integers(0, 400), st.data())
def test_copying_values_is_joining_them(values, room_bytes, data):
    room = data.draw(st.integers(0, len(values)))
    sizes = np.array([len(value) for value in values], dtype=np.int64)
    out, borders = np.zeros(room_bytes, dtype=np.uint8), np.empty(room + 1, dtype=np.int32)
    count = kernels.copy_values(
        readonly(b"".join(values)), np.cumsum(sizes) - sizes, sizes, room, out, borders
    )
    fits = [n for n in range(room + 1) if len(b"".join(values[:n])) <= room_bytes]
    assert count == max(fits)
    assert [out[borders[i] : borders[i + 1]].tobytes() for i in range(count)] == values[:count]


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_variable_length_integer_is_read_back(value):
    packed = pack_vint(value)
    reader = FieldReader(packed, 0, len(packed), 0)
    assert reader.vint("a number") == value
    assert reader.remaining == 0


def test_variable_length_integers_are_those_of_hadoop():
    known = {0: "00", 127: "7f", 128: "8f80", 255: "8fff", 256: "8e0100", -1: "ff", -112: "90", -113: "8770"}
    assert {value: pack_vint(value).hex() for value in known} == known
