"""Faults of Pulsar's writer and reader, each with a test that fails when Pulsar has been mended.

docs/compatibility.md has the list. Our own tests work around these, and so do our writers.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from entries import LedgerPart, ledger_metadata, pip17_object, read_object, streaming_object
from oracle import OracleError
from scenes.judged import (
    contents,
    entries_of,
    new_attempt,
    new_ledger_id,
    scanned,
    segmented,
    store_object,
    store_segments,
)
from servers.install import PULSAR
from stores import Store
from tiers import put_object

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, BlockHeader, pack_block_header
from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_hooks.errors import FormatError

pytestmark = pytest.mark.sampled(6)

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
FAULTS = {
    name: text for text, name in re.findall(r"^\| (.+) \| `test_(\w+)` \|$", PAGE.read_text(), re.MULTILINE)
}
"""The name of each fault's test, without `test_`, and what the fault is."""

SOON_MS = 2_000
"""A read that should not end is given up after this."""

PAYLOADS = [b"payload %d" % i for i in range(8)]
FRAME = 12 + len(PAYLOADS[0])


def still(name, faulty):
    """Fail when Pulsar has been mended."""
    assert faulty, (
        f"Pulsar {PULSAR} no longer has this fault: {FAULTS[name]} Take its test out, and its line "
        "out of docs/compatibility.md, and see what works around it."
    )


def frame_at(position):
    """Where the frame of the entry at this position in the first block of `PAYLOADS` begins."""
    return BLOCK_HEADER_BYTES + position * FRAME


def patched(written, *patches):
    """The object with numbers written over its data: (offset, struct format, number)."""
    data = bytearray(written.data)
    for offset, kind, number in patches:
        struct.pack_into(f">{kind}", data, offset, number)
    return replace(written, data=bytes(data))


def context_of(store, *parts):
    """Store each part as a segment of its own; their ledger's offload context."""
    return store_segments(store, [[part] for part in parts])[parts[0].ledger_id]


@pytest.fixture
def pip17(oracle, folder):
    """Stores a PIP-17 object, right or not, and returns how Pulsar reads ranges of it."""

    def store(written):
        with folder.open() as tier:
            key = put_object(tier, written, new_attempt())
        return partial(oracle.read, folder, key.uuid, key.ledger_id)

    return store


# --- its writer --------------------------------------------------------------------------------


def test_an_entry_larger_than_a_block_is_lost(oracle, folder):
    ledger_id, attempt = new_ledger_id(), new_attempt()
    payloads = [b"before", b"x" * 1000, b"after"]
    oracle.offload(folder, attempt, ledger_id, payloads, managedLedgerOffloadMaxBlockSizeInBytes=400)
    key = ObjectKey(folder="", uuid=attempt, ledger_id=ledger_id, is_index=False)
    data, index = (Path(folder.url, name).read_bytes() for name in (key.data_key, key.index_key))
    still("an_entry_larger_than_a_block_is_lost", payloads[1] not in data and payloads[2] not in data)
    with pytest.raises(FormatError):
        read_object(data, index, key)


def test_a_streaming_part_has_no_length(oracle, bucket):
    outcome = ""
    try:
        oracle.stream(bucket, new_attempt(), entries_of(new_ledger_id(), PAYLOADS), part_lengths=False)
    except OracleError as error:
        outcome = error.text
    still("a_streaming_part_has_no_length", "getContentLength" in outcome)


def test_a_streaming_block_is_longer_than_it_says(oracle, folder):
    ledger_id, attempt = new_ledger_id(), new_attempt()
    entries = entries_of(ledger_id, contents([100] * 30, seed=7))
    oracle.stream(folder, attempt, entries, managedLedgerOffloadMinBlockSizeInBytes=600)
    read = oracle.read(folder, segmented((attempt, 29)), ledger_id, [(0, 29)], deadline_ms=SOON_MS)
    still("a_streaming_block_is_longer_than_it_says", read.entries != entries)
    key = ObjectKey(folder="", uuid=attempt, ledger_id=None, is_index=False)
    data, index = (Path(folder.url, name).read_bytes() for name in (key.data_key, key.index_key))
    saved: list[tuple[int, int, bytes]] = []
    with pytest.raises(FormatError):
        read_object(data, index, key, into=saved)
    assert saved == entries[: len(saved)]


# --- its reader: gaps --------------------------------------------------------------------------


def test_a_gap_inside_a_block_fails(pip17):
    written = pip17_object(
        PAYLOADS, ledger_id=new_ledger_id(), metadata=ledger_metadata(PAYLOADS, last_entry_id=8)
    )
    ids = [(frame_at(i) + 4, "q", i + 1) for i in range(4, 8)]
    counts = pip17(patched(written, *ids))([(0, 3), (0, 8), (5, 8)]).counts
    assert counts[0] == 4
    still("a_gap_inside_a_block_fails", all(isinstance(count, str) for count in counts[1:]))


def test_a_gap_at_a_blocks_start_never_ends(pip17):
    size = frame_at(4)
    written = pip17_object(PAYLOADS, ledger_id=new_ledger_id(), max_block_bytes=size)
    ids = [(size + frame_at(i) + 4, "q", i + 5) for i in range(4)]
    blocks = [
        BlockEntry(first_entry_id=first, part_number=part, offset=offset)
        for first, part, offset in ((0, 1, 0), (5, 2, size))
    ]
    index = pack_pip17_index(ledger_metadata(PAYLOADS, last_entry_id=8), blocks, len(written.data))
    read = pip17(replace(patched(written, (size + 20, "q", 5), *ids), index=index))
    assert read([(0, 3), (5, 8)]).counts == [4, 4]
    still("a_gap_at_a_blocks_start_never_ends", not read([(0, 8)], deadline_ms=SOON_MS).ended)


def test_a_gap_in_a_streaming_segment_never_ends(oracle, folder):
    ledger_id = new_ledger_id()
    written = streaming_object([LedgerPart(ledger_id=ledger_id, blocks=[PAYLOADS])])
    attempt = store_object(folder, patched(written, (frame_at(2) + 4, "q", 3)))
    read = partial(oracle.read, folder, segmented((attempt, 7)), ledger_id)
    assert read([(0, 1)]).counts == [2]
    still("a_gap_in_a_streaming_segment_never_ends", not read([(0, 7)], deadline_ms=SOON_MS).ended)


# --- its reader: what it does not check --------------------------------------------------------


def test_a_negative_length_never_ends(pip17):
    read = pip17(patched(pip17_object(PAYLOADS, ledger_id=new_ledger_id()), (frame_at(2), "i", -1)))
    assert read([(0, 1)]).counts == [2]
    still("a_negative_length_never_ends", not read([(0, 7)], deadline_ms=SOON_MS).ended)


def test_a_ledger_that_begins_later_has_no_entry_0(pip17):
    written = pip17_object(PAYLOADS, ledger_id=new_ledger_id())
    ids = [(frame_at(i) + 4, "q", i + 3) for i in range(8)]
    blocks = [BlockEntry(first_entry_id=3, part_number=1, offset=0)]
    index = pack_pip17_index(ledger_metadata(PAYLOADS, last_entry_id=10), blocks, len(written.data))
    counts = pip17(replace(patched(written, (20, "q", 3), *ids), index=index))([(3, 10), (0, 10)]).counts
    assert counts[0] == 8
    still("a_ledger_that_begins_later_has_no_entry_0", "NullPointerException" in str(counts[1]))


def test_a_wrong_magic_is_not_noticed(pip17):
    read = pip17(patched(pip17_object(PAYLOADS, ledger_id=new_ledger_id()), (0, "I", 0)))
    still("a_wrong_magic_is_not_noticed", read([(0, 7)]).counts == [8])


def test_a_changed_payload_is_not_noticed(pip17):
    read = pip17(patched(pip17_object(PAYLOADS, ledger_id=new_ledger_id()), (frame_at(0) + 12, "B", 0xFF)))
    still("a_changed_payload_is_not_noticed", read([(0, 0)]).entries[0][2][0] == 0xFF)


# --- its reader: streaming segments ------------------------------------------------------------


def test_a_streaming_read_begins_too_early(oracle, folder):
    ledger_id = new_ledger_id()
    context = context_of(folder, LedgerPart(ledger_id=ledger_id, blocks=[PAYLOADS]))
    read = oracle.read(folder, context, ledger_id, [(5, 6)])
    still("a_streaming_read_begins_too_early", read.entries == entries_of(ledger_id, PAYLOADS)[:7])


def test_segments_come_last_one_first(oracle, folder):
    ledger_id = new_ledger_id()
    one = LedgerPart(ledger_id=ledger_id, blocks=[PAYLOADS])
    context = context_of(folder, one, replace(one, first_entry_id=8))
    read = oracle.read(folder, context, ledger_id, [(0, 15)])
    expected = entries_of(ledger_id, PAYLOADS * 2)
    still("segments_come_last_one_first", read.entries == expected[8:] + expected[:8])
    assert scanned(folder, ledger_id) == expected


@pytest.mark.parametrize("begin", [128, 129, 300])
def test_a_segment_from_entry_128_on_is_not_opened(oracle, folder, begin):
    ledger_id = new_ledger_id()
    one = LedgerPart(ledger_id=ledger_id, blocks=[[b""] * begin])
    context = context_of(
        folder, one, LedgerPart(ledger_id=ledger_id, blocks=[PAYLOADS], first_entry_id=begin)
    )
    read = oracle.read(folder, context, ledger_id, [(begin, begin + 7)])
    still("a_segment_from_entry_128_on_is_not_opened", isinstance(read.counts[0], str))
    assert scanned(folder, ledger_id)[begin:] == entries_of(ledger_id, PAYLOADS, begin)


def test_a_block_without_padding_before_entry_128_is_not_passed(oracle, folder):
    ledger_id = new_ledger_id()
    written = streaming_object(
        [LedgerPart(ledger_id=ledger_id, blocks=[[b""] * 128, PAYLOADS])], min_block_bytes=512
    )
    length = BLOCK_HEADER_BYTES + 128 * 12
    header = BlockHeader(
        object_format=ObjectFormat.STREAMING, block_length=length, first_entry_id=0, ledger_id=ledger_id
    )
    padded = length + 4  # as we write it: Pulsar's reader gets past that
    data = pack_block_header(header) + written.data[BLOCK_HEADER_BYTES:length] + written.data[padded:]
    index = bytearray(written.index)
    struct.pack_into(">q", index, 8, len(data))
    struct.pack_into(">q", index, len(index) - 8, length)
    right, without = (
        oracle.read(folder, segmented((store_object(folder, made), 135)), ledger_id, [(0, 135)]).counts[0]
        for made in (written, replace(written, data=data, index=bytes(index)))
    )
    assert right == 136
    still("a_block_without_padding_before_entry_128_is_not_passed", isinstance(without, str))


def test_a_closed_index_keeps_its_ledger_info(oracle, tmp_path):
    """Indexes are recycled now and then only, so this takes some attempts."""
    ledger_id = new_ledger_id()
    stores = [Store(name="local", url=str(tmp_path / name)) for name in ("short", "long")]
    short, long = (
        context_of(store, LedgerPart(ledger_id=ledger_id, blocks=[payloads]))
        for store, payloads in zip(stores, (PAYLOADS, PAYLOADS * 2), strict=True)
    )
    outcomes = []
    for _ in range(40):
        assert oracle.read(stores[0], short, ledger_id, [(0, 7)]).counts == [8]
        outcomes += oracle.read(stores[1], long, ledger_id, [(0, 15)]).counts
        if outcomes[-1] != 16:
            break
    still("a_closed_index_keeps_its_ledger_info", "BKIncorrectParameter" in str(outcomes[-1]))


def test_bytes_behind_a_streaming_index_are_read(oracle, folder):
    ledger_id = new_ledger_id()
    written = streaming_object([LedgerPart(ledger_id=ledger_id, blocks=[PAYLOADS])])
    attempt = store_object(folder, replace(written, index=written.index + bytes(64)))
    outcome = ""
    try:
        oracle.read(folder, segmented((attempt, 7)), ledger_id, [(0, 7)])
    except OracleError as error:
        outcome = error.text
    still("bytes_behind_a_streaming_index_are_read", "missing required fields" in outcome)
    assert scanned(folder, ledger_id) == entries_of(ledger_id, PAYLOADS)


# --- the list ----------------------------------------------------------------------------------


def test_every_fault_has_its_test_and_its_line_in_the_page():
    tests = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert set(FAULTS) == tests - {"every_fault_has_its_test_and_its_line_in_the_page"}
