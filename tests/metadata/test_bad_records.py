"""Records that are none: refused with an error that names the place, whatever the bytes; nothing grows by a lie."""

from __future__ import annotations

import struct

import pytest
from effort import effort
from hypothesis import given
from hypothesis import strategies as st
from records import STANDALONE_RECORDS, ZOOKEEPER_RECORDS, closed, copied, managed_ledger, segment
from tiers import uuid_of

from offload_core.format.messages.compression import Compression
from offload_core.metadata.records import (
    OffloadContext,
    StandaloneHeader,
    StoredRecord,
    pack_managed_ledger_info,
    pack_stored_record,
    parse_managed_ledger_info,
    parse_stored_record,
)
from offload_core.metadata.records import stored_record as module
from offload_hooks.errors import (
    BadLengthError,
    DecompressionError,
    FormatError,
    MetadataError,
    TruncatedError,
    UnsupportedVersionError,
)
from offload_proto import managed_ledger_pb2 as records

INFO = managed_ledger(
    closed(3, 10, copied(uuid_of(1))),
    closed(4, 10, OffloadContext.of_segments([segment(uuid_of(2), 4), segment(uuid_of(3), 9)])),
)
BARE = pack_managed_ledger_info(INFO)
HEADER = StandaloneHeader(version=1, owner=2, created_ms=3, modified_ms=4)
CODECS = [codec for codec in Compression if codec is not Compression.NONE]


def packed(compression, standalone=None):
    return pack_stored_record(StoredRecord(info=INFO, compression=compression, standalone=standalone))


def wrapped(codec, size, payload):
    head = b"\x08" + bytes([codec]) + b"\x10" + varint(size)
    return struct.pack(">HI", 0x4778, len(head)) + head + payload


def varint(number):
    number &= 2**64 - 1
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


# --- cut off, changed, anything ----------------------------------------------------------------


@pytest.mark.parametrize("standalone", [None, HEADER], ids=["zookeeper", "standalone"])
@pytest.mark.parametrize("compression", Compression)
def test_a_record_that_is_cut_off_is_refused_or_is_a_shorter_one(compression, standalone):
    whole = packed(compression, standalone)
    for length in range(len(whole)):
        try:
            found = parse_stored_record(whole[:length])
        except FormatError:
            continue
        # a bare protobuf does not tell its length: it may end where a ledger ends, and nothing is a record, too
        kept = len(found.info.ledgers)
        assert found.info.ledgers == INFO.ledgers[:kept]
        assert kept == 0 or (kept < 2 and compression is Compression.NONE)


@pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD, Compression.SNAPPY])
def test_bytes_behind_a_compressed_record_are_refused(compression):
    """Not behind zlib's, which knows its own end and is taken as Java's takes it."""
    with pytest.raises(FormatError):
        parse_stored_record(packed(compression) + b"\x00")


@pytest.mark.parametrize("path", [*STANDALONE_RECORDS[:2], *ZOOKEEPER_RECORDS], ids=lambda path: path.name)
def test_a_flipped_bit_gives_a_record_or_an_error_and_nothing_else(path):
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            try:
                parse_stored_record(changed)
            except FormatError:
                continue


@effort(2)
@given(
    st.binary(max_size=60)
    | st.binary(max_size=60).map(lambda data: b"\x00\x00\x00\x29\x00\x00\x00\x01" + data)
    | st.binary(max_size=60).map(lambda data: b"\x47\x78\x00\x00\x00\x04" + data)
    | st.tuples(st.integers(0, 4), st.integers(0, 2**20), st.binary(max_size=40)).map(
        lambda each: wrapped(*each)
    )
)
def test_any_bytes_give_a_record_or_an_error_and_nothing_else(data):
    try:
        parse_stored_record(data)
    except FormatError:
        return


# --- each kind, with its place -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("byte", "value", "kind", "message"),
    [
        (7, 2, UnsupportedVersionError, r"\(byte 4\): expected 1, found 2"),
        (3, 42, BadLengthError, r"\(byte 0\): expected 41, found 42"),
    ],
    ids=["format", "length"],
)
def test_another_standalones_header_is_named(byte, value, kind, message):
    changed = bytearray(packed(Compression.NONE, HEADER))
    changed[byte] = value
    with pytest.raises(kind, match=message):
        parse_stored_record(changed)


def test_damage_behind_a_standalones_header_is_placed_there():
    with pytest.raises(MetadataError, match=r"record cannot be parsed.*\(byte 41\)"):
        parse_stored_record(packed(Compression.NONE, HEADER)[:-1])


@pytest.mark.parametrize(("standalone", "byte"), [(None, 2), (HEADER, 43)])
def test_a_head_longer_than_the_record_is_refused(standalone, byte):
    changed = bytearray(packed(Compression.LZ4, standalone))
    changed[byte : byte + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(TruncatedError, match=rf"head of a compressed record is cut off \(byte {byte}\)"):
        parse_stored_record(changed)


@pytest.mark.parametrize("size", [-1, -(2**31), module.MAX_RECORD_BYTES + 1, 2**31 - 1])
@pytest.mark.parametrize("codec", Compression)
def test_an_impossible_size_is_refused_before_anything_is_allocated(codec, size):
    with pytest.raises(BadLengthError, match=r"impossible size \(byte 6\)"):
        parse_stored_record(wrapped(codec, size, b"x"))


@pytest.mark.parametrize("wrong_by", [-1, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_record_of_another_size_than_declared_is_refused(codec, wrong_by):
    payload = packed(codec)[6 + packed(codec)[5] :]
    data = wrapped(codec, len(BARE) + wrong_by, payload)
    with pytest.raises(DecompressionError, match=rf"\(byte {len(data) - len(payload)}\)"):
        parse_stored_record(data)


def test_a_head_without_compression_is_accepted_if_its_size_is_right():
    assert parse_stored_record(wrapped(0, len(BARE), BARE)).info == INFO
    with pytest.raises(BadLengthError, match="another size than its head says"):
        parse_stored_record(wrapped(0, len(BARE) + 1, BARE))


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (b"\x08\x05\x10\x01", "lacks what is required: expected compressionType"),
        (b"\x08\x01", "lacks what is required: expected uncompressedSize"),
        (b"\x08", "cannot be parsed"),
    ],
)
def test_a_head_that_is_none_is_named(head, says):
    with pytest.raises(MetadataError, match=f"(?s)the head of a compressed record .*{says.split(':')[0]}"):
        parse_stored_record(struct.pack(">HI", 0x4778, len(head)) + head + b"x")


def test_a_record_larger_than_the_limit_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_RECORD_BYTES", len(BARE) - 1)
    with pytest.raises(BadLengthError, match="too large"):
        parse_stored_record(BARE)


def test_a_ledger_that_stands_twice_is_named():
    with pytest.raises(MetadataError, match=r"more than once \(ledger 3\)"):
        parse_managed_ledger_info(BARE + BARE)


def test_what_is_required_and_missing_is_named():
    info = records.ManagedLedgerInfo()
    info.ledgerInfo.add(entries=3)
    with pytest.raises(MetadataError, match=r"a ledger in .* lacks what is required.*ledgerId"):
        parse_managed_ledger_info(info.SerializePartialToString())


SEGMENT = bytes.fromhex("0801 1002 3a 04 0a025333")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"uidMsb": 1}, "half of a uuid"),
        ({"offloadSegment": [SEGMENT, b"\x08"]}, "offload segment 2 of 2 cannot be parsed"),
        ({"offloadSegment": [SEGMENT, b"\x08\x01"]}, "offload segment 2 of 2 lacks what is required"),
        (
            {"offloadSegment": [bytes.fromhex("0801 1002 3a 03 0a01ff")]},
            "a text in driver metadata is not UTF-8",
        ),
    ],
)
def test_a_context_that_is_none_is_named_with_its_ledger(fields, message):
    info = records.ManagedLedgerInfo()
    info.ledgerInfo.add(ledgerId=8, offloadContext=records.OffloadContext(**fields))
    with pytest.raises(MetadataError, match=rf"{message}.*\(ledger 8"):
        parse_managed_ledger_info(info.SerializePartialToString())


def test_an_empty_record_is_a_managed_ledger_without_ledgers():
    assert parse_stored_record(b"").info.ledgers == ()
