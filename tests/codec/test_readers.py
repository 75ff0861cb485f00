"""All readers of stored bytes by one table: whole, cut off at each length, with bytes after them, each bit flipped.

A reader gives the right value or raises a `FormatError`. Damage that only one reader can have is tested beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from entries import LedgerPart, pip17_object, read_object, streaming_object
from golden import load_case
from mapfiles import MARK, header_of, mapfile, read_mapfile

from offload_core.format.codec.block_checksums import parse_block_checksums
from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, parse_block_header
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.entry_directory import Anchors, pack_directory, parse_directory
from offload_core.format.codec.mapfile.crc_files import HEAD_BYTES, make_checksums, verify_whole
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    FileCompression,
    pack_header,
    parse_whole_header,
)
from offload_hooks.errors import BadLengthError, FormatError, TruncatedError

PAYLOADS = [b"first", b"", b"x" * 60, b"last"]
PIP17 = pip17_object(PAYLOADS, max_block_bytes=240)
STREAMING = streaming_object(
    [
        LedgerPart(ledger_id=30, blocks=[[b"a", b"bc"], [b"def"]], first_entry_id=5),
        LedgerPart(ledger_id=21, blocks=[[b"", b"ghij"]]),
    ],
    min_block_bytes=192,
)
DIRECTORY = pack_directory(Anchors(entry_ids=np.array([0, 5]), offsets=np.array([128, 0x100003])))
CHECKSUMS = (Path(__file__).parents[1] / "docs" / "block-checksums-v1.bin").read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A reader and bytes that are right.

    Attributes:
        read: bytes → value.
        shorter: the error at a length that is too short, and the parts of its place that it states.
        tolerates: bytes that may follow; `refuses`: those that may not, with the error `longer`.
        least_flips: how many flipped bits are refused at least; None for all of them.
    """

    data: bytes
    read: Callable[[bytes], object]
    shorter: Callable[[int], type[FormatError]] = lambda _: FormatError
    place: Callable[[int], dict[str, object]] = lambda _: {}
    tolerates: tuple[bytes, ...] = ()
    refuses: tuple[bytes, ...] = ()
    longer: type[FormatError] = FormatError
    least_flips: int | None = 0


def index_reader(index, key):
    return Reader(
        data=index,
        read=lambda index: parse_index(memoryview(index), key),
        shorter=lambda _: TruncatedError,
        place=lambda length: {"key": key.index_key, "found": length},
        tolerates=(b"\0", bytes.fromhex("e1d3e1d3"), index, bytes(100)),
    )


def flipped_index_reader(index, data, key, least_flips=0):
    """Of what an index says, the entries: other facts in it may change unnoticed."""
    return Reader(data=index, read=lambda index: read_object(data, index, key), least_flips=least_flips)


def object_reader(written):
    index = parse_index(written.index, written.key)
    last = max(block.offset for ledger in index.ledgers for block in ledger.blocks)
    return Reader(
        data=written.data,
        read=lambda data: read_object(data, written.index, written.key),
        shorter=lambda _: TruncatedError,
        place=lambda length: (
            {"key": written.key.data_key}
            | ({"offset": last, "found": length - last} if length >= last else {})
        ),
    )


def header_reader(written):
    return Reader(
        data=written.data[:BLOCK_HEADER_BYTES],
        read=lambda data: parse_block_header(data, written.key.object_format, offset=3),
        shorter=lambda _: TruncatedError,
        place=lambda length: {"offset": 3, "found": length},
        tolerates=(b"\0",),
    )


def mapfile_reader(compression):
    written = mapfile(PAYLOADS, compression=compression, block_bytes=40)

    def read(data):
        found: list[tuple[int, int, bytes]] = []
        try:
            read_mapfile(replace(written, data=data), into=found)
        except FormatError:
            assert found == list(written.entries[: len(found)])
            raise
        assert found == list(written.entries)
        return found

    return Reader(
        data=written.data,
        read=read,
        place=lambda _: {"key": written.key.data_key},
        refuses=(b"\0", b"\0\0\0\0", MARK + b"\0", written.data),
    )


GOLDEN = {
    f"golden {folder} {name}": load_case(folder, name)
    for folder, name in (
        ("pip17", "single-entry"),
        ("pip17", "zero-length-only"),
        ("pip17", "one-block"),
        ("pip17", "multi-block"),
        ("streaming", "3-ledgers-5-blocks"),
    )
}
SMALL = ("golden pip17 single-entry", "golden pip17 zero-length-only", "golden pip17 one-block")

READERS = {
    "pip17 index": index_reader(PIP17.index, PIP17.key),
    "streaming index": index_reader(STREAMING.index, STREAMING.key),
    **{f"{name} index": index_reader(case.index, case.key) for name, case in GOLDEN.items()},
    "pip17 data": object_reader(PIP17),
    "streaming data": object_reader(STREAMING),
    "pip17 header": header_reader(PIP17),
    "streaming header": header_reader(STREAMING),
    "entry directory": Reader(
        data=DIRECTORY,
        read=lambda data: parse_directory(data, 1 << 21).offsets.tolist(),
        refuses=(b"\0",),
        least_flips=None,
    ),
    "block checksums": Reader(
        data=CHECKSUMS,
        read=lambda data: parse_block_checksums(data).crcs.tolist(),
        refuses=(b"\0",),
        longer=BadLengthError,
        least_flips=None,
    ),
    "crc file": Reader(
        data=make_checksums(bytes(range(250)) * 12),
        read=lambda checksums: verify_whole(bytes(range(250)) * 12, checksums),
        shorter=lambda length: TruncatedError if length < HEAD_BYTES else BadLengthError,
        refuses=(b"\0",),
        longer=BadLengthError,
        least_flips=None,
    ),
    **{f"mapfile {each.value} data": mapfile_reader(each) for each in FileCompression},
    **{
        f"mapfile {each.value} header": Reader(
            data=pack_header(header_of(each)),
            read=lambda data: parse_whole_header(data, BYTES_WRITABLE),
            shorter=lambda _: TruncatedError,
            tolerates=(b"more",),
        )
        for each in FileCompression
    },
}
FLIPPED = {name: each for name, each in READERS.items() if each.least_flips is None} | {
    f"{name} index": flipped_index_reader(each.index, each.data, each.key, least)
    for name, each, least in (
        ("pip17", PIP17, 4 * len(PIP17.index) + 1),
        ("streaming", STREAMING, 4 * len(STREAMING.index) + 1),
        *((name, GOLDEN[name], 0) for name in SMALL),
    )
}
ALL = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)


@ALL
def test_bytes_that_are_cut_off_are_refused_at_every_length(reader):
    for length in range(len(reader.data)):
        with pytest.raises(FormatError) as caught:
            reader.read(reader.data[:length])
        assert isinstance(caught.value, reader.shorter(length))
        for name, expected in reader.place(length).items():
            assert (name, getattr(caught.value, name)) == (name, expected)


@ALL
def test_bytes_that_follow_are_tolerated_or_refused(reader):
    right = reader.read(reader.data)
    for trailing in reader.tolerates:
        assert reader.read(reader.data + trailing) == right
    for trailing in reader.refuses:
        with pytest.raises(reader.longer):
            reader.read(reader.data + trailing)


@pytest.mark.parametrize("reader", FLIPPED.values(), ids=FLIPPED)
def test_every_flipped_bit_is_harmless_or_refused(reader):
    right, refused = reader.read(reader.data), 0
    for bit in range(8 * len(reader.data)):
        changed = bytearray(reader.data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            assert reader.read(bytes(changed)) == right
        except FormatError:
            refused += 1
    assert refused >= (8 * len(reader.data) if reader.least_flips is None else reader.least_flips)
