"""What every column of messages must be for the golden topics: a list of topics by columns.

A column is judged by what Pulsar's clients read (`expected.jsonl.gz`) or sent (`txn-sent.jsonl`). What these do not
tell is judged by the entry's metadata, parsed by the generated protobuf classes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from expected import as_expected
from golden import BROKER, sent_in_transactions, topic_rows

from offload_core.messages.entry import EntryParts, split_entry
from offload_proto.messages_pb2 import MessageIdData, MessageMetadata
from pulsar_offload import TierReader, scan

Row = Mapping[str, Any]
Entries = Mapping[tuple[int, int], Row]
"""By ledger and entry: what the columns of its messages are."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_READ = {
    "value": ("size", "data_len", "sha256"),
    "__key": ("key", "has_key"),
    "__publishTime": ("publish_time",),
    "__eventTime": ("event_time",),
    "__messageProperties": ("properties",),
    "__partition": ("partition",),
    "__sequenceId": ("sequence_id",),
    "__producerName": ("producer_name",),
    "__ledgerId": ("ledger",),
    "__entryId": ("entry",),
    "__batchIndex": ("batch_index",),
    "__batchSize": ("batch_size",),
    "__keyIsBase64": ("key_b64_encoded",),
    "__orderingKey": ("ordering_key_b64",),
    "__schemaVersion": ("schema_version_b64",),
    "__nullValue": ("null_value",),
}
"""The fields of what a client read that say what a column is."""


def entries_of(tier: TierReader, topic: str) -> Entries:
    """What the metadata of the entries of `acme/cold/<topic>` says."""
    rows = scan(tier, f"acme/cold/{topic}", level="entries").to_table().to_pylist()
    return {(row["__ledgerId"], row["__entryId"]): _of_entry(split_entry(row["value"])) for row in rows}


def assert_columns_are_as_expected(
    rows: Iterable[Row], topic: str, entries: Entries, broker: Path = BROKER
) -> set[str]:
    """`rows` of all columns, in order, are what is known of the topic `acme/cold/<topic>`; returns which are judged."""
    for row, read in zip(rows, topic_rows(topic, broker), strict=True):
        made = as_expected(row) | {"null_value": row["__nullValue"]}
        for column, fields in _READ.items():
            known = {field: read[field] for field in fields if field in read}
            assert {field: made[field] for field in known} == known, (column, read)
        wanted = _of_place(topic, read) | entries[read["ledger"], read["entry"]]
        assert {column: row[column] for column in wanted} == wanted, read
    return _READ.keys() | wanted.keys()


def _of_place(topic: str, read: Row) -> dict[str, Any]:
    message_id = MessageIdData(ledgerId=read["ledger"], entryId=read["entry"])
    if read["batch_index"] >= 0:
        message_id.batch_index = read["batch_index"]
        message_id.batch_size = read["batch_size"]
    sent = _transactions().get((read["ledger"], read["entry"])) if topic == "txn" else None
    most, least = (None, None) if sent is None else sent["txn_id"]
    return {
        "__topic": f"persistent://acme/cold/{topic}",
        "__messageId": message_id.SerializeToString(),
        "__txnIdMost": most,
        "__txnIdLeast": least,
        "__txnState": None if sent is None else sent["state"],
    }


@functools.cache
def _transactions() -> dict[tuple[int, int], Row]:
    """What was sent, by ledger and entry: a whole batch is of the transaction that one of its messages is of."""
    return {(sent["ledger"], sent["entry"]): sent for sent in sent_in_transactions() if sent["txn_id"]}


def _of_entry(parts: EntryParts) -> dict[str, Any]:
    metadata = parts.metadata
    assert not metadata.encryption_keys  # the golden topics have none
    return {
        "__deliverAtTime": _optional(metadata, "deliver_at_time", _time),
        "__replicatedFrom": _optional(metadata, "replicated_from"),
        "__replicateTo": list(metadata.replicate_to) or None,
        "__brokerPublishTime": None if parts.broker is None else _time(parts.broker.broker_timestamp),
        "__brokerIndex": None if parts.broker is None else parts.broker.index,
        "__uuid": _optional(metadata, "uuid"),
        "__chunkId": _optional(metadata, "chunk_id"),
        "__numChunks": _optional(metadata, "num_chunks_from_msg"),
        "__chunkedSize": _optional(metadata, "total_chunk_msg_size"),
        "__compression": metadata.compression,
        "__uncompressedSize": _optional(metadata, "uncompressed_size"),
        "__valueIsRaw": parts.is_raw,
        "__encryptionAlgorithm": _optional(metadata, "encryption_algo"),
        "__encryptionParam": _optional(metadata, "encryption_param"),
        "__encryptionKeys": None,
    }


def _optional(metadata: MessageMetadata, field: str, of: Callable[[Any], Any] = lambda value: value) -> Any:
    return of(getattr(metadata, field)) if metadata.HasField(field) else None  # type: ignore[arg-type]


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
