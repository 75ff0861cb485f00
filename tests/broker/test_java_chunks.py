"""Chunked messages of a Python and a Java client at once, over ledgers: we read what a consumer joins.

Whether their chunks come interleaved is up to the machine; `test_crafted_messages.py` makes sure that some do.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pulsar
from live.broker import ColdNamespace, read_values
from live.clients import JavaClient

from pulsar_offload import scan

PYTHON_BYTES = 6 << 20
"""More than a broker takes in one entry."""

JAVA_CHUNK_BYTES = 64 << 10
JAVA_BYTES = 30 * JAVA_CHUNK_BYTES


def test_chunks_of_two_clients_are_joined_as_a_consumer_does(
    cold: ColdNamespace, client: pulsar.Client, java_client: JavaClient
) -> None:
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
