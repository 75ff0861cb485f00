"""The blocks of an index as columns: the same as block by block, and little memory for many."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.codec import streaming
from offload_core.format.codec.index import BlockEntry, BlockTable, IndexedBlock, LedgerIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo, parse_ledger_info, parse_ledger_metadata
from offload_core.format.codec.streaming import pack_streaming_index, parse_streaming_index
from offload_hooks.errors import BadLengthError

# --- against the plain reader ----------------------------------------------------------------------


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
def test_blocks_that_overlap_a_range(start, stop):
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


def test_metadata_of_very_many_fields_is_refused_before_it_is_parsed():
    ensembles = b"\x2a\x02\x10\x00" * (1 << 18) + b"\x2a\x02\x10\x00"
    with pytest.raises(BadLengthError, match="ledger metadata is too long"):
        parse_ledger_metadata(ensembles)
    with pytest.raises(BadLengthError, match="a ledger info is too long"):
        parse_ledger_info(ensembles)


def test_an_index_of_very_many_ledgers_is_refused(monkeypatch):
    monkeypatch.setattr(streaming, "MOST_LEDGERS", 100)

    def listed(count):
        ledgers = [
            (LedgerInfo(ledger_id=i), [BlockEntry(first_entry_id=0, part_number=1, offset=i * 128)])
            for i in range(count)
        ]
        return pack_streaming_index(ledgers, count * 128)

    assert len(parse_streaming_index(listed(100)).ledgers) == 100
    with pytest.raises(BadLengthError, match="too many ledgers"):
        parse_streaming_index(listed(101))


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
