"""What Pulsar's official client sends to a topic and reads from it, and our rows in the form of what it reads."""

from __future__ import annotations

import queue
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pulsar

from pulsar_offload import TierReader, scan

RECEIVED_WITHIN_S = 60.0

COLUMNS = (
    "value",
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
    "__partition",
    "__sequenceId",
    "__producerName",
    "__ledgerId",
    "__entryId",
    "__batchIndex",
    "__orderingKey",
    "__schemaVersion",
)
"""The columns that `row_as_read` needs."""

Place = tuple[int, int, int, int]
"""Ledger, entry, batch index, partition."""

Read = dict[str, Any]
"""A message as a consumer reads it, with the sequence id that its producer gave it."""


def produce(
    client: pulsar.Client, topic: str, messages: Iterable[Mapping[str, Any]], **options: Any
) -> dict[Place, int]:
    """Send messages, by a producer with these options; where each one is, and its sequence id.

    A message is what `Producer.send` takes. Those without a `sequence_id` get 1000, 1007, 1014, …
    """
    producer = client.create_producer(topic, block_if_queue_full=True, **options)
    answers: queue.SimpleQueue[tuple[int, pulsar.Result, pulsar.MessageId]] = queue.SimpleQueue()
    count = 0
    for count, message in enumerate(messages, start=1):
        sequence_id = message.get("sequence_id", 1000 + 7 * (count - 1))
        sent = {**message, "sequence_id": sequence_id}
        producer.send_async(callback=partial(_answered, answers, sequence_id), **sent)
    producer.flush()
    sent_ids: dict[Place, int] = {}
    for _ in range(count):
        sequence_id, result, message_id = answers.get(timeout=RECEIVED_WITHIN_S)
        assert result == pulsar.Result.Ok, result
        sent_ids[_place(message_id)] = sequence_id
    producer.close()
    return sent_ids


def _answered(
    answers: queue.SimpleQueue[tuple[int, pulsar.Result, pulsar.MessageId]],
    sequence_id: int,
    result: pulsar.Result,
    message_id: pulsar.MessageId,
) -> None:
    answers.put((sequence_id, result, message_id))


def consume(client: pulsar.Client, topic: str, sent: Mapping[Place, int]) -> list[Read]:
    """Read all messages that were sent, from the first, by an exclusive consumer that acknowledges none."""
    consumer = client.subscribe(topic, "tests", initial_position=pulsar.InitialPosition.Earliest)
    try:
        messages = [consumer.receive(timeout_millis=int(RECEIVED_WITHIN_S * 1000)) for _ in sent]
        return by_partition([_as_read(message, sent) for message in messages])
    finally:
        consumer.close()


def read_from(client: pulsar.Client, topic: str, message_id: bytes, sent: Mapping[Place, int]) -> list[Read]:
    """Read the messages of a topic or partition from this one on, by a reader."""
    start = pulsar.MessageId.deserialize(message_id)
    reader = client.create_reader(topic, start, start_message_id_inclusive=True)
    read = []
    while reader.has_message_available():
        read.append(_as_read(reader.read_next(timeout_millis=int(RECEIVED_WITHIN_S * 1000)), sent))
    reader.close()
    return read


def row_as_read(row: Mapping[str, Any]) -> Read:
    """One of our rows (with `COLUMNS`) in the form of a consumed message."""
    return {
        "place": (row["__ledgerId"], row["__entryId"], row["__batchIndex"], row["__partition"]),
        "message_id": bytes(row["__messageId"]),
        "topic": row["__topic"],
        "value": None if row["value"] is None else bytes(row["value"]),
        "key": _text(row["__key"]),
        "ordering_key": _text(row["__orderingKey"]),
        "properties": dict(row["__messageProperties"]),
        "published_ms": _milliseconds(row["__publishTime"]),
        "event_ms": _milliseconds(row["__eventTime"]),
        "producer": row["__producerName"],
        "schema_version": _text(row["__schemaVersion"]),
        "sequence_id": row["__sequenceId"],
    }


def scanned(tier: TierReader, topic: str, **options: Any) -> list[Read]:
    """All messages of a topic by the Arrow scan with these options, in the form of consumed ones."""
    rows = scan(tier, topic, columns=COLUMNS, **options).to_table().to_pylist()
    return by_partition([row_as_read(row) for row in rows])


def messages_by_topic(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Read]]:
    """Rows of a namespace in the form of consumed messages: by the topic's last name, a partitioned one as a whole."""
    found: dict[str, list[Read]] = defaultdict(list)
    for row in rows:
        found[row["__topic"].partition("-partition-")[0].rpartition("/")[2]].append(row_as_read(row))
    return {topic: by_partition(messages) for topic, messages in found.items()}


def by_partition(messages: Sequence[Read]) -> list[Read]:
    """Partition after partition, each in the order that it has here."""
    return sorted(messages, key=lambda message: message["topic"])


def _as_read(message: pulsar.Message, sent: Mapping[Place, int]) -> Read:
    place = _place(message.message_id())
    return {
        "place": place,
        "message_id": message.message_id().serialize(),
        "topic": message.topic_name(),
        "value": None if message.has_null_value() else message.data(),
        "key": message.partition_key(),
        "ordering_key": message.ordering_key(),
        "properties": message.properties(),
        "published_ms": message.publish_timestamp(),
        "event_ms": message.event_timestamp(),
        "producer": message.producer_name(),
        "schema_version": message.schema_version(),
        "sequence_id": sent[place],
    }


def _place(message_id: pulsar.MessageId) -> Place:
    return (
        message_id.ledger_id(),
        message_id.entry_id(),
        message_id.batch_index(),
        message_id.partition(),
    )


def _text(data: Any) -> str:
    """As the client shows what is absent: empty."""
    return "" if data is None else bytes(data).decode()


def _milliseconds(time: Any) -> int:
    return 0 if time is None else round(time.timestamp() * 1000)
