"""The compiled walks over frames do what their plain Python twins do."""

from __future__ import annotations

import numpy as np
import pytest
from entries import borders
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.block_layout import BlockHeader, pack_block_header, pack_frames, padding
from offload_core.format.codec.blocks import BlockCursor
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.kernels import frames as kernels
from offload_core.format.codec.object_format import ObjectFormat

PAYLOADS = st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 300).map(bytes)), max_size=12)
FIRST_IDS = st.one_of(st.integers(0, 5), st.integers(0, 2**63 - 20))


def readonly(data):
    array = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("room", [0, 5, 64])
@pytest.mark.parametrize("position", [-1, 65, 2**63 - 12, 2**63 - 1])
def test_framing_outside_a_block_is_refused(room, position):
    with pytest.raises(IndexError, match="outside of their block"):
        kernels.frame_entries(
            readonly(b""), borders([b""]), np.array([7]), 0, 1, np.zeros(room, dtype=np.uint8), position
        )


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
