"""Objects with tombstones in the place of a broker's, BookKeeper's copies gone: clients get what they got before."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pulsar
import pytest
from entries import entry
from in_their_place import entries_in_objects, filter_mapfiles, filter_objects, keys_of
from live.broker import produce
from live.sent import RawProducer, ended, message, steps
from waiting import wait_for

from offload_core.format.messages.entry import split_entry

pytestmark = pytest.mark.sampled(6)


def aborted(name, messages):
    """A transaction of so many entries, one after another, and its end."""
    return [*({"messages": [message(name, 1000 + i)]} for i in range(messages)), {"abort": name}]


@dataclass(frozen=True, slots=True)
class DropSequences:
    """A filter of a third party: drops the messages with these sequence ids."""

    sequence_ids: Collection[int]
    stop = None
    waits_for = ""
    causes = ("its sequence id",)

    def open(self, topic):
        del topic
        return self

    def look(self, ledger_id, entries):
        del ledger_id
        found = [split_entry(bytes(each)).metadata.sequence_id for each in entries]
        return np.array([each in self.sequence_ids for each in found], dtype=np.int32)


def dropped_from(records):
    """Entries kept and dropped, by ledger."""
    return {of: (record.kept.entries, record.total_dropped.entries) for of, record in records.items()}


def forget(admin, topic):
    """Have the broker delete BookKeeper's copies, and load the topic anew."""
    admin.drop_bookkeeper_copies(topic)
    assert not [ledger for ledger in admin.ledgers(topic)[:-1] if ledger.offloaded and ledger.in_bookkeeper]
    admin.unload(topic)


# --- transactions ------------------------------------------------------------------------------


@pytest.mark.nightly  # another two brokers, which take transactions
def test_all_clients_get_the_same_of_a_topic_whose_transactions_have_ended(transactional, tmp_path):
    """Whole ledgers of tombstones at the beginning and the end, and batches in which messages of a transaction are."""
    bucket, store = transactional.new_store()
    policies = transactional.broker.s3_policies(bucket, deletion_lag_ms=0)
    topic = f"persistent://{transactional.new_namespace(policies)}/ended"
    sent = [*aborted("head", 45), *ended(list(steps())), *aborted("tail", 45)]
    transactional.send_steps(topic, sent)
    before = transactional.views(topic, "before")
    assert 50 < len(before["read"]) < sum(len(step.get("messages", ())) for step in sent) - 90

    keys = keys_of(transactional.admin.offload_all(topic))
    with store.open() as tier:
        entries = entries_in_objects(tier, keys)
        records = filter_objects(tier, keys, tmp_path)
    assert sorted(records) == sorted(entries)
    kept = [kept for kept, _ in dropped_from(records).values()]
    assert kept[:2] == [0, 0]
    assert min(kept[3:5]) > 0
    forget(transactional.admin, topic)

    after = transactional.views(topic, "after")
    assert after == before
    read, shared = (
        [(row["ledger"], row["entry"], row["value"]) for row in after[name]] for name in ("read", "shared")
    )
    assert read == shared
    for name in ("exclusive", "shared", "failover", "key-shared"):
        wait_for(lambda name=name: not transactional.admin.backlog(topic, f"after-{name}"))

    transactional.send_steps(topic, [{"messages": [message(None, 1)]}])
    *read, new = transactional.read(topic)
    assert read == before["read"]
    broker = split_entry(list(entries.values())[-1][-1]).broker
    assert new["index"] == (None if broker is None else broker.index + 1)


@pytest.mark.nightly  # another two brokers, which take transactions
@pytest.mark.parametrize("stored_as", ["objects", "MapFiles"])
def test_what_lies_before_an_open_transaction_is_filtered_and_nothing_behind_it(
    transactional, tmp_path, stored_as
):
    bucket, store = transactional.new_store()
    root = tmp_path / "tier"
    policies = (
        transactional.broker.s3_policies(bucket, deletion_lag_ms=0)
        if stored_as == "objects"
        else transactional.broker.filesystem_policies(root, deletion_lag_ms=0)
    )
    topic = f"persistent://{transactional.new_namespace(policies)}/open"
    settled = [{"messages": [message(each, i)]} for i in range(10) for each in (None, "one", "other")]
    transactional.send_steps(
        topic, [*aborted("head", 25), *settled, {"abort": "one"}, {"commit": "other"}, *steps()]
    )
    read = transactional.read(topic)
    ledgers = transactional.admin.offload_all(topic)
    if stored_as == "objects":
        with store.open() as tier:
            records = filter_objects(tier, keys_of(ledgers), tmp_path / "hot")
    else:
        records = filter_mapfiles(root, topic, ledgers)
    assert 2 < len(records) < len(ledgers)
    assert sum(dropped for _, dropped in dropped_from(records).values()) >= 25 + 10
    forget(transactional.admin, topic)

    assert transactional.read(topic) == read
    consumed = transactional.consume(topic, "shared", "after", len(read))
    assert [row["value"] for row in consumed] == [row["value"] for row in read]


# --- times -------------------------------------------------------------------------------------


@pytest.mark.nightly  # another two brokers, which take transactions
@pytest.mark.parametrize("transactional_broker", [True], ids=["broker entry metadata"], indirect=True)
def test_a_broker_seeks_by_its_own_time_whatever_producers_clocks_say(transactional, tmp_path):
    """It looks for a time by halves: any entry may be looked at, also one in whose place there is a tombstone."""
    bucket, store = transactional.new_store()
    admin, broker = transactional.admin, transactional.broker
    policies = broker.s3_policies(bucket, deletion_lag_ms=0)
    topic = f"persistent://{transactional.new_namespace(policies)}/clocks"
    with RawProducer(broker.service_url, broker.endpoint, topic) as producer:
        producer.send([entry(b"%d" % i, sequence_id=i, publish_time=2_000_000 - i) for i in range(70)])
    times = sorted({row["broker_ms"] for row in transactional.read(topic)})
    assert len(times) > 10
    before = [admin.message_id_at(topic, time) for time in times]
    assert len(set(before)) == len(times)
    dropped = [i for i in range(70) if i % 7]
    keys = keys_of(admin.offload_all(topic))
    with store.open() as tier:
        records = filter_objects(tier, keys, tmp_path, DropSequences(dropped))
    assert sum(record.total_dropped.entries for record in records.values()) == len(dropped)
    forget(admin, topic)
    assert [admin.message_id_at(topic, time) for time in times] == before


# --- without transactions ----------------------------------------------------------------------


@pytest.mark.parametrize("kept", [range(35), range(0)], ids=["the tail is dropped", "all is dropped"])
def test_a_broker_without_transactions_passes_over_tombstones(live, tmp_path, kept):
    cold, admin, client = live.new_cold_namespace(), live.admin, live.client
    topic = cold.topic("dropped")
    messages = [{"content": b"%d" % i, "sequence_id": i} for i in range(60)]
    produce(client, topic, messages, batching_enabled=False)
    ledgers = admin.offload_all(topic)
    filter_ledgers(cold.store, ledgers, tmp_path, DropSequences(range(len(kept), 60)))
    forget(admin, topic)

    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    read = []
    while reader.has_message_available():
        read.append(reader.read_next(timeout_millis=60_000).data())
    reader.close()
    assert read == [b"%d" % i for i in kept]

    consumer = client.subscribe(topic, "all", initial_position=pulsar.InitialPosition.Earliest)
    produce(client, topic, [{"content": b"the next"}])
    received = [consumer.receive(timeout_millis=60_000) for _ in range(len(kept) + 1)]
    assert [each.data() for each in received] == [*read, b"the next"]
    consumer.acknowledge_cumulative(received[-1])
    consumer.close()


def test_compaction_passes_over_tombstones(live, java_client, tmp_path):
    cold, admin, client = live.new_cold_namespace(), live.admin, live.client
    topic = cold.topic("compacted")
    messages = [{"content": b"%d" % i, "partition_key": f"k{i % 7}", "sequence_id": i} for i in range(60)]
    produce(client, topic, messages, batching_enabled=False)
    ledgers = admin.offload_all(topic)
    filter_ledgers(cold.store, ledgers, tmp_path, DropSequences(range(50, 57)))
    forget(admin, topic)

    admin.compact(topic)
    compacted = java_client.consume(topic, compacted=True)
    assert [each["value"] for each in compacted] == [b"46", b"47", b"48", b"49", b"57", b"58", b"59"]


def filter_ledgers(store, ledgers, folder, chosen):
    """Filter all of them."""
    with store.open() as tier:
        records = filter_objects(tier, keys_of(ledgers), folder, chosen)
    assert len(records) == len(ledgers) > 2
