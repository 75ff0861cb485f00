"""Indexes that are not what they should be: each fault is refused with its place."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from entries import ledger_metadata

from offload_core.format.codec.ledger_metadata import LedgerInfo, pack_ledger_metadata
from offload_core.format.codec.pip17 import parse_pip17_index
from offload_core.format.codec.streaming import parse_streaming_index
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    EntryOrderError,
    FormatError,
    IndexMismatchError,
    MetadataError,
    TruncatedError,
)


def pip17_index(**changes):
    """A PIP-17 index with fields of its head changed, and more blocks if asked for."""
    lines = changes.pop("blocks", [(0, 1, 0), (3, 2, 250)])
    record = changes.pop("record", pack_ledger_metadata(ledger_metadata([b""] * 5)))
    head = {
        "magic": 0xDE47DE47,
        "length": 36 - 4 + len(record) + 20 * len(lines),
        "data_length": 400,
        "header_length": 128,
        "count": len(lines),
        "metadata_length": len(record),
    } | changes
    packed = b"".join(struct.pack(">qiq", *line) for line in lines)
    return struct.pack(">Iiqqii", *head.values()) + record + packed


def test_the_index_written_by_hand_is_read():
    index = parse_pip17_index(pip17_index(), 7)
    assert [(b.first_entry_id, b.end_entry_id, b.offset, b.length) for b in index.ledgers[0].blocks] == [
        (0, 3, 0, 250),
        (3, 5, 250, 150),
    ]


def without(field):
    record = ledger_metadata([b""] * 5)
    packed = pack_ledger_metadata(record)
    tags = {"quorumSize": 0x08, "ensembleSize": 0x10, "length": 0x18, "state": 0x28}
    at = packed.index(bytes([tags[field]]))
    return packed[:at] + packed[at + 2 :]


@pytest.mark.parametrize(
    ("index", "kind", "offset"),
    [
        (pip17_index(magic=0x3D1FB0BC), BadMagicError, 0),
        (pip17_index(length=-1), BadLengthError, 4),
        (pip17_index(length=0), BadLengthError, 4),
        (pip17_index(length=40), BadLengthError, 4),
        (pip17_index(length=2**31 - 1), TruncatedError, 4),
        (pip17_index(data_length=-1), BadLengthError, 8),
        (pip17_index(data_length=127), BadLengthError, 8),
        (pip17_index(header_length=0), BadLengthError, 16),
        (pip17_index(header_length=-128), BadLengthError, 16),
        (pip17_index(count=0), BadLengthError, 24),
        (pip17_index(count=-1), BadLengthError, 24),
        (pip17_index(count=3), BadLengthError, 4),
        (pip17_index(count=2**31 - 1), BadLengthError, 4),
        (pip17_index(metadata_length=-1), BadLengthError, 4),
        (pip17_index(metadata_length=2**31 - 1), BadLengthError, 4),
        (pip17_index(blocks=[(0, 1, 0), (3, 2, 0)]), BadLengthError, None),
        (pip17_index(blocks=[(0, 1, 0), (3, 2, 127)]), BadLengthError, None),
        (pip17_index(blocks=[(0, 1, 0), (3, 2, 300)]), BadLengthError, None),
        (pip17_index(blocks=[(0, 1, 1), (3, 2, 200)]), BadLengthError, None),
        (pip17_index(blocks=[(0, 1, -128), (3, 2, 0)]), BadLengthError, None),
        (pip17_index(blocks=[(3, 2, 250), (0, 1, 0)]), EntryOrderError, None),
        (pip17_index(blocks=[(0, 1, 250), (3, 2, 0)]), EntryOrderError, None),
        (pip17_index(blocks=[(0, 1, 0), (0, 2, 250)]), EntryOrderError, None),
        (pip17_index(blocks=[(0, 1, 0), (5, 2, 250)]), EntryOrderError, None),
        (pip17_index(blocks=[(-1, 1, 0), (3, 2, 250)]), EntryOrderError, None),
        (pip17_index(blocks=[(1, 1, 0), (3, 2, 250)]), BadLengthError, None),
        (pip17_index(record=b""), MetadataError, 32),
        (pip17_index(record=b"\xff"), MetadataError, 32),
        (pip17_index(record=without("state")), MetadataError, 32),
        (pip17_index(record=without("length")), MetadataError, 32),
    ],
)
def test_a_fault_of_a_pip17_index_is_named(index, kind, offset):
    with pytest.raises(FormatError) as caught:
        parse_pip17_index(index, 7)
    assert type(caught.value) is kind
    if offset is not None:
        assert caught.value.offset == offset
    else:
        assert caught.value.ledger_id == 7
        assert caught.value.offset is not None


def test_an_open_ledger_has_no_object():
    index = pip17_index(record=pack_ledger_metadata(ledger_metadata([], last_entry_id=None)))
    with pytest.raises(MetadataError) as caught:
        parse_pip17_index(index, 7)
    assert caught.value.what == "the metadata of an offloaded ledger has no last entry"


def test_names_in_metadata_must_be_text():
    record = pack_ledger_metadata(ledger_metadata([b""] * 5)).replace(b"bookie-0", b"bookie-\xff")
    with pytest.raises(MetadataError, match="not UTF-8"):
        parse_pip17_index(pip17_index(record=record), 7)


def streaming_index(ledgers, **changes):
    """A streaming index of (ledger id, count, metadata length, metadata, blocks), its head changed."""
    body = b"".join(
        struct.pack(">qii", ledger_id, count, size)
        + record
        + b"".join(struct.pack(">qiq", *b) for b in blocks)
        for ledger_id, count, size, record, blocks in ledgers
    )
    head = {"magic": 0x3D1FB0BC, "length": 24 + len(body), "data_length": 400, "header_length": 128} | changes
    return struct.pack(">Iiqq", *head.values()) + body


INFO_30, INFO_31 = b"\x08\x1e", b"\x08\x1f"
ONE = (30, 1, 2, INFO_30, [(4, 1, 0)])
OTHER = (31, 1, 2, INFO_31, [(0, 2, 200)])


def test_the_streaming_index_written_by_hand_is_read():
    index = parse_streaming_index(streaming_index([ONE, OTHER]))
    assert [ledger.metadata for ledger in index.ledgers] == [
        LedgerInfo(ledger_id=30),
        LedgerInfo(ledger_id=31),
    ]
    assert [(b.offset, b.length, b.end_entry_id) for ledger in index.ledgers for b in ledger.blocks] == [
        (0, 200, None),
        (200, 200, None),
    ]


def test_part_numbers_may_be_anything():
    index = streaming_index([(30, 1, 2, INFO_30, [(4, 0, 0)]), (31, 1, 2, INFO_31, [(0, -7, 200)])])
    assert [ledger.blocks[0].part_number for ledger in parse_streaming_index(index).ledgers] == [0, -7]


@pytest.mark.parametrize(
    ("index", "kind"),
    [
        (streaming_index([ONE], magic=0xDE47DE47), BadMagicError),
        (streaming_index([ONE], length=-1), BadLengthError),
        (streaming_index([ONE], length=-8) + bytes(8), BadLengthError),
        (streaming_index([ONE], length=0), BadLengthError),
        (streaming_index([ONE], length=23), BadLengthError),
        (streaming_index([ONE], length=24), TruncatedError),
        (streaming_index([ONE], length=2**31 - 1), TruncatedError),
        (streaming_index([ONE], data_length=127), BadLengthError),
        (streaming_index([ONE], header_length=127), BadLengthError),
        (streaming_index([]), TruncatedError),
        (streaming_index([(30, 0, 2, INFO_30, [(4, 1, 0)])]), BadLengthError),
        (streaming_index([(30, -1, 2, INFO_30, [(4, 1, 0)])]), BadLengthError),
        (streaming_index([(30, 2, 2, INFO_30, [(4, 1, 0)])]), BadLengthError),
        (streaming_index([(30, 2**31 - 1, 2, INFO_30, [(4, 1, 0)])]), BadLengthError),
        (streaming_index([(30, 1, -1, INFO_30, [(4, 1, 0)])]), BadLengthError),
        (streaming_index([(30, 1, 2**31 - 1, INFO_30, [(4, 1, 0)])]), BadLengthError),
        (streaming_index([(30, 1, 2, INFO_31, [(4, 1, 0)])]), IndexMismatchError),
        (streaming_index([ONE, ONE]), IndexMismatchError),
        (streaming_index([(30, 1, 0, b"", [(4, 1, 0)])]), MetadataError),
        (streaming_index([(30, 1, 2, b"\x08\xff", [(4, 1, 0)])]), MetadataError),
        (streaming_index([(30, 1, 2, INFO_30, [(4, 1, 1)])]), BadLengthError),
        (streaming_index([(30, 1, 2, INFO_30, [(-4, 1, 0)])]), EntryOrderError),
        (streaming_index([ONE, (31, 1, 2, INFO_31, [(0, 2, 0)])]), BadLengthError),
        (streaming_index([(30, 2, 2, INFO_30, [(4, 1, 200), (5, 2, 0)])]), EntryOrderError),
        (streaming_index([(30, 2, 2, INFO_30, [(4, 1, 0), (4, 2, 200)])]), EntryOrderError),
    ],
)
def test_a_fault_of_a_streaming_index_is_named(index, kind):
    with pytest.raises(FormatError) as caught:
        parse_streaming_index(index)
    assert type(caught.value) is kind
    assert caught.value.offset is not None


@pytest.mark.parametrize(
    "parse",
    [
        lambda: parse_pip17_index(pip17_index(count=2**31 - 1, length=2**31 - 1), 7),
        lambda: parse_pip17_index(pip17_index(count=2**31 - 1), 7),
        lambda: parse_pip17_index(pip17_index(metadata_length=2**31 - 1), 7),
        lambda: parse_streaming_index(streaming_index([(30, 2**31 - 1, 2, INFO_30, [(4, 1, 0)])])),
        lambda: parse_streaming_index(streaming_index([(30, 1, 2**31 - 1, INFO_30, [(4, 1, 0)])])),
    ],
)
def test_counts_that_lie_take_no_memory(parse):
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            parse()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
