"""Pulsar's Java client in the oracle's JVM: messages that it sends, and what its readers get, as our rows are, too."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle import Oracle

from offload_proto.messages_pb2 import MessageIdData
from pulsar_offload import TierReader, scan

READ_COLUMNS = {
    "id": "__messageId",
    "value": "value",
    "key": "__key",
    "ordering_key": "__orderingKey",
    "properties": "__messageProperties",
    "published_ms": "__publishTime",
    "event_ms": "__eventTime",
    "producer": "__producerName",
    "sequence_id": "__sequenceId",
    "replicated_from": "__replicatedFrom",
}
"""What `JavaClient.consume` gives of a message, and the column that must be the same."""

Read = dict[str, Any]

_BYTES = ("id", "value", "key", "ordering_key")


@dataclass(frozen=True, slots=True)
class JavaClient:
    """The client of the broker at `service_url`."""

    oracle: Oracle
    service_url: str

    def produce(
        self,
        topic: str,
        messages: Iterable[Mapping[str, Any]],
        *,
        keys: Path | None = None,
        encrypt_for: Sequence[str] = (),
        **options: Any,
    ) -> None:
        """Send messages (`value`, `ordering_key`: bytes) by one producer.

        `options` are `batch`, `chunk_bytes` and `compression`. With `encrypt_for` the folder `keys` has `NAME.pub`.
        """
        told = [{name: _as_text(value) for name, value in message.items()} for message in messages]
        if encrypt_for:
            options |= {"encrypt_for": list(encrypt_for), "key_folder": str(keys)}
        self.oracle.ask("produce", service_url=self.service_url, topic=topic, messages=told, **options)

    def consume(
        self, topic: str, *, until: bytes | None = None, keys: Path | None = None, **options: Any
    ) -> list[Read]:
        """What a reader gets from the first message on, up to that whose value is `until` or the last there is.

        Ids are without the batch size 0 that this client gives a message outside of batches, and the others do not.
        `options` are `crypto_failure_action` and `compacted`. The folder `keys` has `NAME.pem` of every name.
        """
        if until is not None:
            options["until"] = _as_text(until)
        if keys is not None:
            options["key_folder"] = str(keys)
        answer = self.oracle.ask("consume", service_url=self.service_url, topic=topic, **options)
        return [_as_read(message) for message in answer["read"]]


def rows_as_java_reads(tier: TierReader, topic: str, **options: Any) -> list[Read]:
    """All messages of a topic by our scan, in the form of `JavaClient.consume`."""
    columns = list(READ_COLUMNS.values())
    table = scan(tier, topic, columns=columns, **options).to_table()
    rows = table.to_pylist(maps_as_pydicts="strict")
    return [{name: _as_number(row[column]) for name, column in READ_COLUMNS.items()} for row in rows]


def _as_text(value: Any) -> Any:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _as_read(message: Mapping[str, Any]) -> Read:
    read = {name: message[name] for name in READ_COLUMNS}
    for name in _BYTES:
        read[name] = None if message[name] is None else base64.b64decode(message[name])
    message_id = MessageIdData.FromString(read["id"])
    if not message_id.batch_size:
        message_id.ClearField("batch_size")
    if message_id.HasField("first_chunk_message_id"):
        message_id.first_chunk_message_id.ClearField("batch_size")
    return read | {"id": message_id.SerializeToString(), "event_ms": message["event_ms"] or None}


def _as_number(value: Any) -> Any:
    return round(value.timestamp() * 1000) if hasattr(value, "timestamp") else value
