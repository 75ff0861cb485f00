"""Chunked, encrypted and delayed messages of a running broker: we read what the official client reads."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pulsar
import pytest
from live.broker import produce, read_values, scanned

from offload_hooks.errors import DecryptionError
from pulsar_offload import scan

pytestmark = pytest.mark.sampled(8)

CHUNK_BYTES = 5 << 20
"""About the most that a broker takes in one entry, by default."""

SENT_WITHIN_MS = 120_000


def key_reader(keys):
    return pulsar.CryptoKeyReader(str(keys / "orders.pub"), str(keys / "orders.pem"))


def large(seed, size):
    return random.Random(seed).randbytes(size)


def our_values(tier, topic, **options):
    rows = scan(tier, topic, columns=["__messageId", "value"], **options).to_table().to_pylist()
    return [(row["__messageId"], row["value"]) for row in rows]


@pytest.mark.nightly
def test_chunks_of_two_producers_are_what_the_client_joins(cold, client):
    topic = cold.topic("chunked")
    sizes = [CHUNK_BYTES * 2, 10, CHUNK_BYTES + 1]
    producers = [
        client.create_producer(
            topic,
            producer_name=name,
            batching_enabled=False,
            chunking_enabled=True,
            compression_type=compression,
            send_timeout_millis=SENT_WITHIN_MS,
        )
        for name, compression in (("one", pulsar.CompressionType.LZ4), ("two", pulsar.CompressionType.NONE))
    ]
    for i, size in enumerate(sizes):  # both are sending at once, so that their chunks come interleaved
        for number, producer in enumerate(producers):
            producer.send_async(large(f"{number}:{i}", size), lambda *_: None)
    for producer in producers:
        producer.flush()
        producer.close()
    read = read_values(client, topic, 2 * len(sizes))
    cold.offload(topic)
    with cold.store.open_reader() as tier:
        raw = scan(tier, topic, columns=["__producerName"], chunks="raw").to_table()
        assert raw.num_rows > len(read)
        assert our_values(tier, topic) == read
        assert our_values(tier, topic, min_partitions=20) == read


@pytest.mark.parametrize("chunked", [False, True])
def test_encrypted_messages_are_what_the_client_decrypts(cold, client, keys, chunked):
    topic = cold.topic(f"encrypted-{chunked}")
    options: Mapping[str, Any] = (
        {"chunking_enabled": True, "batching_enabled": False}
        if chunked
        else {"batching_enabled": True, "batching_max_messages": 5, "batching_max_publish_delay_ms": 10_000}
    )
    producer = client.create_producer(
        topic,
        encryption_key="orders",
        crypto_key_reader=key_reader(keys),
        compression_type=pulsar.CompressionType.ZSTD,
        send_timeout_millis=SENT_WITHIN_MS,
        **options,
    )
    for i in range(3 if chunked else 12):
        producer.send_async(large(str(i), CHUNK_BYTES + 1 if chunked else 50 * i), lambda *_: None)
    producer.flush()
    producer.close()
    read = read_values(client, topic, 3 if chunked else 12, crypto_key_reader=key_reader(keys))
    cold.offload(topic)
    with cold.store.open_reader() as tier:
        assert our_values(tier, topic, key_provider=("pem", {"directory": str(keys)})) == read
        with pytest.raises(DecryptionError, match="'orders'"):
            our_values(tier, topic, crypto_failure_action="FAIL")
        raw = scan(tier, topic, columns=["__valueIsRaw"]).to_table()["__valueIsRaw"].to_pylist()
        assert raw
        assert all(raw)


def test_delayed_messages_are_read_where_they_stand(cold, client, consumers):
    topic = cold.topic("delayed")
    due_ms = 4_000_000_000_000
    messages = [{"content": b"at once"}, {"content": b"later", "deliver_at": due_ms}, {"content": b"now"}]
    sent = produce(client, topic, messages, batching_enabled=False)
    read = consumers.consume(topic, sent)
    cold.offload(topic)
    with cold.store.open_reader() as tier:
        assert scanned(tier, topic) == read
        times = scan(tier, topic, columns=["__deliverAtTime"]).to_table()["__deliverAtTime"].to_pylist()
    assert [time and round(time.timestamp() * 1000) for time in times] == [None, due_ms, None]
