"""How many ranges reads ask a store for."""

import random
import struct
from statistics import median

import numpy as np
import pytest
from entries import pip17_object
from scenes.copies import cold_copy, gapped_copy, pip17_copy, with_anchors

from offload_core.format.codec.block_layout import pack_frames
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.entry_directory import Anchors, no_anchors, pack_directory, parse_directory
from offload_core.format.codec.object_format import parse_key
from offload_core.reading.read_handles import ReadMemory
from offload_hooks.errors import FormatError

KIB = 1 << 10
WINDOW = 16 * KIB
BLOCK = 1 << 20
PAYLOADS = [random.Random(i).randbytes(KIB) for i in range(3000)]


def requests_of_random_reads(copy, count, *, limit_bytes):
    reader = copy.open(memory=ReadMemory(limit_bytes), read_buffer_bytes=WINDOW)
    rng, requests = random.Random(1), []
    copy.driver.reads.clear()
    for _ in range(count):
        entry_id = rng.randrange(len(PAYLOADS))
        assert bytes(reader.read(entry_id, entry_id)[0]) == PAYLOADS[entry_id]
        requests.append(len(copy.driver.reads))
        copy.driver.reads.clear()
    return requests


def test_a_random_read_with_a_directory_takes_one_range_or_two_whatever_is_in_memory():
    copy = pip17_copy(PAYLOADS, max_block_bytes=BLOCK, stride=WINDOW)
    for limit_bytes in (1, 1 << 20):
        requests = requests_of_random_reads(copy, 300, limit_bytes=limit_bytes)
        assert median(requests) <= 2
        assert max(requests[1:]) <= (3 if limit_bytes == 1 else 2)
    first_ever = [requests_of_random_reads(copy, 1, limit_bytes=1 << 20)[0] for _ in range(5)]
    assert max(first_ever) <= 3, "the directory, a window, and the next one for an entry that lies across two"


def test_random_reads_without_a_directory_walk_each_block_once():
    copy = pip17_copy(PAYLOADS, max_block_bytes=BLOCK)
    requests = requests_of_random_reads(copy, 300, limit_bytes=64 * KIB)
    windows_of_block, far = BLOCK // WINDOW, 8
    assert max(requests) <= 2 + windows_of_block // far + 1
    assert sum(requests) <= 3 * (windows_of_block // far + 2) + 2 * len(requests)
    assert median(requests) <= 2


def test_a_sequential_reader_asks_for_every_byte_once_and_for_the_next_window_ahead():
    copy = pip17_copy(PAYLOADS, max_block_bytes=BLOCK, stride=WINDOW)
    reader = copy.open(memory=(memory := ReadMemory(1 << 20)), read_buffer_bytes=WINDOW)
    copy.driver.reads.clear()
    begin = 0
    while begin < len(PAYLOADS):
        begin = reader.read(begin, len(PAYLOADS) - 1, 5 * KIB).stop_entry_id
    memory.close()
    assert not any(key.endswith("index") for key, _, _ in copy.driver.reads), "it needs no directory"
    reads = sorted(copy.data_reads())
    ends = [offset + length for offset, length in reads]
    assert [offset for offset, _ in reads] == [0, *ends[:-1]]
    assert {length for _, length in reads[:-1]} == {WINDOW}


def test_two_readers_of_one_ledger_share_what_was_fetched():
    copy = pip17_copy(PAYLOADS, max_block_bytes=BLOCK)
    readers = copy.readers(memory=ReadMemory(), read_buffer_bytes=WINDOW)
    one, two = readers.open(copy.record), readers.open(copy.record)
    copy.driver.reads.clear()
    assert list(one.read(0, 9)) == list(two.read(0, 9))
    assert copy.data_reads() == [(0, WINDOW)]
    one.read(900, 900)
    assert len(copy.data_reads()) > 2
    two.read(899, 899)
    assert len(copy.data_reads()) == 1, "where entries begin was learnt by the other"


def test_large_entries_are_passed_over_without_being_fetched():
    payloads = [bytes(20 * WINDOW)] * 5 + [b"last"]
    copy = pip17_copy(payloads, max_block_bytes=200 * WINDOW)
    reader = copy.open(read_buffer_bytes=WINDOW)
    copy.driver.reads.clear()
    assert bytes(reader.read(5, 5)[0]) == b"last"
    reads = copy.data_reads()
    assert sum(length for _, length in reads) < 30 * WINDOW
    reader.read(2, 2)
    assert sum(length for _, length in copy.data_reads()) <= 21 * WINDOW


def test_a_request_inside_a_gap_gives_nothing_by_few_ranges():
    entries = {i: PAYLOADS[i] for i in range(3000) if i < 500 or i >= 2900}
    for stride in (None, WINDOW):
        copy = gapped_copy(entries, 3000, max_block_bytes=BLOCK, stride=stride)
        reader = copy.open(read_buffer_bytes=WINDOW)
        copy.driver.reads.clear()
        for first, last in ((500, 2899), (1000, 1000), (2000, 2899), (700, 701)):
            batch = reader.read(first, last)
            assert (len(batch), batch.stop_entry_id) == (0, last + 1)
        assert len(copy.driver.reads) <= 2 + BLOCK // WINDOW // 8
        read = reader.read_sparse(490, 2910, 1 << 20)
        assert read.entry_ids.tolist() == [*range(490, 500), *range(2900, 2911)]
        assert read.stop_entry_id == 2911


def test_a_large_entry_behind_a_gap_is_not_fetched_to_see_that_the_gap_is_one():
    copy = gapped_copy({0: b"first", 100: bytes(50 * WINDOW)}, 101, max_block_bytes=BLOCK)
    reader = copy.open(read_buffer_bytes=WINDOW)
    copy.driver.reads.clear()
    assert len(reader.read(1, 99)) == 0
    assert copy.data_reads() == [(0, WINDOW)]


def test_a_directory_that_is_wrong_hides_no_entry_of_a_filtered_ledger():
    copy = gapped_copy({i: PAYLOADS[i] for i in range(0, 300, 2)}, 300, max_block_bytes=BLOCK, stride=WINDOW)
    (index_key,) = (key for key in copy.driver.objects if key.endswith("-index"))
    index = copy.driver.objects[index_key]
    data_length = len(copy.driver.objects[index_key.removesuffix("-index")])
    place = parse_index(index, parse_key(index_key)).directory
    right = parse_directory(index[place.offset :], data_length)
    wrong = Anchors(entry_ids=right.entry_ids[3:] - 2, offsets=right.offsets[3:])
    packed = pack_directory(wrong)
    copy.driver.objects[index_key] = (
        index[:4] + struct.pack(">i", place.offset + len(packed)) + index[8 : place.offset] + packed
    )
    with pytest.raises(FormatError):
        copy.open(read_buffer_bytes=WINDOW).read(int(wrong.entry_ids[2]), 299)


def test_what_looks_like_frames_inside_of_payloads_is_never_taken_for_one():
    forged = pack_frames([b"forged"] * 200, 0)
    payloads = [forged if i % 2 else b"%d" % i for i in range(400)]
    copy = pip17_copy(payloads, max_block_bytes=1 << 16)
    reader = copy.open(read_buffer_bytes=500)
    for entry_id in random.Random(3).sample(range(400), 100):
        assert bytes(reader.read(entry_id, entry_id)[0]) == payloads[entry_id]


def test_a_damaged_directory_is_left_alone(caplog):
    good = pip17_copy(PAYLOADS[:300], max_block_bytes=BLOCK, stride=WINDOW)
    (index_key,) = (key for key in good.driver.objects if key.endswith("-index"))
    whole = good.driver.objects[index_key]
    size = len(pack_directory(no_anchors()))
    for at in (len(whole) - 1, len(whole) - size, len(whole) - 100):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        good.driver.objects[index_key] = bytes(damaged)
        reader = good.open(read_buffer_bytes=WINDOW)
        assert bytes(reader.read(250, 250)[0]) == PAYLOADS[250]
        assert bytes(reader.read(290, 290)[0]) == PAYLOADS[290]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert "entry directory" in caplog.text


def test_a_directory_that_is_whole_but_wrong_gives_an_error_and_no_wrong_entry():
    payloads = PAYLOADS[:300]
    written = pip17_object(payloads, max_block_bytes=BLOCK)
    right = 128 + 200 * (12 + KIB)
    for entry_id, place in ((200, right + 1), (199, right), (201, right)):
        ids, offsets = (np.array([number], dtype=np.int64) for number in (entry_id, place))
        copy = cold_copy([with_anchors(written, Anchors(entry_ids=ids, offsets=offsets))])
        with pytest.raises(FormatError) as raised:
            copy.open(read_buffer_bytes=WINDOW).read(250, 250)
        assert raised.value.key is not None
