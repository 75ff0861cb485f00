"""Messages of Pulsar's Java client, compressed, batched, compacted, in chunks: we read what its reader reads."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from live.broker import read_values
from live.clients import rows_as_java_reads

from pulsar_offload import scan

pytestmark = pytest.mark.sampled(12)

COMPRESSIONS = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")


def messages(seed):
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


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_messages_of_each_compression_are_what_the_java_client_reads(cold, java_client, compression):
    topic = cold.topic(f"java-{compression}")
    for batch in (0, 4):
        java_client.produce(topic, messages(compression), compression=compression, batch=batch)
    read = java_client.consume(topic)
    assert len(read) == 2 * 9
    assert {message["value"] for message in read} > {None, b""}
    cold.offload(topic)
    with cold.store.open_reader() as tier:
        assert rows_as_java_reads(tier, topic) == read
        stored = scan(tier, topic, columns=["__compression"]).to_table()
    assert COMPRESSIONS.index(compression) in stored["__compression"].to_pylist()


def test_a_compacted_topic_is_read_as_it_was_written(cold, java_client):
    topic = cold.topic("compacted")
    written = [
        *[{"key": f"k{i % 4}", "value": b"%d" % i} for i in range(30)],
        {"value": b"no key"},
        {"key": "k1"},
        {"key": "k2", "value": b""},
        {"key": "k3", "value": b"last"},
    ]
    java_client.produce(topic, written[:20], batch=6)
    java_client.produce(topic, written[20:])
    cold.admin.compact(topic)
    compacted = java_client.consume(topic, compacted=True)
    read = java_client.consume(topic)
    assert [message["value"] for message in read] == [message.get("value") for message in written]
    cold.offload(topic)
    with cold.store.open_reader() as tier:
        rows = rows_as_java_reads(tier, topic)
    assert rows == read
    latest = {row["key"]: row for row in rows if row["key"] is not None}
    assert [row["key"] for row in latest.values()] == [b"k0", b"k1", b"k2", b"k3"]
    # Keys whose last value is null or empty are deleted, and messages without a key are gone.
    assert compacted == [row for row in latest.values() if row["value"]]


PYTHON_BYTES = 6 << 20
"""More than a broker takes in one entry."""

JAVA_CHUNK_BYTES = 64 << 10
JAVA_BYTES = 30 * JAVA_CHUNK_BYTES


@pytest.mark.nightly
def test_chunks_of_two_clients_are_joined_as_a_consumer_does(cold, client, java_client):
    """Whether they come interleaved is up to the machine; `test_crafted_messages.py` makes sure that some do."""
    topic = cold.topic("two-clients")
    producer = client.create_producer(
        topic, producer_name="python", batching_enabled=False, chunking_enabled=True, send_timeout_millis=0
    )
    by_java = [{"value": random.Random(i).randbytes(JAVA_BYTES - i)} for i in range(4)]
    by_python = 0
    with ThreadPoolExecutor(1) as pool:
        producer.send(random.Random(by_python).randbytes(PYTHON_BYTES))
        sending = pool.submit(
            java_client.produce, topic, by_java, chunk_bytes=JAVA_CHUNK_BYTES, compression="LZ4"
        )
        while not sending.done():  # both are sending
            by_python += 1
            producer.send(random.Random(by_python).randbytes(PYTHON_BYTES))
        sending.result()
    producer.close()
    read = read_values(client, topic, len(by_java) + by_python + 1)
    ledgers = cold.offload(topic)
    assert len(ledgers) > 4
    with cold.store.open_reader() as tier:
        raw = scan(tier, topic, columns=["__chunkId"], chunks="raw").to_table()
        assert raw.num_rows > 4 * 30 + 2 * by_python
        for how in ({}, {"min_partitions": 6}):
            table = scan(tier, topic, columns=["__messageId", "value"], **how).to_table()
            assert [tuple(row.values()) for row in table.to_pylist()] == read
