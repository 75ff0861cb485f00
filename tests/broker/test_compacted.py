"""A topic that a running broker compacted: we read all of it, and its `readCompacted` is the latest value by key."""

from __future__ import annotations

from live.broker import ColdNamespace
from live.clients import JavaClient, rows_as_java_reads


def test_a_compacted_topic_is_read_as_it_was_written(cold: ColdNamespace, java_client: JavaClient) -> None:
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
