"""Entries that we crafted and a running broker stored: we read what Pulsar's clients make of them."""

from __future__ import annotations

import pytest
from entries import entry
from live.clients import rows_as_java_reads
from live.sent import RawProducer
from scenes.messages import SentMessage, interleaved, readable

from offload_hooks.errors import IncompleteMessageError
from pulsar_offload import scan

END = b"the end"

pytestmark = pytest.mark.sampled(6)


@pytest.fixture(scope="module")
def publish(broker):
    """Have the broker store these entries, and a plain message `END` after them."""

    def publish(topic, entries):
        with RawProducer(broker.service_url, broker.endpoint, topic) as producer:
            producer.send([*entries, entry(END)])

    return publish


def chunked(number, *, lost=frozenset(), producer="one"):
    value = b"%s %d " % (producer.encode(), number) * 500
    return SentMessage(producer=producer, number=number, value=value, chunks=5, codec=number % 2, lost=lost)


def test_chunks_lie_interleaved_over_ledgers_and_the_incomplete_ones_are_left_out(cold, java_client, publish):
    """A producer that was killed in a message, one that lost the beginning of one, and one a chunk in between."""
    topic = cold.topic("chunks-crafted")
    lost = {("two", 1): {2}, ("three", 2): {0}, ("killed", 0): {3, 4}}
    sent = [
        chunked(number, producer=name, lost=frozenset(lost.get((name, number), ())))
        for name, count in (("one", 4), ("two", 4), ("three", 3), ("killed", 1))
        for number in range(count)
    ]
    stored = interleaved(sent, [0, 1, 2, 3, 2, 1] * 20)
    publish(topic, [each.payload for each in stored])
    read = java_client.consume(topic, until=END)
    assert [message["value"] for message in read] == [*(value for _, value in readable(stored)), END]
    ledgers = cold.offload(topic)
    assert len(ledgers) > 2
    with cold.store.open_reader() as tier:
        for mode in ("PERMISSIVE", "DROPMALFORMED"):
            for how in ({}, {"task_bytes": 1}):
                assert rows_as_java_reads(tier, topic, mode=mode, **how) == read
        with pytest.raises(IncompleteMessageError):
            rows_as_java_reads(tier, topic)
        raw = scan(tier, topic, columns=["value"], chunks="raw").to_table()
    assert raw.num_rows == len(stored) + 1


def test_chunks_that_were_sent_again_are_read_once(cold, java_client, publish):
    topic = cold.topic("chunks-again")
    first, second, third, fourth, last = chunked(1).entries()
    publish(topic, [first, second, second, first, second, third, third, fourth, last, last, third])
    read = java_client.consume(topic, until=END)
    assert [message["value"] for message in read] == [chunked(1).value, END]
    cold.offload(topic)
    with cold.store.open_reader() as tier:
        assert rows_as_java_reads(tier, topic) == read


def test_replicated_and_delayed_messages_are_read_with_what_they_say(cold, java_client, publish):
    topic = cold.topic("replicated")
    publish(
        topic,
        [
            entry(b"from afar", replicated_from="far-away", sequence_id=1),
            entry(b"delayed", deliver_at_time=4_000_000_000_000, replicated_from="far-away", sequence_id=2),
            entry(b"for some", replicate_to=["east", "west"], sequence_id=3),
            entry(b"of here", sequence_id=4),
        ],
    )
    read = java_client.consume(topic, until=END)
    assert [each["replicated_from"] for each in read] == ["far-away", "far-away", None, None, None]
    cold.offload(topic)
    with cold.store.open_reader() as tier:
        assert rows_as_java_reads(tier, topic) == read
        columns = ["__replicateTo", "__deliverAtTime"]
        rows = scan(tier, topic, columns=columns).to_table().to_pylist()
    assert [row["__replicateTo"] for row in rows] == [None, None, ["east", "west"], None, None]
    due = [row["__deliverAtTime"] and round(row["__deliverAtTime"].timestamp() * 1000) for row in rows]
    assert due == [None, 4_000_000_000_000, None, None, None]
