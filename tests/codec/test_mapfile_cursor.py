"""MapFiles that we write are read back: any entries, any compression, any windows, from anywhere to anywhere."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mapfiles import SYNC, index_of, mapfile, read_mapfile

from offload_core.format.codec.mapfile.cursor import MapFileCursor
from offload_core.format.codec.mapfile.index_file import parse_index_file
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    LONG_WRITABLE,
    FileCompression,
    SequenceHeader,
)
from offload_core.format.codec.mapfile.writer import SYNC_INTERVAL_BYTES, SequenceFileWriter
from offload_hooks.errors import OptionError

EACH = pytest.mark.parametrize("compression", FileCompression)
PAYLOADS = st.one_of(st.binary(max_size=40), st.integers(0, 3000).map(bytes))
GAPS = st.sampled_from([0, 0, 0, 0, 1, 7])


@st.composite
def ledgers(draw):
    """Entries, often with gaps between their ids."""
    entries: dict[int, bytes] = {}
    entry_id = 0
    for payload in draw(st.lists(PAYLOADS, min_size=1, max_size=30)):
        entry_id += draw(GAPS)
        entries[entry_id] = payload
        entry_id += 1
    return entries


@given(
    ledgers(),
    st.sampled_from(FileCompression),
    st.integers(1, 5),
    st.sampled_from([1, 50, 500, 1_000_000]),
    st.one_of(st.none(), st.integers(1, 700)),
    st.sampled_from([1, 100, 1 << 20]),
)
def test_what_is_written_is_read(
    entries, compression, index_interval, block_bytes, window_bytes, stretch_bytes
):
    written = mapfile(
        entries, compression=compression, index_interval=index_interval, block_bytes=block_bytes
    )
    # a stretch that would hold the metadata only is not cut off from the first entries
    stretch_bytes = max(stretch_bytes, 300)
    found = read_mapfile(written, window_bytes=window_bytes, stretch_bytes=stretch_bytes)
    assert found == list(written.entries)


@EACH
@pytest.mark.parametrize("count", [1, 2, 126, 127, 128, 129, 255, 256, 300])
def test_any_number_of_entries_around_the_index_interval(compression, count):
    written = mapfile([b"entry %d" % i for i in range(count)], compression=compression, block_bytes=64)
    assert read_mapfile(written) == list(written.entries)
    keys = parse_index_file(written.index, 1000).keys.tolist()
    assert keys == list(range(-1, count, 128))


@EACH
def test_an_entry_larger_than_a_batch_is_read(compression):
    random = Random(1)
    payloads = [b"before", random.randbytes(3 << 20), b"between", bytes(5 << 20), b"behind"]
    written = mapfile(payloads, compression=compression)
    assert read_mapfile(written) == list(written.entries)
    assert read_mapfile(written, window_bytes=1 << 20) == list(written.entries)


@pytest.mark.parametrize("compression", [FileCompression.NONE, FileCompression.RECORD])
def test_sync_marks_stand_where_hadoop_puts_them(compression):
    random = Random(2)
    written = mapfile([random.randbytes(1000) for _ in range(400)], compression=compression)
    mark = b"\xff\xff\xff\xff" + SYNC
    places, at = [], written.data.find(mark)
    while at >= 0:
        places.append(at)
        at = written.data.find(mark, at + 1)
    assert len(places) == 3
    for before, place in zip([0, *places], places, strict=False):
        assert 0 <= place - (before and before + len(mark)) - SYNC_INTERVAL_BYTES < 1100
    assert read_mapfile(written) == list(written.entries)


def test_a_sync_mark_at_the_very_end_is_passed_over():
    written = mapfile([b"a", b"b"])
    mark = b"\xff\xff\xff\xff" + SYNC
    assert read_mapfile(replace(written, data=written.data + mark)) == list(written.entries)


@EACH
def test_a_file_is_cut_into_stretches_that_can_be_read_alone(compression):
    random = Random(3)
    written = mapfile(
        [random.randbytes(100) for _ in range(1000)],
        compression=compression,
        block_bytes=3000,
        index_interval=10,
    )
    index = index_of(written, stretch_bytes=10_000)
    blocks = index.ledgers[0].blocks
    assert len(blocks) > 5
    assert blocks[0].offset == 0
    assert [b.offset + b.length for b in blocks] == [*(b.offset for b in blocks[1:]), len(written.data)]
    assert all(10_000 <= b.length < 16_000 for b in blocks[1:-1])
    assert read_mapfile(written, stretch_bytes=10_000) == list(written.entries)
    for block in blocks:
        cursor = MapFileCursor(
            written.data[block.offset : block.offset + block.length], index.sequence_file, 7, block
        )
        cursor.skip_to(0)
        assert block.first_entry_id <= cursor.next_entry_id < (block.end_entry_id or 0)
        if compression is not FileCompression.BLOCK:
            assert block.first_entry_id == cursor.next_entry_id


@given(ledgers(), st.sampled_from(FileCompression), st.sampled_from([40, 1_000_000]), st.data())
def test_any_way_through_a_stretch_gives_the_same_entries(entries, compression, block_bytes, data):
    written = mapfile(entries, compression=compression, block_bytes=block_bytes)
    index = index_of(written)
    (block,) = index.ledgers[0].blocks
    end = max(entries) + 1
    stop = data.draw(st.one_of(st.none(), st.integers(0, end + 2)))
    start = data.draw(st.integers(0, end))
    cursor = MapFileCursor(written.data, index.sequence_file, 7, block, stop_entry_id=stop)
    cursor.skip_to(start)
    skipped = cursor.payload_bytes
    found: dict[int, bytes] = {}
    while not cursor.done:
        room = data.draw(st.integers(1, 4))
        ids = np.empty(room, dtype=np.int64)
        if data.draw(st.booleans()):
            offsets, lengths = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
            count = cursor.locate(ids, offsets, lengths, data.draw(st.integers(1, 100)))
            payloads = [cursor.array[offsets[i] : offsets[i] + lengths[i]].tobytes() for i in range(count)]
        else:
            values, borders = np.empty(3000, dtype=np.uint8), np.empty(room + 1, dtype=np.int32)
            count = cursor.copy(values, borders, ids)
            payloads = [values[borders[i] : borders[i + 1]].tobytes() for i in range(count)]
        found |= dict(zip(ids[:count].tolist(), payloads, strict=True))
    asked = {
        entry_id: payload
        for entry_id, payload in entries.items()
        if entry_id >= start and (stop is None or entry_id < stop)
    }
    assert list(found.items()) == list(asked.items())
    assert cursor.payload_bytes - skipped == sum(map(len, asked.values()))
    if stop is None:
        assert cursor.next_entry_id == end
    elif stop <= end:
        assert cursor.next_entry_id == max(stop, 0)


def test_an_entry_that_is_too_large_for_the_room_is_told_and_copied_alone():
    for compression in FileCompression:
        written = mapfile([b"x" * 100], compression=compression)
        index = index_of(written)
        (block,) = index.ledgers[0].blocks
        cursor = MapFileCursor(written.data, index.sequence_file, 7, block)
        borders, ids = np.empty(2, dtype=np.int32), np.empty(1, dtype=np.int64)
        assert cursor.copy(np.empty(99, dtype=np.uint8), borders, ids) == 0
        assert not cursor.done
        assert cursor.next_length == 100
        assert cursor.copy(np.empty(100, dtype=np.uint8), borders, ids) == 1


def test_entries_out_of_order_are_not_written():
    with pytest.raises(OptionError, match="order"):
        mapfile({4: b"a", 3: b"b"})


def test_a_sync_of_another_length_is_not_written():
    header = SequenceHeader(compression=FileCompression.NONE, value_class=BYTES_WRITABLE, sync=b"short")
    with pytest.raises(OptionError, match="sync"):
        SequenceFileWriter(header)


@EACH
def test_an_index_of_any_compression_is_read(compression):
    header = SequenceHeader(compression=compression, value_class=LONG_WRITABLE, sync=SYNC)
    writer = SequenceFileWriter(header, block_bytes=40)
    records = [(-1, 139), (127, 5000), (300, 90_000), (1 << 40, 1 << 41)]
    for key, position in records:
        writer.append(key, position.to_bytes(8, "big"))
    found = parse_index_file(writer.finish(), 4)
    assert list(zip(found.keys.tolist(), found.positions.tolist(), strict=True)) == records
