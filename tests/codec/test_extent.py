"""The cursor over an extent: entries that are asked for, in any windows, of any format; and its answers to damage."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from mapfiles import mapfile

from offload_core.format.codec.blocks import Fault
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.extent import EntryCursor, LedgerExtent
from offload_core.format.codec.mapfile.index_file import parse_mapfile
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.format.codec.object_marks import ObjectMarks
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    EntryOrderError,
    FormatError,
    IndexMismatchError,
)

PAYLOADS = [Random(number).randbytes(50 + 37 * number % 200) for number in range(12)]


def extent_of(written):
    if written.key.is_mapfile:
        index = parse_mapfile(written.index, written.data, len(written.data), 7, stretch_bytes=600)
    else:
        index = parse_index(written.index, written.key)
    return LedgerExtent(key=written.key, ledger=index.ledgers[0], sequence_file=index.sequence_file)


WRITTEN = {
    "pip17": pip17_object(PAYLOADS, max_block_bytes=600),
    "streaming": streaming_object([LedgerPart(ledger_id=7, blocks=[PAYLOADS[:5], PAYLOADS[5:]])]),
    **{
        f"mapfile-{compression.value}": mapfile(
            PAYLOADS, compression=compression, block_bytes=300, index_interval=2
        )
        for compression in FileCompression
    },
}


def walk(cursor, data, window_bytes=1 << 20):
    """The entries, from windows of at most so many bytes; the first of a block has its header."""
    for block in cursor.extent.blocks:
        offset, end = block.offset, block.offset + block.length
        while offset < end:
            stop = min(end, offset + max(window_bytes, 128 if offset == block.offset else 0))
            cursor.feed(block, memoryview(data)[offset:stop], offset)
            for array, base, entry_ids, offsets, lengths in cursor.located():
                for entry_id, at, length in zip(entry_ids, offsets, lengths, strict=True):
                    payload = array[at : at + length].tobytes()
                    assert base is None or data[base + at : base + at + length] == payload
                    yield int(entry_id), payload
            assert cursor.needs_window
            assert cursor.reached <= end
            offset = stop


@pytest.mark.parametrize("window_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_entries_of_an_extent(written, window_bytes):
    whole = extent_of(written)
    cursor = EntryCursor(whole)
    assert list(walk(cursor, written.data, window_bytes)) == list(enumerate(PAYLOADS))
    assert (cursor.is_sound, cursor.next_entry_id) == (True, 12)
    assert cursor.payload_bytes == sum(map(len, PAYLOADS))
    for begin, stop in ((0, 1), (3, 9), (5, None), (11, 12)):
        part = whole.between(begin, stop)
        found = list(walk(EntryCursor(part), written.data, window_bytes))
        assert found == list(enumerate(PAYLOADS))[begin:stop]


def test_a_part_of_an_extent_has_the_blocks_that_it_needs():
    whole = replace(extent_of(WRITTEN["pip17"]), begin_entry_id=0, stop_entry_id=12)
    firsts = [block.first_entry_id for block in whole.blocks]
    assert firsts == [0, 4, 6, 9, 11]
    part = whole.between(5, 9)
    assert [block.first_entry_id for block in part.blocks] == [4, 6]
    assert (part.begin_entry_id, part.stop_entry_id, part.first_entry_id) == (5, 9, 5)
    assert whole.between(0, None) == whole
    assert [whole.between(*bounds) for bounds in ((12, None), (5, 5), (6, 5))] == [None] * 3
    unknown = replace(whole, begin_entry_id=None)
    assert (unknown.first_entry_id, unknown.data_bytes) == (0, len(WRITTEN["pip17"].data))


@pytest.mark.parametrize("gaps", [False, True])
def test_missing_ids_are_damage_unless_the_object_is_marked(gaps):
    written = pip17_object(PAYLOADS[:3], max_block_bytes=4096)
    data = written.data.replace(
        (1).to_bytes(8, "big") + PAYLOADS[1][:4], (2).to_bytes(8, "big") + PAYLOADS[1][:4]
    )
    data = data.replace((2).to_bytes(8, "big") + PAYLOADS[2][:4], (9).to_bytes(8, "big") + PAYLOADS[2][:4])
    extent = extent_of(written)
    extent = replace(
        extent,
        ledger=replace(extent.ledger, blocks=extent.blocks.with_end(10)),
        marks=ObjectMarks(has_gaps=gaps),
    )
    if gaps:
        assert [entry_id for entry_id, _ in walk(EntryCursor(extent), data)] == [0, 2, 9]
    else:
        with pytest.raises(EntryOrderError):
            list(walk(EntryCursor(extent), data))


BLOCKS = extent_of(WRITTEN["pip17"]).blocks
SECOND = BLOCKS[1].offset
FRAME = SECOND + 128
NEXT_FRAME = FRAME + 12 + len(PAYLOADS[4])

DAMAGE = {
    "magic": (SECOND, b"\0", [(Fault.HEADER, BadMagicError, SECOND)], []),
    "no header": (
        SECOND,
        bytes(128),
        [(Fault.HEADER, BadMagicError, SECOND), (Fault.HEADER, BadLengthError, SECOND + 4)],
        [],
    ),
    "header length": (SECOND + 11, b"\0", [(Fault.HEADER, BadLengthError, SECOND + 4)], []),
    "block length and first entry": (
        SECOND + 19,
        b"\1" + (77).to_bytes(8, "big"),
        [(Fault.HEADER, IndexMismatchError, SECOND + 12), (Fault.HEADER, IndexMismatchError, SECOND + 20)],
        [],
    ),
    "length of an entry": (FRAME, b"\x80", [(Fault.ENTRY, BadLengthError, FRAME)], [4, 5]),
    "id of an entry": (NEXT_FRAME + 11, b"\x63", [(Fault.ENTRY, EntryOrderError, NEXT_FRAME + 4)], [5]),
    "end of a block": (
        NEXT_FRAME,
        b"\xfe\xdc\xde\xad" * 200,
        [(Fault.END, EntryOrderError, NEXT_FRAME)],
        [5],
    ),
}


@pytest.mark.parametrize(("at", "new", "faults", "missing"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_raised_or_reported(at, new, faults, missing):
    data, new = WRITTEN["pip17"].data, new[: BLOCKS[2].offset - at]
    data = data[:at] + new + data[at + len(new) :]
    whole = extent_of(WRITTEN["pip17"])
    with pytest.raises(faults[0][1]) as raised:
        list(walk(EntryCursor(whole), data))
    assert (raised.value.offset, raised.value.block, raised.value.ledger_id) == (faults[0][2], 2, 7)
    reported: list[tuple[Fault, FormatError]] = []
    for window_bytes in (1, 100, 1 << 20):
        reported.clear()
        cursor = EntryCursor(whole, on_fault=lambda *fault: reported.append(fault))
        found = list(walk(cursor, data, window_bytes))
        assert [(fault, type(error), error.offset) for fault, error in reported] == faults
        assert all((error.block, error.ledger_id) == (2, 7) for _, error in reported)
        assert found == [
            (entry_id, payload) for entry_id, payload in enumerate(PAYLOADS) if entry_id not in missing
        ]
        assert not cursor.is_sound


@pytest.mark.parametrize("compression", FileCompression)
def test_damage_of_a_mapfile_ends_its_stretch(compression):
    written = WRITTEN[f"mapfile-{compression.value}"]
    whole = extent_of(written)
    assert len(whole.blocks) > 1
    begin = whole.sequence_file.header.length
    data = written.data[:begin] + bytes([0xEE]) * 20 + written.data[begin + 20 :]
    with pytest.raises(FormatError):
        list(walk(EntryCursor(whole), data))
    reported: list[Fault] = []
    cursor = EntryCursor(whole, on_fault=lambda fault, _: reported.append(fault))
    found = dict(walk(cursor, data))
    assert set(reported) == {Fault.ENTRY}
    assert found.items() < dict(enumerate(PAYLOADS)).items()
    assert max(found) == 11
    assert not cursor.is_sound
