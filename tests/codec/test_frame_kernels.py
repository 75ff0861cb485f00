"""The compiled walks over frames do what their plain Python twins do."""

from __future__ import annotations

import numpy as np
import pytest
from entries import borders
from hypothesis import given, settings
from hypothesis import strategies as st

from offload_core.format.codec.block_layout import (
    BlockHeader,
    Frame,
    pack_block_header,
    pack_frames,
    padding,
    walk_frames,
)
from offload_core.format.codec.blocks import BlockCursor
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.kernels import frames as kernels
from offload_core.format.codec.object_format import ObjectFormat
from offload_hooks.errors import FormatError

PAYLOADS = st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 300).map(bytes)), max_size=12)
FIRST_IDS = st.one_of(st.integers(0, 5), st.integers(0, 2**63 - 20))
DAMAGE = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from([0, 1, 0x7F, 0x80, 0xAD, 0xDC, 0xDE, 0xFE, 0xFF])),
    max_size=3,
)


def readonly(data: bytes) -> np.ndarray:
    array = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array


@st.composite
def blocks(draw: st.DrawFn) -> tuple[bytes, int, list[bytes]]:
    """Frames and padding, often damaged; the first entry id; the payloads."""
    payloads, first = draw(PAYLOADS), draw(FIRST_IDS)
    data = bytearray(pack_frames(payloads, first) + padding(draw(st.integers(0, 40))))
    for position, byte in draw(DAMAGE):
        if position < len(data):
            data[position] = byte
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data), first, payloads


def twin(block: bytes, first: int) -> tuple[list[Frame], FormatError | None]:
    frames = []
    try:
        for frame in walk_frames(block, 0, len(block), first):
            frames.append(frame)
    except FormatError as error:
        return frames, error
    return frames, None


@settings(deadline=None)  # the first example may compile
@given(blocks(), st.integers(1, 5), st.integers(0, 60))
def test_locating_entries_is_walking_the_frames(case: tuple, room: int, byte_room: int):
    block, first, _ = case
    frames, error = twin(block, first)
    found: list[Frame] = []
    position, status, least = 0, kernels.OUT_OF_ROOM, first
    array = readonly(block)
    columns = tuple(np.empty(room, dtype=np.int64) for _ in range(3))
    while status == kernels.OUT_OF_ROOM:
        status, position, least, count = kernels.find_entries(
            array, position, len(block), least, 2**63 - 1, False, byte_room + 1, *columns
        )
        sizes = columns[2][:count].tolist()
        assert count <= room
        assert sum(sizes[:-1]) <= byte_room
        assert count or status != kernels.OUT_OF_ROOM
        found += [Frame(*each) for each in zip(*(column[:count].tolist() for column in columns), strict=True)]
        assert least == first + len(found)
    assert found == frames
    assert (status == kernels.BAD_FRAME) == (error is not None)


@st.composite
def blocks_with_gaps(draw: st.DrawFn) -> tuple[bytes, int]:
    """Frames whose ids ascend, or nearly, and padding, often damaged; the least id that can come first."""
    first = draw(FIRST_IDS)
    ids = draw(st.lists(st.integers(first, min(first + 40, 2**63 - 2)), max_size=12))
    frames = [
        pack_frames([draw(st.binary(max_size=20))], i)
        for i in (sorted(set(ids)) if draw(st.booleans()) else ids)
    ]
    data = bytearray(b"".join(frames) + padding(draw(st.integers(0, 20))))
    for position, byte in draw(DAMAGE):
        if position < len(data):
            data[position] = byte
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data), first


def walked(block: bytes, first: int, stop: int, gaps: bool) -> tuple[list[Frame], FormatError | None]:
    """The twin, up to the first entry that is not below the stop."""
    frames: list[Frame] = []
    if first >= stop:
        return frames, None
    try:
        for frame in walk_frames(block, 0, len(block), first, gaps=gaps):
            if frame.entry_id >= stop:
                break
            frames.append(frame)
            if frame.entry_id + 1 >= stop:
                break
    except FormatError as raised:
        return frames, raised
    return frames, None


@settings(deadline=None)  # the first example may compile
@given(blocks_with_gaps(), st.integers(1, 5), st.booleans(), st.integers(0, 50))
def test_finding_entries_with_gaps_is_walking_the_frames_up_to_the_stop(case, room, gaps, until):
    block, first = case
    stop = min(first + until, 2**63 - 1)
    frames, error = walked(block, first, stop, gaps)
    found: list[Frame] = []
    status, position, least = kernels.OUT_OF_ROOM, 0, first
    columns = tuple(np.empty(room, dtype=np.int64) for _ in range(3))
    while status == kernels.OUT_OF_ROOM and least < stop:
        status, position, least, count = kernels.find_entries(
            readonly(block), position, len(block), least, stop, gaps, 1 << 40, *columns
        )
        assert count or status != kernels.OUT_OF_ROOM or least >= stop
        found += [Frame(*each) for each in zip(*(column[:count].tolist() for column in columns), strict=True)]
    assert found == frames
    assert (status == kernels.BAD_FRAME) == (error is not None)
    assert not found or least > found[-1].entry_id


@settings(deadline=None)  # the first example may compile
@given(blocks_with_gaps(), st.integers(1, 5), st.booleans(), st.integers(0, 50), st.integers(0, 60))
def test_copying_entries_is_finding_them(case, room, gaps, until, value_room):
    block, first = case
    stop = min(first + until, 2**63 - 1)
    frames, error = walked(block, first, stop, gaps)
    expected = [(frame.entry_id, block[frame.offset : frame.offset + frame.length]) for frame in frames]
    found: list[tuple[int, bytes]] = []
    position, status, least = 0, kernels.OUT_OF_ROOM, first
    values, ends = np.empty(value_room, dtype=np.uint8), np.empty(room + 1, dtype=np.int32)
    ids = np.empty(room, dtype=np.int64)
    while status == kernels.OUT_OF_ROOM and least < stop:
        status, position, least, count = kernels.copy_entries(
            readonly(block), position, len(block), least, stop, gaps, values, ends, ids
        )
        found += [(int(ids[i]), values[ends[i] : ends[i + 1]].tobytes()) for i in range(count)]
        if status == kernels.OUT_OF_ROOM and count == 0 and least < stop:
            assert len(expected[len(found)][1]) > value_room
            values = np.empty(len(expected[len(found)][1]), dtype=np.uint8)
    assert found == expected
    assert (status == kernels.BAD_FRAME) == (error is not None)


@settings(deadline=None)  # the first example may compile
@given(PAYLOADS, FIRST_IDS, st.integers(0, 40), st.data())
def test_framing_entries_is_packing_frames_and_padding(payloads, first_id, spare, data):
    first = data.draw(st.integers(0, len(payloads)))
    last = data.draw(st.integers(first, len(payloads)))
    gaps = data.draw(st.lists(st.integers(1, 3), min_size=len(payloads), max_size=len(payloads)))
    ids = first_id + np.cumsum(np.array(gaps, dtype=np.int64))
    frames = [pack_frames([payloads[i]], int(ids[i])) for i in range(first, last)]
    right = b"".join(frames) + padding(spare)
    out = np.zeros(len(right) + 3, dtype=np.uint8)
    values = readonly(b"".join(payloads))
    end = kernels.frame_entries(values, borders(payloads), ids, first, last, out, 3)
    kernels.fill_padding(out, end, len(out))
    assert out.tobytes() == b"\0\0\0" + right


@pytest.mark.parametrize("room", [0, 5, 64])
@pytest.mark.parametrize("position", [-1, 65, 2**63 - 12, 2**63 - 1])
def test_framing_outside_a_block_is_refused(room: int, position: int):
    with pytest.raises(IndexError, match="outside of their block"):
        kernels.frame_entries(
            readonly(b""), borders([b""]), np.array([7]), 0, 1, np.zeros(room, dtype=np.uint8), position
        )


@settings(deadline=None)  # the first example may compile
@given(PAYLOADS, FIRST_IDS, st.integers(0, 30), st.booleans(), st.data())
def test_any_way_through_a_block_gives_the_same_entries(payloads, first, spare, gaps, data):
    """With gaps, entries are missing anywhere, or all of them."""
    count = max(len(payloads) + (data.draw(st.integers(0, 6)) if gaps else 0), 1)
    if not gaps:
        payloads = payloads or [b""]
    ids = list(range(first, first + len(payloads)))
    if gaps:
        chosen = data.draw(st.sets(st.integers(0, count - 1), min_size=len(payloads), max_size=len(payloads)))
        ids = [first + i for i in sorted(chosen)]
    entries = dict(zip(ids, payloads, strict=True))
    frames = b"".join(pack_frames([payload], i) for i, payload in entries.items())
    length = 128 + len(frames) + spare
    header = BlockHeader(
        object_format=ObjectFormat.PIP17, block_length=length, first_entry_id=first, ledger_id=None
    )
    indexed = IndexedBlock(
        part_number=1, offset=0, length=length, first_entry_id=first, end_entry_id=first + count
    )
    stop = data.draw(st.one_of(st.none(), st.integers(first, first + count + 2)))
    block = pack_block_header(header) + frames + padding(spare)
    cursor = BlockCursor(block, ObjectFormat.PIP17, 7, indexed, stop_entry_id=stop, gaps=gaps)
    end = first + count if stop is None else min(first + count, stop)
    start = first + data.draw(st.integers(0, count))
    cursor.skip_to(start)
    found: dict[int, bytes] = {}
    assert min(start, end) <= cursor.next_entry_id <= end
    assert gaps or cursor.next_entry_id == min(start, end)
    while not cursor.done:
        before, room = cursor.next_entry_id, data.draw(st.integers(1, 4))
        here, payload_room = np.empty(room, dtype=np.int64), data.draw(st.integers(1, 100))
        if data.draw(st.booleans()):
            offsets, lengths = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
            count = cursor.locate(here, offsets, lengths, payload_room)
            read = [cursor.array[offsets[i] : offsets[i] + lengths[i]].tobytes() for i in range(count)]
        else:
            values, ends = np.empty(300, dtype=np.uint8), np.empty(room + 1, dtype=np.int32)
            count = cursor.copy(values, ends, here)
            read = [values[ends[i] : ends[i + 1]].tobytes() for i in range(count)]
        found |= dict(zip(here[:count].tolist(), read, strict=True))
        assert count or cursor.done
        assert not count or before <= here[0] < here[count - 1] + 1 <= cursor.next_entry_id
    asked = {i: payload for i, payload in entries.items() if start <= i < end}
    assert list(found.items()) == list(asked.items())
    assert cursor.next_entry_id == end
