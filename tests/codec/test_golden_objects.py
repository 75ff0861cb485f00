"""Objects that Pulsar's own classes wrote: decoded to what they hold, and encoded again to the same bytes."""

from __future__ import annotations

import hashlib

import pytest
from entries import pack_block, pip17_object, read_object
from golden import (
    PIP17_CASES,
    PIP17_MAX_BLOCK_BYTES,
    STREAMING_CASES,
    TOPICS,
    as_entries,
    load_case,
    topic_objects,
)

from offload_core.format.codec.block_layout import BlockHeader
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.ledger_metadata import LedgerState
from offload_core.format.codec.object_format import ObjectFormat, parse_key
from offload_core.format.codec.streaming import pack_streaming_index
from offload_hooks.errors import BadLengthError


def read_in_order(case):
    return sorted(read_object(case.data, case.index, case.key), key=lambda entry: entry[:2])


def test_there_are_golden_cases_of_both_formats():
    assert len(PIP17_CASES) == 9
    assert len(STREAMING_CASES) == 4


@pytest.mark.parametrize("name", PIP17_CASES)
def test_pip17_objects_are_written_as_pulsar_writes_them(name):
    case = load_case("pip17", name)
    (ledger,) = parse_index(case.index, case.key).ledgers
    written = pip17_object(
        [payload for _, _, payload in read_in_order(case)],
        ledger_id=ledger.ledger_id,
        max_block_bytes=PIP17_MAX_BLOCK_BYTES[name],
        metadata=ledger.metadata,
    )
    assert hashlib.sha256(written.data).hexdigest() == case.data_sha256
    assert hashlib.sha256(written.index).hexdigest() == case.index_sha256


@pytest.mark.parametrize("name", STREAMING_CASES)
def test_streaming_objects_are_written_as_pulsar_writes_them(name):
    case = load_case("streaming", name)
    index = parse_index(case.index, case.key)
    payloads = {(ledger, entry): payload for ledger, entry, payload in read_in_order(case)}
    blocks: dict[int, bytes] = {}
    for ledger in index.ledgers:
        for i, block in enumerate(ledger.blocks):
            later = ledger.blocks[i + 1].first_entry_id if i + 1 < len(ledger.blocks) else 1 << 62
            own = [
                payload
                for (ledger_id, entry_id), payload in payloads.items()
                if ledger_id == ledger.ledger_id and block.first_entry_id <= entry_id < later
            ]
            header = BlockHeader(
                object_format=ObjectFormat.STREAMING,
                block_length=block.length,
                first_entry_id=block.first_entry_id,
                ledger_id=ledger.ledger_id,
            )
            blocks[block.offset] = pack_block(header, own)
    data = b"".join(blocks[offset] for offset in sorted(blocks))
    ledgers = [(ledger.metadata, ledger.blocks) for ledger in index.ledgers]
    assert hashlib.sha256(data).hexdigest() == case.data_sha256
    assert hashlib.sha256(pack_streaming_index(ledgers, len(data))).hexdigest() == case.index_sha256


def test_an_index_is_read_to_its_last_detail():
    case = load_case("pip17", "multi-block")
    index = parse_index(case.index, case.key)
    (ledger,) = index.ledgers
    assert index.object_format is ObjectFormat.PIP17
    assert index.data_length == len(case.data) == 16987075
    assert ledger.ledger_id == 1003
    assert ledger.first_entry_id == 0
    assert ledger.metadata.state is LedgerState.CLOSED
    assert ledger.metadata.last_entry_id == 599
    assert ledger.payload_bytes == sum(entry.length for entry in case.entries)
    assert [(b.part_number, b.offset) for b in ledger.blocks] == [(i + 1, i * 5242880) for i in range(4)]
    assert [b.length for b in ledger.blocks] == [5242880, 5242880, 5242880, 16987075 - 3 * 5242880]
    assert [b.end_entry_id for b in ledger.blocks] == [*(b.first_entry_id for b in ledger.blocks[1:]), 600]


def test_the_second_segment_of_a_ledger_begins_past_entry_zero():
    case = load_case("streaming", "seg2-of-2")
    (ledger,) = parse_index(case.index, case.key).ledgers
    assert ledger.first_entry_id == 100
    assert ledger.blocks[0].end_entry_id is None
    assert ledger.payload_bytes == ledger.metadata.size


# --- objects that Pulsar's writer damaged ------------------------------------------------------


def test_a_streaming_block_longer_than_it_declares_is_refused_where_it_goes_wrong():
    case = load_case("java-damaged", "st-drift")
    read: list[tuple[int, int, bytes]] = []
    with pytest.raises(BadLengthError) as caught:
        read_object(case.data, case.index, case.key, into=read)
    assert caught.value.fields() == {
        "what": "an entry's length reaches past its block",
        "key": "00000000-1111-4222-8333-00000000006b",
        "ledger_id": 50,
        "block": 1,
        "entry_id": 88,
        "offset": 5281184,
        "expected": "at most 0",
        "found": 60000,
    }
    rows = ({"__ledgerId": ledger, "__entryId": entry, "value": payload} for ledger, entry, payload in read)
    assert tuple(as_entries(rows)) == case.entries[: len(read)]


def test_an_object_that_lost_an_entry_larger_than_a_block_is_refused():
    case = load_case("java-damaged", "v1-oversized-entry")
    read: list[tuple[int, int, bytes]] = []
    with pytest.raises(BadLengthError) as caught:
        read_object(case.data, case.index, case.key, into=read)
    assert caught.value.fields() == {
        "what": "an index leaves less than a header's room for a block",
        "key": "00000000-1111-4222-8333-00000000000c-ledger-1012-index",
        "ledger_id": 1012,
        "offset": 203,
        "expected": "128 bytes or more from 5242880",
        "found": "its end at 5242880",
    }
    assert read == []


# --- a broker's objects ------------------------------------------------------------------------


@pytest.mark.parametrize("topic", sorted(set(TOPICS) - {"chunk"}))
def test_a_brokers_objects_are_written_again_as_they_are(topic):
    for stored in topic_objects(topic):
        (ledger,) = parse_index(stored.index, stored.key).ledgers
        read = read_object(stored.data, stored.index, stored.key)
        written = pip17_object(
            [payload for _, _, payload in read],
            ledger_id=ledger.ledger_id,
            max_block_bytes=5 << 20,
            metadata=ledger.metadata,
        )
        assert written.data == stored.data
        assert written.index == stored.index


# --- keys --------------------------------------------------------------------------------------

UUID = "00000000-1111-4222-8333-0000000000aa"


@pytest.mark.parametrize(
    ("text", "folder", "ledger_id", "is_index", "object_format"),
    [
        (f"{UUID}-ledger-12", "", 12, False, ObjectFormat.PIP17),
        (f"{UUID}-ledger-12-index", "", 12, True, ObjectFormat.PIP17),
        (f"{UUID}-ledger-0", "", 0, False, ObjectFormat.PIP17),
        (UUID, "", None, False, ObjectFormat.STREAMING),
        (f"{UUID}-index", "", None, True, ObjectFormat.STREAMING),
        (f"some/where/{UUID}-index", "some/where/", None, True, ObjectFormat.STREAMING),
    ],
)
def test_a_key_is_taken_apart_and_put_together(text, folder, ledger_id, is_index, object_format):
    key = parse_key(text)
    assert (key.folder, str(key.uuid), key.ledger_id, key.is_index) == (folder, UUID, ledger_id, is_index)
    assert key.object_format is object_format
    assert (key.index_key if is_index else key.data_key) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "index",
        f"{UUID}-ledger-",
        f"{UUID}-ledger-01",
        f"{UUID}-ledger--1",
        f"{UUID}-ledger-12-index-index",
        f"{UUID}.metadata.json",
        f"x{UUID}",
        UUID[:-1],
        UUID.upper(),
    ],
)
def test_other_keys_are_of_no_offloaded_object(text):
    assert parse_key(text) is None
