"""The golden objects under `tests/golden`, as values. Where they come from: `tests/golden/README.md`."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from offload_core.format.codec.object_format import ObjectKey, parse_key
from offload_core.format.messages.entry import EntryParts, split_entry
from offload_proto.messages_pb2 import MessageIdData, MessageMetadata
from pulsar_offload import TierReader, scan

GOLDEN = Path(__file__).parents[1] / "golden"
BROKER = GOLDEN / "broker" / "s3"

PIP17_CASES = sorted(path.name for path in (GOLDEN / "offloader" / "pip17").iterdir())
STREAMING_CASES = sorted(path.name for path in (GOLDEN / "offloader" / "streaming").iterdir())
TOPICS = sorted(path.name for path in (BROKER / "topics").iterdir())

# Not recorded beside the cases: the smallest that S3 takes, but for the case that is named after the default.
PIP17_MAX_BLOCK_BYTES = dict.fromkeys(PIP17_CASES, 5 << 20) | {"default-64mb-block": 64 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEntry:
    """One line of `entries.jsonl`."""

    ledger_id: int
    entry_id: int
    length: int
    crc32: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCase:
    """A data and an index object, and the entries that a right reader returns (of damaged ones: those offered)."""

    name: str
    key: ObjectKey
    data: bytes
    index: bytes
    data_sha256: str
    index_sha256: str
    entries: tuple[ExpectedEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenObject:
    """A broker's data and index object."""

    key: ObjectKey
    data: bytes
    index: bytes


def load_case(folder: str, name: str) -> GoldenCase:
    """A case of `offloader/<folder>` (pip17, streaming, java-damaged)."""
    path = GOLDEN / "offloader" / folder / name
    case = json.loads((path / "case.json").read_text())
    key = parse_key(case["data"]["key"])
    assert key is not None
    data = gzip.decompress((path / "data.bin.gz").read_bytes())
    index = gzip.decompress((path / "index.bin.gz").read_bytes())
    for stored, bytes_ in ((case["data"], data), (case["index"], index)):
        assert (len(bytes_), hashlib.sha256(bytes_).hexdigest()) == (stored["size"], stored["sha256"])
    return GoldenCase(
        name=name,
        key=key,
        data=data,
        index=index,
        data_sha256=case["data"]["sha256"],
        index_sha256=case["index"]["sha256"],
        entries=tuple(_expected(line) for line in (path / "entries.jsonl").read_text().splitlines()),
    )


def as_entries(rows: Iterable[Mapping[str, Any]]) -> list[ExpectedEntry]:
    """Rows of level `entries` as `entries.jsonl` has them."""
    return [
        ExpectedEntry(
            ledger_id=row["__ledgerId"],
            entry_id=row["__entryId"],
            length=len(row["value"]),
            crc32=zlib.crc32(row["value"]),
            sha256=hashlib.sha256(row["value"]).hexdigest(),
        )
        for row in rows
    ]


def _expected(line: str) -> ExpectedEntry:
    entry = json.loads(line)
    crc = entry["crc32"]
    return ExpectedEntry(**entry | {"crc32": int(crc, 16) if isinstance(crc, str) else crc})


def stored_objects(
    topics: Collection[str] | None = None, broker: Path = BROKER
) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """Key, bytes and user metadata of what a broker stored, of all topics or those of these last names."""
    for stored in json.loads((broker / "objects.json").read_text()):
        metadata = stored["metadata"]
        if topics is None or metadata["managedledgername"].rpartition("/")[2] in topics:
            data = (broker / "objects" / f"{stored['key']}.gz").read_bytes()
            yield stored["key"], gzip.decompress(data), metadata


def topic_objects(topic: str) -> list[GoldenObject]:
    """The objects of a topic `persistent://acme/cold/<topic>`, in order of their ledgers."""
    stored = {key: data for key, data, _ in stored_objects([topic])}
    keys = [key for key in map(parse_key, stored) if not key.is_index]
    return [
        GoldenObject(key=key, data=stored[key.data_key], index=stored[key.index_key])
        for key in sorted(keys, key=lambda key: key.ledger_id)
    ]


def topic_rows(topic: str, broker: Path = BROKER) -> list[dict[str, Any]]:
    """The messages that a Pulsar client read from the topic, in order."""
    path = broker / "topics" / topic / "expected.jsonl.gz"
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def sent_in_transactions() -> list[dict[str, Any]]:
    """The messages that the client of the topic `txn` sent, with the outcomes of transactions."""
    return [json.loads(line) for line in (BROKER / "txn-sent.jsonl").read_text().splitlines()]


# --- Rows of messages against what Pulsar's own clients read from the same topics (`expected.jsonl.gz`).
#
# Rows are dicts by our column names, from wherever they were read: Arrow, the command line, Spark. Bytes may
# be any bytes-like object, times any aware datetime, properties a dict or pairs. What the fields of the
# expected rows mean: `tests/golden/README.md`.


COLUMNS = (
    "value",
    "__key",
    "__topic",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
    "__partition",
    "__sequenceId",
    "__producerName",
    "__ledgerId",
    "__entryId",
    "__batchIndex",
    "__batchSize",
    "__keyIsBase64",
    "__orderingKey",
    "__schemaVersion",
)
"""The columns that the comparison needs."""


def assert_topic_is_as_expected(rows: Iterable[Mapping[str, Any]], topic: str, broker: Path = BROKER) -> None:
    """`rows` are what the clients of this broker read from `persistent://acme/cold/<topic>`, all in that order."""
    read = topic_rows(topic, broker)
    expected = {(row["ledger"], row["entry"], row["batch_index"]): row for row in read}
    found: list[tuple[int, int, int]] = []
    for row in rows:
        assert row["__topic"] == f"persistent://acme/cold/{topic}"
        place = (row["__ledgerId"], row["__entryId"], row["__batchIndex"])
        assert place in expected, f"{place} was read by no client"
        # `value` is wrong for nested lists of the topic `json`; size and sha256 are right.
        compared = {name: value for name, value in expected[place].items() if name != "value"}
        made = as_expected(row)
        assert {name: made[name] for name in compared} == compared
        found.append(place)
    assert found == list(expected)


def as_expected(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as `expected.jsonl.gz` has it."""
    key = row["__key"]
    if key is not None:
        key = _base64(key) if row["__keyIsBase64"] else bytes(key).decode()
    value = b"" if row["value"] is None else bytes(row["value"])
    return {
        "ledger": row["__ledgerId"],
        "entry": row["__entryId"],
        "partition": row["__partition"],
        "batch_index": row["__batchIndex"],
        "batch_size": row["__batchSize"],
        "key": key,
        "has_key": key is not None,
        "key_b64_encoded": row["__keyIsBase64"],
        "ordering_key_b64": _base64(row["__orderingKey"]),
        "properties": dict(row["__messageProperties"]),
        "publish_time": _milliseconds(row["__publishTime"]),
        "event_time": _milliseconds(row["__eventTime"]),
        "producer_name": row["__producerName"],
        "sequence_id": row["__sequenceId"],
        "null_value": row["value"] is None,
        "size": len(value),
        "data_len": len(value),
        "sha256": hashlib.sha256(value).hexdigest(),
        "schema_version_b64": _base64(row["__schemaVersion"]),
    }


def _base64(data: Any) -> str | None:
    return None if data is None else base64.b64encode(bytes(data)).decode()


def _milliseconds(time: Any) -> int:
    return 0 if time is None else round(time.timestamp() * 1000)


# --- What every column of messages must be for the golden topics: a list of topics by columns.
#
# A column is judged by what Pulsar's clients read (`expected.jsonl.gz`) or sent (`txn-sent.jsonl`). What these do not
# have is checked by the entry's metadata, parsed by the generated protobuf classes.


Row = Mapping[str, Any]
Entries = Mapping[tuple[int, int], Row]
"""By ledger and entry: the expected columns of its messages."""

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
"""The fields, of messages that a client read, to compare a column with."""


def entries_of(tier: TierReader, topic: str) -> Entries:
    """The metadata columns of the entries of `acme/cold/<topic>`."""
    rows = scan(tier, f"acme/cold/{topic}", level="entries").to_table().to_pylist()
    return {(row["__ledgerId"], row["__entryId"]): _of_entry(split_entry(row["value"])) for row in rows}


def assert_columns_are_as_expected(
    rows: Iterable[Row], topic: str, entries: Entries, broker: Path = BROKER
) -> set[str]:
    """Compare `rows` of all columns, in order, with the topic `acme/cold/<topic>`; returns the columns compared."""
    for row, read in zip(rows, topic_rows(topic, broker), strict=True):
        made = as_expected(row) | {"null_value": row["__nullValue"]}
        for column, fields in _READ.items():
            known = {field: read[field] for field in fields if field in read}
            assert {field: made[field] for field in known} == known, (column, read)
        compared = _of_place(topic, read) | entries[read["ledger"], read["entry"]]
        assert {column: row[column] for column in compared} == compared, read
    return _READ.keys() | compared.keys()


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
    """The sent messages by ledger and entry: a whole batch is of the transaction that one of its messages is of."""
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
    return of(getattr(metadata, field)) if metadata.HasField(field) else None


def _time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
