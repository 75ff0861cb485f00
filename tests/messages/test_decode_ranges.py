"""Batches of rows: how large they are, where they begin and end; and which columns they have."""

from __future__ import annotations

import numpy as np
import pytest
from entries import batch_entry, entry, frame_entry, marker, single
from scenes.messages import TOPIC, comparable, decoded_rows, decoder, entry_spans

from offload_core.format.messages.message_columns import (
    ENTRY_COLUMNS,
    EXTRA_MESSAGE_COLUMNS,
    MESSAGE_COLUMNS,
    arrow_schema,
)
from offload_core.format.messages.message_decoder import BATCH_BYTES, EntryCounts
from offload_hooks.errors import MetadataError, OptionError
from offload_proto.messages_pb2 import LZ4, BrokerEntryMetadata, EncryptionKeys, MessageIdData

THREE = [b"a", b"b", b"c"]


def batches_of(entries, **options):
    block, offsets, lengths = entry_spans(entries)
    return list(decoder().decode(block, 0, np.arange(len(offsets)), offsets, lengths, **options))


def places(entries, **options):
    rows = comparable(batches_of(entries, **options))
    return [(row["__entryId"], row["__batchIndex"]) for row in rows]


# --- ranges ------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(5))
@pytest.mark.parametrize("stop", [None, 0, 1, 2, 3, 4])
def test_the_first_and_the_last_batch_may_be_cut(start, stop):
    entries = [batch_entry(THREE), batch_entry(THREE), batch_entry(THREE)]
    expected = (
        [(0, i) for i in range(3) if i >= start]
        + [(1, i) for i in range(3)]
        + [(2, i) for i in range(3) if stop is None or i < stop]
    )
    assert places(entries, start_batch=start, stop_batch=stop) == expected


@pytest.mark.parametrize(
    ("start", "stop", "expected"), [(1, 2, [1]), (0, 1, [0]), (2, None, [2]), (2, 2, []), (1, 0, [])]
)
def test_one_batch_may_be_cut_at_both_ends(start, stop, expected):
    found = places([batch_entry(THREE)], start_batch=start, stop_batch=stop)
    assert found == [(0, i) for i in expected]


def test_a_message_that_is_no_batch_counts_as_batch_index_zero():
    entries = [entry(b"x"), entry(b"y")]
    assert places(entries, start_batch=0, stop_batch=1) == [(0, -1), (1, -1)]
    assert places(entries, start_batch=1) == [(1, -1)]
    assert places(entries, stop_batch=0) == [(0, -1)]


def test_compacted_messages_keep_the_indexes_of_the_others():
    messages = [single(b"a"), single(b"b", compacted_out=True), single(b"c")]
    batch = batch_entry(messages, singles=True)
    assert places([batch]) == [(0, 0), (0, 2)]
    assert places([batch], start_batch=1) == [(0, 2)]


def test_cuts_hold_for_the_entries_and_not_for_the_groups_between():
    large = b"x" * (BATCH_BYTES // 2)
    entries = [batch_entry([large, large, large]) for _ in range(4)]
    assert len(batches_of(entries)) == 4
    found = places(entries, start_batch=2, stop_batch=1)
    assert found == [(0, 2), *((e, i) for e in (1, 2) for i in range(3)), (3, 0)]


# --- size of batches ---------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [0, LZ4])
def test_batches_are_about_a_mebibyte_and_never_empty(compression):
    entries = [entry(bytes(100_000), compression=compression) for _ in range(50)]
    batches = batches_of(entries)
    sizes = [sum(len(value) for value in batch.column("value").to_pylist()) for batch in batches]
    assert sum(sizes) == 5_000_000
    assert all(BATCH_BYTES <= size < BATCH_BYTES + 100_000 for size in sizes[:-1])
    assert 0 < sizes[-1] < BATCH_BYTES + 100_000


def test_a_message_larger_than_a_batch_is_a_batch():
    batches = batches_of([entry(bytes(3 * BATCH_BYTES)), entry(b"x")])
    assert [batch.num_rows for batch in batches] == [1, 1]


def test_groups_without_messages_give_no_batch():
    skipped = batch_entry([single(bytes(BATCH_BYTES), compacted_out=True)], singles=True)
    assert [batch.num_rows for batch in batches_of([skipped, skipped, entry(b"x"), skipped])] == [1]
    assert batches_of([marker(), marker(21)]) == []
    assert batches_of([]) == []


def test_values_stay_right_when_the_scratch_buffer_is_used_again():
    values = [bytes([i]) * (BATCH_BYTES - 10) for i in range(4)]
    batches = batches_of([entry(value, compression=LZ4) for value in values])
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == values


# --- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize("partition", [-1, 0, 5])
@pytest.mark.parametrize(("ledger_id", "entry_id"), [(0, 0), (127, 128), (2**63 - 1, 2**40)])
def test_a_message_id_is_what_pulsars_clients_parse(partition, ledger_id, entry_id):
    rows = decoded_rows(
        [entry(b"x"), batch_entry([b""] * 200)],
        partition=partition,
        ledger_id=ledger_id,
        first_entry_id=entry_id,
    )
    ids = [MessageIdData.FromString(row["__messageId"]) for row in rows]
    assert [message.ledgerId for message in ids] == [ledger_id] * 201
    assert [message.entryId for message in ids] == [entry_id] + [entry_id + 1] * 200
    assert [message.HasField("partition") for message in ids] == [partition >= 0] * 201
    assert [message.partition for message in ids] == [max(partition, 0)] * 201
    assert not ids[0].HasField("batch_index")
    assert not ids[0].HasField("batch_size")
    assert [(message.batch_index, message.batch_size) for message in ids[1:]] == [
        (i, 200) for i in range(200)
    ]


def test_a_message_id_is_written_byte_for_byte():
    (row,) = decoded_rows([batch_entry([b"x"])], ledger_id=300, partition=2, first_entry_id=1)
    assert row["__messageId"] == bytes.fromhex("08ac02 1001 1802 2000 3001")


def test_one_message_is_read_in_every_column():
    broker = BrokerEntryMetadata(broker_timestamp=1_700_000_000_123, index=11)
    messages = [
        single(
            b"value",
            properties=[("a", "1"), ("a", "2"), ("", "")],
            partition_key="aGk=",
            partition_key_b64_encoded=True,
            ordering_key=b"\0\xff",
            event_time=1_600_000_000_000,
            sequence_id=77,
        ),
        single(None),
    ]
    first, second = decoded_rows(
        [
            batch_entry(
                messages, singles=True, broker=broker, schema_version=b"\0\1", partition_key="x", uuid="u"
            )
        ],
        first_entry_id=4,
        partition=3,
    )
    assert first | {"__messageId": None} == {
        "value": b"value",
        "__key": b"hi",
        "__topic": TOPIC,
        "__messageId": None,
        "__publishTime": 1_700_000_000_000_000,
        "__eventTime": 1_600_000_000_000_000,
        "__messageProperties": [("a", "1"), ("a", "2"), ("", "")],
        "__partition": 3,
        "__sequenceId": 77,
        "__producerName": "producer",
        "__ledgerId": 7,
        "__entryId": 4,
        "__batchIndex": 0,
        "__batchSize": 2,
        "__keyIsBase64": True,
        "__orderingKey": b"\0\xff",
        "__schemaVersion": b"\0\1",
        "__nullValue": False,
        "__deliverAtTime": None,
        "__replicatedFrom": None,
        "__replicateTo": None,
        "__brokerPublishTime": 1_700_000_000_123_000,
        "__brokerIndex": 10,
        "__txnIdMost": None,
        "__txnIdLeast": None,
        "__txnState": None,
        "__uuid": "u",
        "__chunkId": None,
        "__numChunks": None,
        "__chunkedSize": None,
        "__compression": 0,
        "__uncompressedSize": None,
        "__valueIsRaw": False,
        "__encryptionAlgorithm": None,
        "__encryptionParam": None,
        "__encryptionKeys": None,
    }
    facts = {"value": None, "__key": None, "__brokerIndex": 11, "__sequenceId": 0}
    assert facts.items() <= second.items()


def test_an_entrys_facts_stay_with_its_messages_where_a_marker_makes_up_for_a_batch():
    entries = [
        entry(b"1", producer_name="first", uuid="u", schema_version=b"1"),
        marker(),
        batch_entry([b"2", b"3"], producer_name="second", schema_version=b"2"),
    ]
    rows = decoded_rows(entries)
    assert [row["__producerName"] for row in rows] == ["first", "second", "second"]
    assert [row["__schemaVersion"] for row in rows] == [b"1", b"2", b"2"]
    assert [row["__uuid"] for row in rows] == ["u", None, None]


def test_varints_of_ten_bytes_have_no_more_than_64_bits():
    largest = b"\xff" * 9 + b"\x01"
    head = b"\x0a\x01p\x10\x01\x18\x01"
    good = frame_entry(head + b"\x60" + largest, b"")
    assert [row["__sequenceId"] for row in decoded_rows([good])] == [1]
    with pytest.raises(MetadataError):
        decoded_rows([frame_entry(head + b"\x60" + largest[:9] + b"\x02", b"")])


def test_markers_are_never_counted_as_passed_on():
    counts = EntryCounts()
    keys = [EncryptionKeys(key="k", value=b"v")]
    marked = marker(encryption_keys=keys, num_chunks_from_msg=2, txnid_most_bits=1, txnid_least_bits=1)
    assert decoded_rows([marked], counts=counts) == []
    assert counts == EntryCounts()


# --- schema ------------------------------------------------------------------------------------


def test_default_columns_are_those_of_the_level():
    assert arrow_schema("messages").names == list(MESSAGE_COLUMNS)
    assert arrow_schema("entries").names == list(ENTRY_COLUMNS)
    assert not set(MESSAGE_COLUMNS) & set(EXTRA_MESSAGE_COLUMNS)


def test_columns_come_in_the_order_asked_for():
    columns = ["__uuid", "value", "__entryId"]
    assert arrow_schema("messages", columns).names == columns
    assert list(decoded_rows([entry(b"x")], columns=columns)[0]) == columns


def test_an_unknown_column_is_refused_with_the_one_that_was_meant():
    with pytest.raises(OptionError) as caught:
        arrow_schema("messages", ["__publishtime"])
    assert caught.value.what == "there is no column '__publishtime' at level messages"
    assert caught.value.hint == "Did you mean '__publishTime'?"
    assert "__brokerIndex" in str(caught.value.expected)


@pytest.mark.parametrize(
    ("level", "columns", "what"),
    [
        ("messages", ["value", "value"], "column 'value' is asked for twice"),
        ("messages", [], "no column is asked for"),
        ("rows", None, "there is no such level"),
        ("messages", ["zzzz"], "there is no column 'zzzz' at level messages"),
        ("entries", ["__key"], "there is no column '__key' at level entries"),
    ],
)
def test_a_senseless_choice_is_refused_without_a_guess(level, columns, what):
    with pytest.raises(OptionError) as caught:
        arrow_schema(level, columns)
    assert (caught.value.what, caught.value.hint) == (what, None)
