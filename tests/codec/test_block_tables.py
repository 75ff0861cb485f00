"""The blocks of an index as columns: the same as block by block, and little memory for many."""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES
from offload_core.format.codec.index import (
    BlockEntry,
    BlockTable,
    IndexedBlock,
    LedgerIndex,
    block_lengths,
    index_blocks,
    read_block_entries,
)
from offload_core.format.codec.ledger_metadata import LedgerInfo, parse_ledger_info, parse_ledger_metadata
from offload_core.format.codec.pip17 import parse_pip17_index
from offload_core.format.codec.streaming import MOST_LEDGERS, pack_streaming_index, parse_streaming_index
from offload_hooks.errors import BadLengthError, EntryOrderError, FormatError

# --- against the plain reader ----------------------------------------------------------------------


def plain_lengths(entries: Sequence[BlockEntry], data_length: int) -> dict[int, int]:
    """Block offset → block length."""
    offsets = sorted(entry.offset for entry in entries)
    if offsets[0] != 0:
        raise BadLengthError("no block of an index begins at byte 0", expected=0, found=offsets[0])
    lengths: dict[int, int] = {}
    for offset, end in zip(offsets, [*offsets[1:], data_length], strict=True):
        if end - offset < BLOCK_HEADER_BYTES:
            raise BadLengthError(
                "an index leaves less than a header's room for a block",
                expected=f"{BLOCK_HEADER_BYTES} bytes or more from {offset}",
                found=f"its end at {end}",
            )
        lengths[offset] = end - offset
    return lengths


def plain_blocks(entries, lengths, end_entry_id):
    """One ledger's blocks, one after another."""
    blocks = []
    for i, entry in enumerate(entries):
        end = entries[i + 1].first_entry_id if i + 1 < len(entries) else end_entry_id
        if entry.first_entry_id < 0 or (end is not None and end <= entry.first_entry_id):
            raise EntryOrderError(
                "the blocks of an index are not in the order of their entries",
                block=i + 1,
                expected="a first entry id from 0 on, below the next block's or the ledger's end",
                found=f"{entry.first_entry_id}, then {end}",
            )
        if i and entry.offset <= entries[i - 1].offset:
            raise EntryOrderError(
                "the blocks of an index are not in the order of their offsets",
                block=i + 1,
                expected=f"an offset past {entries[i - 1].offset}",
                found=entry.offset,
            )
        blocks.append(
            IndexedBlock(
                part_number=entry.part_number,
                offset=entry.offset,
                length=lengths[entry.offset],
                first_entry_id=entry.first_entry_id,
                end_entry_id=end,
            )
        )
    return blocks


LONGS = st.integers(-(2**63), 2**63 - 1)
STEPS = st.lists(st.tuples(st.integers(1, 50), st.integers(128, 900)), min_size=1, max_size=12)


@st.composite
def listed(draw: st.DrawFn) -> tuple[list[BlockEntry], int, int | None]:
    """The lines of an index, most of them right; the data object's length; the ledger's end, if known."""
    entries, first, offset = [], draw(st.sampled_from([0, 0, 0, 3])), 0
    for part, (count, length) in enumerate(draw(STEPS), start=1):
        entries.append(BlockEntry(first_entry_id=first, part_number=part, offset=offset))
        first, offset = first + count, offset + length
    end = draw(st.sampled_from([first, first, None]))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(entries) - 1))
        near = draw(st.sampled_from(entries))
        changed = draw(st.sampled_from(["first_entry_id", "offset"]))
        entries[at] = replace(entries[at], **{changed: draw(LONGS | st.just(getattr(near, changed)))})
    if draw(st.booleans()):
        offset = draw(st.integers(128, 2**63 - 1))
    return entries, offset, end


@given(listed())
def test_columns_say_what_the_plain_reader_says(given: tuple[list[BlockEntry], int, int | None]):
    entries, data_length, end = given
    packed = b"".join(
        struct.pack(">qiq", each.first_entry_id, each.part_number, each.offset) for each in entries
    )

    def plainly() -> object:
        return plain_blocks(entries, plain_lengths(entries, data_length), end)

    def by_columns() -> object:
        lines = read_block_entries(b"??" + packed, len(entries), 2)
        return list(index_blocks(lines, block_lengths(lines["offset"], data_length), end))

    assert outcome(by_columns) == outcome(plainly)


def outcome(read: object) -> object:
    try:
        return read()  # type: ignore[operator]
    except FormatError as error:
        return type(error), error.fields()


BLOCKS = [
    IndexedBlock(part_number=i + 1, offset=i * 200, length=200, first_entry_id=i * 3, end_entry_id=i * 3 + 3)
    for i in range(5)
]


def test_a_table_is_a_sequence_of_its_blocks():
    open_ended = [*BLOCKS[:-1], replace(BLOCKS[-1], end_entry_id=None)]
    for blocks in (BLOCKS, open_ended, BLOCKS[:1], []):
        table = BlockTable.of(blocks)
        assert (len(table), list(table), list(reversed(table))) == (len(blocks), blocks, blocks[::-1])
        assert [table[i] for i in range(-len(blocks), len(blocks))] == [*blocks, *blocks]
        assert list(table[1:3]) == blocks[1:3]
        assert pickle.loads(pickle.dumps(table[1:])) == table[1:] == BlockTable.of(blocks[1:])
        assert hash(table) == hash(BlockTable.of(blocks))
        assert table[:2] + table[2:] == table
        assert table.data_bytes == sum(block.length for block in blocks)
    with pytest.raises(IndexError):
        BlockTable.of(BLOCKS)[5]


@given(st.integers(0, 17), st.none() | st.integers(0, 17))
def test_blocks_that_overlap_a_range(start: int, stop: int | None):
    for blocks in (BLOCKS, [*BLOCKS[:-1], replace(BLOCKS[-1], end_entry_id=None)]):
        assert list(BlockTable.of(blocks).overlapping(start, stop)) == [
            block
            for block in blocks
            if (block.end_entry_id is None or block.end_entry_id > start)
            and (stop is None or block.first_entry_id < stop)
        ]


def test_one_block_stands_for_all_of_a_ledger():
    ledger = LedgerIndex(ledger_id=3, metadata=LedgerInfo(ledger_id=3), blocks=BlockTable.of(BLOCKS))
    condensed = ledger.condensed()
    assert (len(condensed.blocks), condensed.block_count, condensed.condensed().block_count) == (1, 5, 5)
    for each in (ledger, condensed):
        assert (each.first_entry_id, each.end_entry_id, each.blocks.data_bytes) == (0, 15, 1000)


# --- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2**31 - 1, 2**24])
def test_a_count_of_blocks_that_the_index_has_no_bytes_for_is_refused_before_room_is_made(count: int):
    pip17 = struct.pack(">IiqqiI", 0xDE47DE47, 40, 2**40, 128, count, 0) + bytes(8)
    with pytest.raises(BadLengthError, match="shorter than its metadata and blocks"):
        parse_pip17_index(pip17, 3)
    streaming = struct.pack(">Iiqqqii", 0x3D1FB0BC, 40, 2**40, 128, 3, count, 0)
    with pytest.raises(BadLengthError, match="do not fit the index"):
        parse_streaming_index(streaming)


def test_metadata_of_very_many_fields_is_refused_before_it_is_parsed():
    ensembles = b"\x2a\x02\x10\x00" * (1 << 18) + b"\x2a\x02\x10\x00"
    with pytest.raises(BadLengthError, match="ledger metadata is too long"):
        parse_ledger_metadata(ensembles)
    with pytest.raises(BadLengthError, match="a ledger info is too long"):
        parse_ledger_info(ensembles)


def test_an_index_of_very_many_ledgers_is_refused():
    def listed(count: int) -> bytes:
        ledgers = [
            (LedgerInfo(ledger_id=i), [BlockEntry(first_entry_id=0, part_number=1, offset=i * 128)])
            for i in range(count)
        ]
        return pack_streaming_index(ledgers, count * 128)

    assert len(parse_streaming_index(listed(1000)).ledgers) == 1000
    with pytest.raises(BadLengthError, match="too many ledgers"):
        parse_streaming_index(listed(MOST_LEDGERS + 1))


CHILD = """
import resource, struct, sys
import numpy as np
from offload_core.format.codec.ledger_metadata import LedgerMetadata, LedgerState, pack_ledger_metadata
from offload_core.format.codec.pip17 import parse_pip17_index

count = int(sys.argv[1])
metadata = pack_ledger_metadata(
    LedgerMetadata(
        write_quorum_size=1, ensemble_size=1, length=0, state=LedgerState.CLOSED, last_entry_id=count - 1
    )
)
lines = np.empty(count, [("first", ">i8"), ("part", ">i4"), ("offset", ">i8")])
lines["first"], lines["part"], lines["offset"] = np.arange(count), 1, np.arange(count) * 128
head = struct.pack(
    ">IiqqiI", 0xDE47DE47, 32 + len(metadata) + lines.nbytes, count * 128, 128, count, len(metadata)
)
data = head + metadata + lines.tobytes()
del lines
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
index = parse_pip17_index(data, 3)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert len(index.ledgers[0].blocks) == count
print(len(data), (after - before) * 1024)
"""


def test_an_index_of_a_million_blocks_takes_a_few_times_its_bytes():
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "1000000"], capture_output=True, text=True, check=True, timeout=120
    )
    index_bytes, taken_bytes = map(int, done.stdout.split())
    assert index_bytes > 20_000_000
    assert taken_bytes < 4 * index_bytes
