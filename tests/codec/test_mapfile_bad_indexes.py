"""Indexes that do not fit their data, declared sizes that nothing stands behind: refused, and in bounded memory."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from contextlib import contextmanager
from dataclasses import replace

import pytest
from mapfiles import (
    INDEX_SYNC,
    MARK,
    SYNC,
    THREE_RECORDS,
    THREE_VALUES,
    block,
    blocked,
    header_of,
    index_file,
    index_of,
    mapfile,
    plain,
    read_mapfile,
    stretch_entries,
)

from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.mapfile.index_file import parse_index_file, parse_mapfile
from offload_core.format.codec.mapfile.sequence_file import (
    LONG_WRITABLE,
    CutOffError,
    FileCompression,
    pack_counted,
    pack_header,
    pack_vint,
)
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    DecompressionError,
    EntryOrderError,
    FormatError,
    IndexMismatchError,
    OptionError,
)

PAYLOADS = [b"first", b"", b"x" * 60, b"last"]
A, B, C = THREE_RECORDS


@contextmanager
def memory_below(most_bytes):
    """The block allocates less than this at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most_bytes
    finally:
        tracemalloc.stop()


def refusal(written, **changed):
    with pytest.raises(FormatError) as caught:
        read_mapfile(replace(written, **changed))
    return caught.value


# --- an index and its data ---------------------------------------------------------------------


START = len(pack_header(header_of(FileCompression.NONE)))


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        ([], BadLengthError),
        ([(0, START)], IndexMismatchError),
        ([(-1, START + 1)], IndexMismatchError),
        ([(-1, START), (1, START)], EntryOrderError),
        ([(-1, START), (1, START + 40), (0, START + 60)], EntryOrderError),
        ([(-1, START), (1, START + 40), (1, START + 60)], EntryOrderError),
        ([(-1, START), (3, START + 60)], IndexMismatchError),
        ([(-1, START), (1, 1 << 40)], IndexMismatchError),
        ([(i, START + i + 1) for i in range(-1, 40)], BadLengthError),
    ],
)
def test_an_index_that_does_not_fit_its_data_is_refused(records, kind):
    assert type(refusal(plain(A, B, C), index=index_file(*records))) is kind


def test_a_position_between_records_is_refused_when_it_is_read():
    written = mapfile([b"%d" % i * 200 for i in range(9)], compression=FileCompression.NONE, index_interval=3)
    right = index_of(written, stretch_bytes=1)
    positions = [(b.first_entry_id, b.offset) for b in right.ledgers[0].blocks[1:]]
    for off in (-1, 1, 4, 16):
        moved = [(-1, START), *((key, at + off) for key, at in positions)]
        with pytest.raises(FormatError):
            read_mapfile(replace(written, index=index_file(*moved)), stretch_bytes=1)
    renamed = [(-1, START), *((key - 1, at) for key, at in positions)]
    with pytest.raises(FormatError, match="goes on behind"):
        read_mapfile(replace(written, index=index_file(*renamed)), stretch_bytes=1)


def test_another_header_than_when_the_index_was_read_is_refused():
    written = mapfile(PAYLOADS)
    index = index_of(written)
    other = written.data.replace(SYNC, INDEX_SYNC)
    with pytest.raises(BadMagicError, match="header"):
        list(stretch_entries(other, index, index.ledgers[0].blocks[0], None))


def test_an_index_is_not_decoded_without_its_data_file():
    written = mapfile(PAYLOADS)
    with pytest.raises(OptionError, match="beginning of its data file"):
        parse_index(written.index, written.key)
    with pytest.raises(BadMagicError):
        parse_index(b"\xde\x47\xde\x47", written.key)


# --- bounds ------------------------------------------------------------------------------------


def test_declared_sizes_do_not_allocate():
    bomb = block(3, b"\x08\x08\x08", [0, 1, 2], b"\5\5" + pack_vint((1 << 31) - 1), THREE_VALUES)
    many = block((1 << 31) - 1, b"\x08\x08\x08", [0, 1, 2], b"\5\5\5", THREE_VALUES)
    long = pack_header(header_of(FileCompression.NONE)) + struct.pack(">iiq", 1 << 30, 8, -1)
    with memory_below(4 << 20):
        for part in (bomb, many):
            refusal(blocked(part))
        refusal(plain(), data=long)


def test_a_block_of_more_records_than_there_can_be_is_refused_before_they_are_inflated():
    count = 6 << 20
    fields = (zlib.compress(b"\x08" * count), zlib.compress(bytes(1 << 20)))
    head = pack_header(header_of(FileCompression.BLOCK, LONG_WRITABLE))
    data = head + MARK + pack_vint(count) + b"".join(map(pack_counted, fields))
    with memory_below(1 << 20), pytest.raises(BadLengthError, match="cannot have so many records"):
        parse_index_file(data, 1 << 40)


def test_an_index_that_inflates_without_end_is_refused_before():
    keys = zlib.compress(bytes(8 << 20))
    fields = (zlib.compress(b"\x08\x08"), keys, zlib.compress(b"\x08\x08"), zlib.compress(bytes(16)))
    head = pack_header(header_of(FileCompression.BLOCK, LONG_WRITABLE))
    data = head + MARK + pack_vint(2) + b"".join(map(pack_counted, fields))
    with memory_below(4 << 20), pytest.raises(DecompressionError, match="more than it may"):
        parse_index_file(data, 10)


@pytest.mark.parametrize("compression", FileCompression)
def test_of_the_beginning_as_much_is_asked_for_as_the_metadata_takes(compression):
    written = mapfile([bytes(100) for _ in range(3000)], compression=compression)
    whole = index_of(written)
    lengths = [0]
    parsed = None
    while parsed is None:
        try:
            parsed = parse_mapfile(written.index, written.data[: lengths[-1]], len(written.data), 7)
        except CutOffError as cut:
            lengths.append(cut.needed)
    assert parsed == whole
    assert lengths == sorted(set(lengths))
    assert lengths[-1] < 9000
