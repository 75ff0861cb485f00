"""MapFiles that are not what they should be: refused with place, expected and found, or read right."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from entries import ledger_metadata
from mapfiles import (
    MARK,
    METADATA,
    THREE_RECORDS,
    THREE_VALUES,
    block,
    blocked,
    header_of,
    mapfile,
    plain,
    read_mapfile,
    record,
    stored,
)

from offload_core.format.codec.ledger_metadata import pack_ledger_metadata
from offload_core.format.codec.mapfile.index_file import parse_index_file
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    LONG_WRITABLE,
    CutOffError,
    FileCompression,
    pack_header,
    parse_header,
    parse_whole_header,
)
from offload_core.format.codec.mapfile.writer import SequenceFileWriter
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    DecompressionError,
    EntryOrderError,
    FormatError,
    MetadataError,
    TruncatedError,
    UnsupportedVersionError,
)

EACH = pytest.mark.parametrize("compression", FileCompression)
PAYLOADS = [b"first", b"", b"x" * 60, b"last"]


def refusal(written, **changed):
    with pytest.raises(FormatError) as caught:
        read_mapfile(replace(written, **changed))
    return caught.value


def changed(data, offset, packed):
    return data[:offset] + packed + data[offset + len(packed) :]


# --- whole, truncated, trailing, flipped -------------------------------------------------------


@EACH
def test_an_index_is_refused_at_every_shorter_length(compression):
    written = mapfile(PAYLOADS, compression=compression, index_interval=1, block_bytes=30)

    def records(index):
        found = parse_index_file(index, 10)
        return list(zip(found.keys.tolist(), found.positions.tolist(), strict=True))

    whole = records(written.index)
    assert len(whole) >= 2
    for length in range(len(written.index)):
        try:
            found = records(written.index[:length])
        except FormatError:
            continue
        assert found == whole[: len(found)]  # a file that ends behind one of its blocks is whole
        assert len(found) < len(whole)


@EACH
def test_a_flipped_bit_anywhere_is_refused_or_harmless(compression, sample):
    """Uncompressed payloads are guarded by `.crc` files and the checksums of Pulsar entries only."""
    written = mapfile(PAYLOADS, compression=compression)
    payloads = {i: payload for _, i, payload in written.entries}
    harmless = 0
    for name in ("data", "index"):
        data = getattr(written, name)
        for bit in sample(range(len(data) * 8), 15):
            damaged = changed(data, bit // 8, bytes([data[bit // 8] ^ 1 << bit % 8]))
            try:
                found = read_mapfile(replace(written, **{name: damaged}))
            except FormatError:
                continue
            assert [i for _, i, _ in found] == list(payloads)
            assert [len(payload) for *_, payload in found] == [len(p) for p in payloads.values()]
            if compression is not FileCompression.NONE:
                assert found == list(written.entries)
            harmless += 1
    metadata_bytes = len(pack_ledger_metadata(ledger_metadata(PAYLOADS)))
    payload_bits = (sum(map(len, PAYLOADS)) + metadata_bytes) * 8
    zlib_heads = 40  # level bits of zlib's heads that mean nothing to a reader
    assert harmless < (payload_bits if compression is FileCompression.NONE else 0) + 16 * 8 + zlib_heads * 8


# --- headers -----------------------------------------------------------------------------------


def test_headers_that_are_not_right_are_refused_with_their_place():
    good = pack_header(header_of(FileCompression.RECORD))
    codec_at = good.index(b"*org.apache.hadoop.io.compress.DefaultCodec")
    flags_at = codec_at - 2
    cases: list[tuple[bytes, type[FormatError], int]] = [
        (changed(good, 0, b"PAR1"), BadMagicError, 0),
        (changed(good, 3, b"\x04"), UnsupportedVersionError, 3),
        (changed(good, 3, b"\x07"), UnsupportedVersionError, 3),
        (changed(good, 6, b"X"), BadMagicError, 4),
        (changed(good, 4, b"\x7f"), BadMagicError, 4),
        (changed(good, 4, b"\xff"), BadLengthError, 5),
        (changed(good, flags_at, b"\0\1"), BadMagicError, flags_at),
        (changed(good, flags_at, b"\2\0"), BadMagicError, flags_at),
        (good.replace(b"DefaultCodec", b"SnappyCodec "), DecompressionError, codec_at),
        (changed(good, codec_at + 3, b"\xff"), MetadataError, codec_at),
        (changed(good, len(good) - 20, b"\xff\xff\xff\xff"), BadLengthError, len(good) - 20),
        (changed(good, len(good) - 20, b"\x7f\xff\xff\xff"), BadLengthError, len(good) - 20),
    ]
    for data, kind, offset in cases:
        with pytest.raises(FormatError) as caught:
            parse_whole_header(data, BYTES_WRITABLE)
        assert (type(caught.value), caught.value.offset) == (kind, offset)


@EACH
def test_a_header_that_is_cut_off_states_how_much_it_needs(compression):
    good = pack_header(header_of(compression))
    for length in range(len(good)):
        with pytest.raises(CutOffError) as caught:
            parse_header(good[:length], BYTES_WRITABLE, end=len(good))
        assert length < caught.value.needed <= len(good)


def test_a_header_with_metadata_is_read():
    header = replace(header_of(FileCompression.NONE), metadata=(("a", "b"), ("ключ", "")))
    assert parse_whole_header(pack_header(header) + b"more", BYTES_WRITABLE) == header


def test_a_data_file_is_no_index_and_an_index_no_data_file():
    written = mapfile(PAYLOADS)
    for data, value_class in ((written.data, LONG_WRITABLE), (written.index, BYTES_WRITABLE)):
        with pytest.raises(BadMagicError, match="value class"):
            parse_whole_header(data, value_class)


# --- records -----------------------------------------------------------------------------------


A, B, C = THREE_RECORDS


def test_records_that_are_right_are_read():
    assert [payload for *_, payload in read_mapfile(plain(A, MARK, B, C))] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("records", "kind", "at"),
    [
        ((A, struct.pack(">iiq", 7, 8, 1)), BadLengthError, 0),
        ((A, struct.pack(">iiq", -2, 8, 1)), BadLengthError, 0),
        ((A, struct.pack(">iiq", 1 << 30, 8, 1), b"xx"), BadLengthError, 0),
        ((A, struct.pack(">iiq", 13, 4, 1), b"xxxxx"), BadLengthError, 4),
        ((A, record(0, stored(b"again"))), EntryOrderError, 8),
        ((A, record(-5, stored(b"back"))), EntryOrderError, 8),
        ((A, B, C, record(3, stored(b"too many"))), EntryOrderError, None),
        ((A, B), EntryOrderError, None),
        ((A, record(1, b"\0\0\0\2x"), C), BadLengthError, 16),
        ((A, record(1, b"\xff\xff\xff\xff"), C), BadLengthError, 16),
        ((A, record(1, b"\0\0"), C), BadLengthError, 16),
        ((A, b"\xff\xff\xff\xff" + bytes(16), B, C), BadMagicError, 4),
        ((A, MARK, MARK, B, C), BadLengthError, 20),
        ((A, MARK[:10]), TruncatedError, 4),
        ((A, B[:3]), TruncatedError, 0),
    ],
)
def test_a_record_that_is_wrong_is_refused_with_its_byte(records, kind, at):
    written = plain(*records)
    found: list[tuple[int, int, bytes]] = []
    with pytest.raises(FormatError) as caught:
        read_mapfile(written, into=found)
    error = caught.value
    assert type(error) is kind
    if at is not None:  # else it is known only behind the last
        assert error.offset == len(plain(A).data) + at
    assert (error.key, error.ledger_id, error.block) == (written.key.data_key, 7, 1)
    assert [payload for *_, payload in found] == [b"a", b"b", b"c"][: len(found)]


@EACH
@pytest.mark.parametrize(
    "records",
    [
        [],
        [(0, b"an entry")],
        [(-1, b"\xff\xff")],
        [(-1, pack_ledger_metadata(ledger_metadata([], last_entry_id=None)))],
    ],
    ids=["none", "an entry first", "metadata that is none", "an open ledger's"],
)
def test_a_file_that_does_not_begin_with_the_metadata_of_a_closed_ledger_is_refused(compression, records):
    writer = SequenceFileWriter(header_of(compression))
    for key, value in records:
        writer.append(key, stored(value))
    assert isinstance(refusal(plain(), data=writer.finish()), MetadataError)


def test_a_zlib_stream_that_is_wrong_is_refused_with_its_entry():
    def deflated(*values):
        parts = [record(-1, zlib.compress(METADATA))]
        parts += [record(i, value) for i, value in enumerate(values)]
        written = mapfile([b"a", b"b", b"c"], compression=FileCompression.RECORD)
        return replace(written, data=pack_header(header_of(FileCompression.RECORD)) + b"".join(parts))

    a, b, c = (zlib.compress(stored(payload)) for payload in (b"a", b"b", b"c"))
    assert len(read_mapfile(deflated(a, b, c))) == 3
    for wrong in (b"", b[:-1], b + b"x", changed(b, 0, b"\x79"), b[:-1] + bytes([b[-1] ^ 1])):
        error = refusal(deflated(a, wrong, c))
        assert isinstance(error, DecompressionError)
        assert (error.entry_id, error.offset) == (1, len(deflated(a).data))
    error = refusal(deflated(a, zlib.compress(b"\0\0\0\7b"), c))
    assert isinstance(error, BadLengthError)
    assert error.entry_id == 1


# --- blocks ------------------------------------------------------------------------------------


VALUES = THREE_VALUES


def test_a_block_that_is_right_is_read():
    part = block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\5\5", VALUES)
    assert [payload for *_, payload in read_mapfile(blocked(part))] == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\5\5", VALUES, b"\0" * 20), BadMagicError),
        (block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\5\5", VALUES, b"\xff" * 20), BadMagicError),
        (block(0, b"", [], b"", b""), BadLengthError),
        (block(-1, b"\x08\x08\x08", [0, 1, 2], b"\5\5\5", VALUES), BadLengthError),
        (block(1 << 40, b"\x08\x08\x08", [0, 1, 2], b"\5\5\5", VALUES), BadLengthError),
        (block(4, b"\x08\x08\x08", [0, 1, 2], b"\5\5\5", VALUES), BadLengthError),
        (block(2, b"\x08\x08\x08", [0, 1, 2], b"\5\5\5", VALUES), DecompressionError),
        (block(3, b"\x08\x07\x08", [0, 1, 2], b"\5\5\5", VALUES), BadLengthError),
        (block(3, b"\x08\x08\x08", [0, 1], b"\5\5\5", VALUES), BadLengthError),
        (block(3, b"\x08\x08\x08", [0, 2, 1], b"\5\5\5", VALUES), EntryOrderError),
        (block(3, b"\x08\x08\x08", [-1, 1, 2], b"\5\5\5", VALUES), EntryOrderError),
        (block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\5", VALUES), BadLengthError),
        (block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\5\5\5", VALUES), BadLengthError),
        (block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\xff\5", VALUES), BadLengthError),
        (block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\x8c\xff\xff\xff\xff\5", VALUES), BadLengthError),
        (block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\5\6", VALUES), DecompressionError),
        (block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\5\4", VALUES), DecompressionError),
        (block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\4\6", VALUES), BadLengthError),
        (block(2, b"\x08\x08", [0, 1], b"\5\5", VALUES[:10]), EntryOrderError),
    ],
)
def test_a_block_that_is_wrong_is_refused(part, kind):
    error = refusal(blocked(part))
    assert type(error) is kind, error
    assert error.ledger_id == 7
    assert error.offset >= len(blocked(b"").data)
