"""Messages of Pulsar's Java client in each compression, batched and not: we read what its reader reads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from live.broker import ColdNamespace
from live.clients import JavaClient, rows_as_java_reads

from pulsar_offload import scan

COMPRESSIONS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")


def messages(seed: str) -> Iterator[dict[str, Any]]:
    """Of compressible and other content, empty, without a value, with keys and without."""
    draw = random.Random(seed)
    for i, size in enumerate([0, 1, 100, 5000, 200_000, 0, 70_000, 10]):
        message: dict[str, Any] = {"properties": {"i": str(i), "ö": ""}} if i % 3 else {}
        message |= {"value": draw.randbytes(size) if i % 2 else b"again and " * (size // 10)}
        message |= {"key": f"key {i % 3}"} if i % 4 else {}
        message |= {"event_ms": 1_600_000_000_000 + i} if i % 2 else {}
        message |= {"ordering_key": bytes([i, 255])} if i % 5 == 1 else {}
        yield message
    yield {"key": "gone"}


def test_messages_of_each_compression_are_what_the_java_client_reads(
    cold: ColdNamespace, java_client: JavaClient
) -> None:
    topic = cold.topic("java")
    for compression in COMPRESSIONS:
        for batch in (0, 4):
            java_client.produce(topic, messages(compression), compression=compression, batch=batch)
    read = java_client.consume(topic)
    assert len(read) == 2 * 9 * len(COMPRESSIONS)
    assert {message["value"] for message in read} > {None, b""}
    cold.offload(topic)
    with cold.store.open_reader() as tier:
        assert rows_as_java_reads(tier, topic) == read
        stored = scan(tier, topic, columns=["__compression"]).to_table()
    assert set(stored["__compression"].to_pylist()) == set(range(len(COMPRESSIONS)))
