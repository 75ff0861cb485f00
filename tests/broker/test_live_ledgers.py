"""Ledgers of a running broker are read from its bookie: the bytes that it offloads later, and its open ledger."""

from __future__ import annotations

from contextlib import closing

import pytest
from live.broker import LivePulsar
from live.sent import TOPICS
from waiting import wait_for

from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.storage.tier.registry import make_ledger_store
from offload_hooks.testing.ledger_cases.base import all_of
from pulsar_offload import open_tier, scan


@pytest.fixture(scope="module")
def live(live_broker, versitygw):
    with LivePulsar.connected(live_broker, versitygw) as live:
        yield live


@pytest.fixture
def store(records, live_broker):
    options = {"url": records, "admin_url": live_broker.endpoint}
    with closing(make_ledger_store("bookkeeper", options)) as store:
        yield store


@pytest.mark.parametrize("kind", ["compression-lz4", "compression-zstd"])
def test_what_is_read_hot_is_what_the_broker_offloads(live, store, kind):
    cold = live.new_cold_namespace()
    topic = cold.topic(kind)
    live.send(topic, TOPICS[kind])
    *closed, last = live.admin.ledgers(topic)
    assert closed
    hot = {each.ledger_id: all_of(store.open(each.ledger_id)) for each in [*closed, last]}
    assert {each.ledger_id: each.entries for each in closed} == {
        each.ledger_id: len(hot[each.ledger_id]) for each in closed
    }
    for each in closed:
        status = store.verify(each.ledger_id)
        assert status.sealed
        name = managed_ledger_of_topic(parse_topic(topic))
        assert status.custom_metadata["pulsar/managed-ledger"].decode() == name
    cold.offload(topic)
    with open_tier(cold.store.url, **cold.store.options) as tier:
        rows = scan(tier, level="entries").to_table().to_pylist()
    by_ledger = {ledger_id: [] for ledger_id in hot if hot[ledger_id]}
    for row in rows:
        by_ledger[row["__ledgerId"]].append((row["__entryId"], row["value"]))
    assert by_ledger == {ledger_id: list(enumerate(hot[ledger_id])) for ledger_id in by_ledger}


def test_an_open_ledger_is_read_as_far_as_its_broker_has_confirmed(live, store):
    topic = live.new_cold_namespace().topic("open")
    with closing(live.client.create_producer(topic, batching_enabled=False)) as producer:
        for i in range(7):
            producer.send(b"message %d" % i)
        (ledger,) = live.admin.ledgers(topic)
        reader = store.open(ledger.ledger_id)
        assert (reader.status().entry_count, reader.status().sealed) == (7, False)
        entries = all_of(reader)
        assert [entry.endswith(b"message %d" % i) for i, entry in enumerate(entries)] == [True] * 7
        producer.send(b"message 7")
        wait_for(lambda: reader.wait_past(7, 5).entry_count == 8, 30)
    assert live.admin.ledgers(topic)[-1].ledger_id == ledger.ledger_id  # nothing fenced it
