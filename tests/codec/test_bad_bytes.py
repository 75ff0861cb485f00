"""Objects that are not what they should be: refused with place, expected and found, or read right."""

from __future__ import annotations

import struct

import pytest
from entries import LedgerPart, ledger_metadata, pip17_object, read_object, streaming_object

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    EntryOrderError,
    FormatError,
    IndexMismatchError,
    PaddingError,
    TruncatedError,
)

UUID = "00000000-1111-4222-8333-0000000000aa"

PIP17 = pip17_object([b"first", b"", b"x" * 60, b"last"], max_block_bytes=240)
STREAMING = streaming_object(
    [
        LedgerPart(ledger_id=30, blocks=[[b"a", b"bc"], [b"def"]], first_entry_id=5),
        LedgerPart(ledger_id=21, blocks=[[b"", b"ghij"]]),
    ],
    min_block_bytes=192,
)
BOTH = pytest.mark.parametrize("written", [PIP17, STREAMING], ids=["pip17", "streaming"])


def block_offsets(written):
    index = parse_index(written.index, written.key)
    return sorted(block.offset for ledger in index.ledgers for block in ledger.blocks)


def refusal(data, index, key):
    with pytest.raises(FormatError) as caught:
        read_object(data, index, key)
    return caught.value


def changed(data, offset, packed):
    return data[:offset] + packed + data[offset + len(packed) :]


def reads_right_or_is_refused(written, data, index):
    """True if it is refused."""
    try:
        found = read_object(data, index, written.key)
    except FormatError:
        return True
    assert found == list(written.entries)
    return False


# --- whole, truncated, trailing, flipped -------------------------------------------------------


def test_a_directory_inside_a_pip17_index_is_tolerated():
    longer = changed(PIP17.index, 4, struct.pack(">i", len(PIP17.index) + 8)) + bytes(8)
    assert parse_index(longer, PIP17.key) == parse_index(PIP17.index, PIP17.key)


@BOTH
def test_every_flipped_bit_of_a_block_header_is_harmless_or_refused(written):
    said = 28 if written is PIP17 else 36
    for start in block_offsets(written):
        for bit in range(BLOCK_HEADER_BYTES * 8):
            data = bytearray(written.data)
            data[start + bit // 8] ^= 1 << bit % 8
            refused = reads_right_or_is_refused(written, bytes(data), written.index)
            assert refused == (bit // 8 < said)


# --- one fault each, with what the error says --------------------------------------------------


def test_an_index_of_another_object_is_refused():
    other = pip17_object([b"first", b"x" * 60, b"last"], max_block_bytes=240)
    error = refusal(PIP17.data, other.index, PIP17.key)
    assert error.key == PIP17.key.data_key
    assert error.ledger_id == 7


def test_a_block_of_another_ledger_is_refused():
    data = changed(STREAMING.data, 28, struct.pack(">q", 31))
    error = refusal(data, STREAMING.index, STREAMING.key)
    assert isinstance(error, IndexMismatchError)
    assert error.fields() == {
        "what": "a block's ledger is not what its index says",
        "key": UUID,
        "ledger_id": 30,
        "block": 1,
        "offset": 28,
        "expected": "30 by the index",
        "found": "31 in the block",
    }


@pytest.mark.parametrize(
    ("at", "found", "kind", "what", "expected"),
    [
        (0, 0x26A66D32, BadMagicError, "this is not a block of a pip17 object", "FBDBABCB"),
        (4, 129, BadLengthError, "a block declares a header of another length", 128),
        (12, -1, BadLengthError, "a block declares to be shorter than its header", "128 or more"),
        (12, 241, IndexMismatchError, "a block's length is not what its index says", "240 by the index"),
        (20, -3, BadLengthError, "a block's first entry id is negative", "0 or more"),
        (20, 1, IndexMismatchError, "a block's first entry is not what its index says", "0 by the index"),
        (128, -2, BadLengthError, "an entry's length is negative", "0 or more"),
        (128, 101, BadLengthError, "an entry's length reaches past its block", "at most 100"),
        (132, 1, EntryOrderError, "an entry is not the one that must come next", "entry id 0"),
    ],
)
def test_a_fault_of_a_block_is_named(at, found, kind, what, expected):
    packed = struct.pack({0: ">I", 128: ">i"}.get(at, ">q"), found)
    error = refusal(changed(PIP17.data, at, packed), PIP17.index, PIP17.key)
    shown = {
        BadMagicError: "26A66D32",
        IndexMismatchError: f"{found} in the block",
        EntryOrderError: "entry id 1",
    }
    assert type(error) is kind
    assert (error.what, error.expected, error.found) == (what, expected, shown.get(kind, found))
    assert (error.key, error.ledger_id, error.block, error.offset) == (f"{UUID}-ledger-7", 7, 1, at)
    assert error.entry_id == (0 if at >= 128 else None)


@pytest.mark.parametrize("ids", [(0, 2, 1), (0, 0, 1), (0, 1, 1), (0, 1, 3), (0, -1, 2), (1, 2, 3)])
def test_entry_ids_out_of_order_are_refused(ids):
    written = pip17_object([b"", b"", b""])
    data = written.data
    for i, entry_id in enumerate(ids):
        data = changed(data, 128 + 12 * i + 4, struct.pack(">q", entry_id))
    error = refusal(data, written.index, written.key)
    wrong = next(i for i in range(3) if ids[i] != i)
    assert isinstance(error, EntryOrderError)
    assert (error.entry_id, error.offset) == (wrong, 128 + 12 * wrong + 4)
    assert (error.expected, error.found) == (f"entry id {wrong}", f"entry id {ids[wrong]}")


@pytest.mark.parametrize("tail", [b"\xfe\xdc\xde\xad\xfe\xdc\xde", b"\0" * 11, b"\xdc", b"\xfe\xfe"])
def test_a_tail_that_is_neither_frame_nor_padding_is_refused(tail):
    written = pip17_object([b"a"])
    data = changed(written.data, 12, struct.pack(">q", len(written.data) + len(tail))) + tail
    metadata = parse_index(written.index, written.key).ledgers[0].metadata
    index = pack_pip17_index(metadata, [BlockEntry(first_entry_id=0, part_number=1, offset=0)], len(data))
    if tail[:2] == b"\xfe\xdc":
        assert read_object(data, index, written.key) == [(7, 0, b"a")]
        return
    error = refusal(data, index, written.key)
    assert isinstance(error, (TruncatedError, PaddingError))
    assert (error.ledger_id, error.block, error.entry_id) == (7, 1, 1)
    assert error.offset == len(written.data)
    assert tail.hex() in str(error.found)


def test_broken_padding_is_named_where_it_breaks():
    data = changed(STREAMING.data, 150 + 12 + 10, b"\0")
    error = refusal(data, STREAMING.index, STREAMING.key)
    assert isinstance(error, PaddingError)
    assert (error.offset, error.entry_id, error.expected, error.found) == (172, 7, "dc", "00")


def test_a_block_with_more_entries_than_its_index_says_is_refused():
    written = pip17_object([b"a", b"b", b"c"])
    index = pack_pip17_index(
        ledger_metadata([b"a", b"b"]),
        [BlockEntry(first_entry_id=0, part_number=1, offset=0)],
        len(written.data),
    )
    assert isinstance(refusal(written.data, index, written.key), EntryOrderError)


def test_a_block_without_entries_is_refused_even_if_its_end_is_not_known():
    data = changed(STREAMING.data, block_offsets(STREAMING)[1] + 128, b"\xfe\xdc\xde\xad" * 16)
    error = refusal(data, STREAMING.index, STREAMING.key)
    assert isinstance(error, EntryOrderError)
    assert (error.block, error.expected, error.found) == (2, "an entry", "the end after entry 6")
