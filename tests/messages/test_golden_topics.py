"""Topics that a real broker offloaded: every field of every message is what Pulsar's own clients read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from entries import read_object
from golden import TOPICS, as_expected, sent_in_transactions, topic_objects, topic_rows
from scenes.messages import decoded_rows

from offload_core.format.codec.blocks import BlockCursor
from offload_core.format.codec.decoder import parse_index
from offload_core.format.messages.entry import split_entry
from offload_core.format.messages.message_columns import EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS, arrow_schema
from offload_core.format.messages.message_decoder import EntryCounts, MessageDecoder

COLUMNS = [*MESSAGE_COLUMNS, *EXTRA_MESSAGE_COLUMNS]
OFFLOADED = sorted(set(TOPICS) - {"chunk"})


def read_topic(topic):
    rows: list[dict[str, Any]] = []
    counts = EntryCounts()
    for stored in topic_objects(topic):
        index = parse_index(stored.index, stored.key)
        for ledger in index.ledgers:
            decoder = MessageDecoder(
                topic=f"persistent://acme/cold/{topic}",
                partition=-1,
                ledger_id=ledger.ledger_id,
                schema=arrow_schema("messages", COLUMNS),
                verify_checksums=True,
                max_message_bytes=128 << 20,
            )
            for block in ledger.blocks:
                part = memoryview(stored.data)[block.offset : block.offset + block.length]
                cursor = BlockCursor(part, index.object_format, ledger.ledger_id, block)
                columns = [np.empty(1000, dtype=np.int64) for _ in range(3)]
                while not cursor.done:
                    count = cursor.locate(*columns, 1 << 20)
                    batches = decoder.decode(
                        cursor.array, block.offset, *(column[:count] for column in columns)
                    )
                    for batch in batches:
                        batch.validate(full=True)
                        rows += batch.to_pylist()
            counts.encrypted += decoder.counts.encrypted
            counts.chunks += decoder.counts.chunks
    return rows, counts


def assert_same(row, expected):
    found = as_expected(row)
    compared = {name: value for name, value in expected.items() if name in found}
    assert {name: found[name] for name in compared} == compared
    assert len(compared) >= 17


@pytest.mark.parametrize("topic", sorted(set(OFFLOADED) - {"txn"}))
def test_every_message_is_as_a_client_read_it(topic):
    rows, counts = read_topic(topic)
    for row, expected in zip(rows, topic_rows(topic), strict=True):
        assert_same(row, expected)
    assert {row["__topic"] for row in rows} == {f"persistent://acme/cold/{topic}"}
    assert counts == EntryCounts()


def test_golden_topics_have_all_kinds_of_messages():
    rows = [row for topic in set(OFFLOADED) - {"txn"} for row in read_topic(topic)[0]]
    assert {row["__compression"] for row in rows} == {0, 1, 3, 4}
    assert any(row["value"] is None for row in rows)
    assert any(row["__keyIsBase64"] for row in rows)
    assert any(row["__orderingKey"] for row in rows)
    assert any(row["__schemaVersion"] for row in rows)
    assert any(row["__eventTime"] for row in rows)
    assert {row["__batchIndex"] for row in rows} >= {-1, 0, 1}


def place(row):
    return row["__ledgerId"], row["__entryId"], row["__batchIndex"]


def test_messages_of_transactions_are_read_with_their_transaction():
    rows, counts = read_topic("txn")
    expected = {(x["ledger"], x["entry"], x["batch_index"]): x for x in topic_rows("txn")}
    by_place = {place(row): row for row in rows}
    assert len(by_place) == len(rows)
    assert expected.keys() <= by_place.keys()
    for at, row in by_place.items():
        if at in expected:
            assert_same(row, expected[at])
        else:  # aborted, or not to be seen when the client read
            assert row["__txnIdMost"] is not None
            assert row["__txnIdLeast"] is not None
    assert counts == EntryCounts()


def test_what_was_sent_in_transactions_has_their_ids():
    by_place = {place(row): row for row in read_topic("txn")[0]}
    checked = 0
    for sent in sent_in_transactions():
        row = by_place.get((sent["ledger"], sent["entry"], sent["batch_index"]))
        if row is None or sent["state"] == "none":
            continue
        assert [row["__txnIdMost"], row["__txnIdLeast"]] == sent["txn_id"]
        assert row["value"] == sent["payload"].encode()
        checked += 1
    assert checked > 500


def test_markers_are_entries_without_rows():
    markers = 0
    for stored in topic_objects("txn"):
        entries = read_object(stored.data, stored.index, stored.key)
        payloads = [payload for _, _, payload in entries]
        rows = decoded_rows(payloads, ledger_id=stored.key.ledger_id)
        marked = {i for i, payload in enumerate(payloads) if split_entry(payload).is_marker}
        markers += len(marked)
        assert marked.isdisjoint(row["__entryId"] for row in rows)
        assert marked | {row["__entryId"] for row in rows} == set(range(len(payloads)))
    assert markers > 0
