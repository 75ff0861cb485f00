"""Where blocks end, what fills them, and the cursor over one."""

from __future__ import annotations

import numpy as np
import pytest
from entries import pack_block, pip17_object, read_object

from offload_core.format.codec.block_layout import (
    BLOCK_HEADER_BYTES,
    BlockHeader,
    pack_block_header,
    parse_block_header,
)
from offload_core.format.codec.blocks import BlockCursor, write_block
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.format.codec.pip17 import plan_blocks
from offload_core.format.codec.streaming import streaming_block_length
from offload_hooks.errors import EntryOrderError, OptionError

PATTERN = bytes.fromhex("fedcdead")


def block_of(payloads, *, spare=0, first=0, ledger_id=None):
    length = 128 + sum(12 + len(payload) for payload in payloads) + spare
    object_format = ObjectFormat.PIP17 if ledger_id is None else ObjectFormat.STREAMING
    header = BlockHeader(
        object_format=object_format, block_length=length, first_entry_id=first, ledger_id=ledger_id
    )
    indexed = IndexedBlock(
        part_number=1, offset=0, length=length, first_entry_id=first, end_entry_id=first + len(payloads)
    )
    return pack_block(header, payloads), indexed, object_format


def cursor_over(payloads, *, spare=0, first=0, stop_entry_id=None):
    block, indexed, object_format = block_of(payloads, spare=spare, first=first)
    return BlockCursor(block, object_format, 7, indexed, stop_entry_id=stop_entry_id)


def ids_and_payloads(cursor, room=100):
    read = []
    ids, offsets, lengths = (np.empty(room, dtype=np.int64) for _ in range(3))
    while not cursor.done:
        count = cursor.locate(ids, offsets, lengths, 1 << 40)
        read += [
            (int(ids[i]), cursor.array[offsets[i] : offsets[i] + lengths[i]].tobytes()) for i in range(count)
        ]
    return read


# --- bytes, written out ------------------------------------------------------------------------


def test_a_pip17_block_is_written_byte_for_byte():
    block, _, _ = block_of([b"ab", b""], spare=6, first=3)
    assert block == (
        bytes.fromhex("fbdbabcb 0000000000000080 00000000000000a0 0000000000000003")
        + bytes(100)
        + bytes.fromhex("00000002 0000000000000003 6162 00000000 0000000000000004")
        + bytes.fromhex("fedcdeadfedc")
    )


def test_a_streaming_block_is_written_byte_for_byte():
    block, _, _ = block_of([b"z"], spare=4, first=1, ledger_id=258)
    assert block == (
        bytes.fromhex("26a66d32 0000000000000080 0000000000000091 0000000000000001 0000000000000102")
        + bytes(92)
        + bytes.fromhex("00000001 0000000000000001 7a fedcdead")
    )


@pytest.mark.parametrize("ledger_id", [None, 2**63 - 1])
def test_a_header_is_read_as_it_was_written(ledger_id):
    header = BlockHeader(
        object_format=ObjectFormat.PIP17 if ledger_id is None else ObjectFormat.STREAMING,
        block_length=2**62,
        first_entry_id=2**63 - 1,
        ledger_id=ledger_id,
    )
    packed = pack_block_header(header)
    assert len(packed) == BLOCK_HEADER_BYTES
    assert parse_block_header(packed, header.object_format) == header


@pytest.mark.parametrize("spare", range(16))
def test_padding_of_any_length_is_written_and_read(spare):
    payloads = [b"one", b"", b"three"]
    block, _, _ = block_of(payloads, spare=spare)
    assert block[len(block) - spare :] == (PATTERN * 4)[:spare]
    assert ids_and_payloads(cursor_over(payloads, spare=spare)) == list(enumerate(payloads))


@pytest.mark.parametrize("payload", [PATTERN, PATTERN * 5, PATTERN[:3], b"\xfe"])
def test_a_payload_that_looks_like_padding_is_an_entry(payload):
    assert ids_and_payloads(cursor_over([payload, payload], spare=5)) == [(0, payload), (1, payload)]


def test_entries_do_not_fit_a_block_that_is_too_short():
    header = BlockHeader(
        object_format=ObjectFormat.PIP17, block_length=128 + 12 + 4, first_entry_id=9, ledger_id=None
    )
    values, borders = np.zeros(5, dtype=np.uint8), np.array([0, 5])
    with pytest.raises(OptionError) as caught:
        write_block(np.empty(144, dtype=np.uint8), header, values, borders, 0, 1)
    assert (caught.value.entry_id, caught.value.found) == (9, "17 bytes of frames in 144 bytes")
    with pytest.raises(OptionError):
        write_block(np.empty(200, dtype=np.uint8), header, values, np.array([0, 4]), 0, 1)


# --- where blocks end --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "most", "plans"),
    [
        ([20] * 5, 200, [(0, 2, 200), (2, 4, 200), (4, 5, 160)]),
        ([60, 60], 200, [(0, 1, 200), (1, 2, 200)]),
        ([1, 100], 200, [(0, 1, 200), (1, 2, 240)]),
        ([0, 0], 140, [(0, 1, 140), (1, 2, 140)]),
        ([], 200, []),
    ],
)
def test_every_block_but_the_last_is_as_long_as_it_may_be(lengths, most, plans):
    found = plan_blocks(np.array(lengths, dtype=np.int64), most)
    assert [(plan.first, plan.last, plan.block_length) for plan in found] == plans


def test_a_block_has_room_for_one_empty_entry():
    with pytest.raises(OptionError) as caught:
        list(plan_blocks(np.array([0]), 139))
    assert (caught.value.expected, caught.value.found) == ("140 bytes or more", 139)


@pytest.mark.parametrize("place", ["first", "middle", "last", "only", "all"])
def test_an_entry_larger_than_a_block_has_a_block_of_its_own(place):
    large = b"L" * 1000
    payloads = {
        "first": [large, b"b", b"c"],
        "middle": [b"a", large, b"c"],
        "last": [b"a", b"b", large],
        "only": [large],
        "all": [large, large],
    }[place]
    written = pip17_object(payloads, max_block_bytes=300)
    (ledger,) = parse_index(written.index, written.key).ledgers
    alone = [b for b in ledger.blocks if b.length == 128 + 12 + 1000]
    assert [(b.end_entry_id or 0) - b.first_entry_id for b in alone] == [1] * payloads.count(large)
    assert {b.length for b in ledger.blocks[:-1]} <= {300, 1140}
    assert read_object(written.data, written.index, written.key) == list(written.entries)


@pytest.mark.parametrize(
    ("content", "least", "length"),
    [(0, 512, 512), (380, 512, 512), (381, 512, 513), (384, 512, 516), (1000, 512, 1132)],
)
def test_a_streaming_block_always_keeps_some_padding(content, least, length):
    assert streaming_block_length(content, least) == length


# --- the cursor --------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [2**31 - 1, 2**32, 2**53, 2**63 - 5])
def test_huge_entry_ids_are_read(first):
    payloads = [b"a", b"b", b"c"]
    read = ids_and_payloads(cursor_over(payloads, first=first, spare=3))
    assert read == [(first + i, payload) for i, payload in enumerate(payloads)]


def test_ids_do_not_go_on_past_the_last_one():
    """The position behind an entry must be one as well."""
    block, indexed, object_format = block_of([b"a"], first=2**63 - 3, spare=12)
    further = block[:-12] + bytes.fromhex("00000000 7ffffffffffffffe")
    cursor = BlockCursor(further, object_format, 7, indexed)
    with pytest.raises(EntryOrderError):
        ids_and_payloads(cursor)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_the_cursor_takes_any_buffer_and_keeps_it_read_only(buffer):
    block, indexed, object_format = block_of([b"abc"])
    cursor = BlockCursor(buffer(block), object_format, 7, indexed)
    assert not cursor.array.flags.writeable
    assert ids_and_payloads(cursor) == [(0, b"abc")]


def test_copy_tells_the_size_of_an_entry_that_does_not_fit():
    cursor = cursor_over([b"ab", b"x" * 50])
    values, borders = np.zeros(8, dtype=np.uint8), np.empty(9, dtype=np.int32)
    ids = np.empty(8, dtype=np.int64)
    assert cursor.copy(values, borders, ids) == 1
    assert cursor.copy(values, borders, ids) == 0
    assert (cursor.done, cursor.next_length) == (False, 50)
    values = np.zeros(50, dtype=np.uint8)
    assert cursor.copy(values, borders, ids) == 1
    assert cursor.done


def test_locate_stops_with_the_entry_that_reaches_the_byte_room():
    cursor = cursor_over([b"x" * 10] * 5)
    columns = [np.empty(9, dtype=np.int64) for _ in range(3)]
    assert cursor.locate(*columns, 10) == 1
    assert cursor.locate(*columns, 11) == 2
    assert cursor.locate(*columns, 1000) == 2
    assert cursor.done


def test_a_stop_before_the_block_ends_the_walk():
    assert ids_and_payloads(cursor_over([b"a"], first=10, stop_entry_id=3)) == []


def test_a_stop_leaves_what_lies_behind_it_unread():
    block, indexed, object_format = block_of([b"a", b"b", b"c"])
    broken = block[:-1] + b"?" + bytes(0)
    broken = broken[: 128 + 26] + b"\xff" * 4 + broken[128 + 30 :]
    cursor = BlockCursor(broken, object_format, 7, indexed, stop_entry_id=1)
    assert ids_and_payloads(cursor, room=1) == [(0, b"a")]


@pytest.mark.parametrize("to", [0, 1, 4999, 5000, 9999, 10_000, 20_000])
def test_the_cursor_skips_to_an_entry(to):
    cursor = cursor_over([b""] * 10_000)
    cursor.skip_to(to)
    assert cursor.next_entry_id == min(to, 10_000)
    cursor.skip_to(0)
    assert len(ids_and_payloads(cursor)) == 10_000 - min(to, 10_000)
