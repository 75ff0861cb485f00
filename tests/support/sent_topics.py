"""The topics that the tests have a broker offload: each a function that sends its messages by the official client."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pulsar
from pulsar.schema import Array, AvroSchema, Double, JsonSchema, Long, Record, String
from pulsar_topics import Place, produce

WORDS = ("ledger", "entry", "segment", "block", "index", "Größe", "冷", "")
EVENT_TIME_MS = 1_600_000_000_000
PARTITIONS = {"partitioned": 3}
"""Topics that are partitioned, and into how many."""


class Order(Record):
    """What the topics `json` and `avro` hold."""

    number = Long()
    item = String()
    price = Double()
    tags = Array(String())


def orders() -> list[dict[str, Any]]:
    """The orders of the topics `json` and `avro`, as their fields."""
    random_ = random.Random(5)
    return [
        {
            "number": number - 5,
            "item": random_.choice(WORDS),
            "price": random_.random(),
            "tags": random_.choices(WORDS, k=number % 4),
        }
        for number in range(60)
    ]


def _messages(seed: str, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Messages of compressible content of these sizes, some null, some with keys, properties and event times."""
    random_ = random.Random(seed)
    for i, size in enumerate(sizes):
        words = " ".join(random_.choices(WORDS, k=size)).encode()
        message: dict[str, Any] = {"content": None if i % 11 == 10 else words[:size]}
        if i % 2:
            message["partition_key"] = f"key-{random_.choice(WORDS)}-{i % 5}"
        if i % 3 == 0:
            message["properties"] = {f"name-{n}": random_.choice(WORDS) for n in range(i % 4)} | {"i": str(i)}
        if i % 5:
            message["event_timestamp"] = EVENT_TIME_MS + i
        if i % 7 == 0:
            message["ordering_key"] = f"order-{i}"
        yield message


def _sizes(seed: str, count: int) -> list[int]:
    """Mostly small ones, with an empty and some large ones among them."""
    random_ = random.Random(seed)
    sizes = [0, 1, 70_000, 300_000]
    sizes += [random_.randrange(2, 3000) for _ in range(count - len(sizes))]
    random_.shuffle(sizes)
    return sizes


def _batched_and_unbatched(
    compression: pulsar.CompressionType, client: pulsar.Client, topic: str
) -> dict[Place, int]:
    seed = compression.name
    sent = produce(
        client,
        topic,
        _messages(seed, _sizes(seed, 60)),
        producer_name=f"batching-{seed}",
        compression_type=compression,
        batching_enabled=True,
        batching_max_messages=7,
        batching_max_publish_delay_ms=10_000,
        batching_max_allowed_size_in_bytes=1 << 20,
    )
    singles = _messages(seed, _sizes(seed, 40))
    if compression is pulsar.CompressionType.ZLib:
        # The client would drop the others (test_client_faults.py).
        singles = filter(_has_content, singles)
    return sent | produce(
        client,
        topic,
        singles,
        producer_name=f"single-{seed}",
        compression_type=compression,
        batching_enabled=False,
    )


def _has_content(message: Mapping[str, Any]) -> bool:
    return bool(message["content"])


def _keyed(client: pulsar.Client, topic: str) -> dict[Place, int]:
    """Batches of one key each."""
    messages = [
        {"content": b"%d" % i, "partition_key": f"key-{i % 6}", "properties": {"i": str(i)}}
        for i in range(120)
    ]
    return produce(
        client,
        topic,
        messages,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_messages=20,
        batching_max_publish_delay_ms=10_000,
    )


def _partitioned(client: pulsar.Client, topic: str) -> dict[Place, int]:
    return produce(client, topic, _messages("partitioned", _sizes("partitioned", 90)), batching_enabled=False)


def _records(schema: Any, batched: bool, client: pulsar.Client, topic: str) -> dict[Place, int]:
    messages = [{"content": Order(**order)} for order in orders()]
    options = {"batching_max_messages": 9, "batching_max_publish_delay_ms": 10_000} if batched else {}
    return produce(client, topic, messages, schema=schema, batching_enabled=batched, **options)


TOPICS: dict[str, Callable[[pulsar.Client, str], dict[Place, int]]] = {
    **{
        f"compression-{compression.name.lower()}": partial(_batched_and_unbatched, compression)
        for compression in (
            pulsar.CompressionType.NONE,
            pulsar.CompressionType.LZ4,
            pulsar.CompressionType.ZLib,
            pulsar.CompressionType.ZSTD,
            pulsar.CompressionType.SNAPPY,
        )
    },
    "keyed": _keyed,
    "partitioned": _partitioned,
    "json": partial(_records, JsonSchema(Order), False),
    "avro": partial(_records, AvroSchema(Order), True),
}
"""By the topic's name: sends the messages to a topic; where each one is, and its sequence id."""
