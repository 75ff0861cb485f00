"""Copies of a live Pulsar's topics are moved, its records changed as it is said: its clients read on from the new ones.

Its records are in a ZooKeeper. All is done by the command, as an operator does it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pulsar
import pytest
from commands import in_this_process
from live.broker import produce, read_values
from live.clients import TransactionalPulsar
from live.sent import TOPICS, ended, steps
from waiting import wait_for

from offload_core.metadata.records import DriverMetadata, pack_stored_record, parse_stored_record
from pulsar_offload import open_tier, scan

pytestmark = pytest.mark.nightly  # a broker and a ZooKeeper of their own


# --- What `offload relocate --mapping` says is to be changed in a live Pulsar's records, done as its operator does it


def change_records(client, root, changes):
    """Make these `changes` of the command's report, in the ZooKeeper with the cluster's root.

    Their topics are unloaded. Everything else in the records stays, also how they are compressed.
    """
    for change in changes:
        path = root + change["path"]
        value, stat = client.get(path)
        stored = parse_stored_record(value)
        ledger = stored.info.ledger(change["ledger"])
        assert [str(ledger.context.uuid)] == change["old_uuids"]
        driver = DriverMetadata(name=change["driver"], properties=tuple(change["properties"].items()))
        context = replace(ledger.context, uuid=UUID(change["new_uuid"]), driver=driver)
        info = stored.info.with_ledger(replace(ledger, context=context))
        client.set(path, pack_stored_record(replace(stored, info=info)), version=stat.version)


# --- the tests ------------------------------------------------------------------------------------


CHUNKED_BYTES = (5 << 20) + 1
"""More than a broker takes in one entry."""

ROOT = "/pulsar"


@pytest.fixture(scope="module")
def live(zookeeper_broker, versitygw, oracle):
    with TransactionalPulsar.connected(zookeeper_broker, versitygw, oracle=oracle) as live:
        yield live


@pytest.fixture
def offload(capsys, monkeypatch):
    return in_this_process(capsys, monkeypatch)


class Topics:
    """Topics of all kinds of messages in a cold namespace, and what Pulsar's clients read from each."""

    def __init__(self, live, keys):
        self._live, self._keys = live, keys
        self.cold = live.new_cold_namespace()
        self._readers: dict[str, Callable[[], list[Any]]] = {}
        for name in ("compression-zstd", "avro"):
            self._add_plain(name)
        self._add_encrypted_chunks()
        self._add_transactions()
        self.before = self.read()
        self.ledgers = [ledger for name in self.names for ledger in self.cold.offload(name)]
        assert len(self.ledgers) >= 10
        for name in self.names:
            assert not [each for each in live.admin.ledgers(name)[:-1] if each.in_bookkeeper]

    @property
    def names(self):
        return list(self._readers)

    def read(self):
        """All messages as Pulsar's clients read them now, by topic; the topics are loaded anew before."""
        for name in self.names:
            self._live.admin.unload(name)
        return {name: read() for name, read in self._readers.items()}

    def scanned(self, tier, **options):
        """All messages as we read them from a tier."""
        own = {"key_provider": ("pem", {"directory": str(self._keys)})}
        columns = ["__messageId", "__sequenceId", "__txnState", "__schemaVersion", "value"]
        return {
            name: scan(tier, name, columns=columns, **own, **options).to_table().to_pylist()
            for name in self.names
        }

    def unload(self):
        for name in self.names:
            self._live.admin.unload(name)

    def _add_plain(self, name):
        topic = self.cold.topic(name)
        sent = TOPICS[name](self._live.client, topic)
        self._readers[topic] = lambda: self._live.consumers.consume(topic, sent)

    def _add_encrypted_chunks(self):
        topic = self.cold.topic("encrypted-chunks")
        reader = pulsar.CryptoKeyReader(str(self._keys / "orders.pub"), str(self._keys / "orders.pem"))
        sizes = (CHUNKED_BYTES, 10, 1000)
        messages = [{"content": random.Random(size).randbytes(size)} for size in sizes]
        options = {"encryption_key": "orders", "crypto_key_reader": reader}
        produce(self._live.client, topic, messages, batching_enabled=False, chunking_enabled=True, **options)

        self._readers[topic] = lambda: read_values(
            self._live.client, topic, len(sizes), crypto_key_reader=reader
        )

    def _add_transactions(self):
        topic = self.cold.topic("transactions")
        self._live.send_steps(topic, ended(list(steps())))
        self._readers[topic] = lambda: self._live.read(topic)


@pytest.fixture
def topics(live, keys):
    return Topics(live, keys)


def object_keys(topics):
    """Of data and indexes, as the broker named them."""
    data = {f"{ledger.uuid}-ledger-{ledger.ledger_id}" for ledger in topics.ledgers}
    return data | {f"{key}-index" for key in data}


def keys_in(tier):
    return {each.key for each in tier.store.list_objects()}


def test_clients_read_on_from_another_bucket(live, topics, zookeeper, offload, tmp_path):
    old, records = topics.cold.store, f"{zookeeper.endpoint}{ROOT}"
    bucket, new = live.new_store()
    mapping, log = tmp_path / "moved.jsonl", tmp_path / "audit.jsonl"
    namespace = ["--namespace", topics.cold.name]
    to = ["--to", new.url, *(f"--to-option={name}={value}" for name, value in new.options.items())]

    def report(*arguments, code=0):
        result = offload(*arguments, "--records", records, "--json")
        assert result.code == code, result.out + result.err
        return result.json

    with old.open_reader() as tier:
        scanned = topics.scanned(tier, records=records)
        assert keys_in(tier) == object_keys(topics)
    relocate = ["relocate", *old.command_line(), *to, *namespace, "--mapping", mapping]
    moved = report(*relocate, "--yes", "--audit-log", log)
    assert sum(len(each["moves"]) for each in moved["topics"]) == len(topics.ledgers)
    assert len(moved["changes"]) == len(topics.ledgers)

    # Before the records are changed: our readers go by the mapping, the broker reads the old ones.
    by_mapping = {"records": records, "records_options": {"relocations": str(mapping)}}
    with new.open_reader() as tier:
        assert topics.scanned(tier, **by_mapping) == scanned
        made = keys_in(tier)
    assert topics.read() == topics.before

    topics.unload()
    with zookeeper.connected() as client:
        change_records(client, ROOT, moved["changes"])

    with new.open_reader() as tier:
        assert topics.scanned(tier, records=records) == scanned
        assert topics.scanned(tier, **by_mapping) == scanned
    found = report("verify", *new.command_line(), "--deep", "--fail-on", "error")["findings"]
    assert {each["code"] for each in found} <= {"record.elsewhere"}, "other tests' topics are"
    assert not [each for each in found if topics.cold.name in each["topic"]]
    again = report(*relocate, "--yes", "--audit-log", log)
    assert not any(each["moves"] for each in again["topics"])

    young = ["--grace", "0", "--accept-short-grace", "--clock-skew", "0", "--not-shared"]
    elsewhere = [argument.replace("--to", "--moved-to") for argument in to]
    assert report("gc", *new.command_line(), *young)["garbage"] == []
    assert report("gc", *old.command_line(), *young)["garbage"] == []  # it cannot see the new ones
    found = report("gc", *old.command_line(), *young, *elsewhere, code=1)["garbage"]
    assert {each["kind"] for each in found} == {"superseded"}
    assert {f"{each['key']}{end}" for each in found for end in ("", "-index")} == object_keys(topics)
    report("gc", *old.command_line(), *young, *elsewhere, "--yes", "--audit-log", log)
    with old.open_reader() as tier:
        assert keys_in(tier) == set()

    assert topics.read() == topics.before
    # New ledgers go where the policies say, and are read together with those that were moved.
    live.admin.set_offload_policies(topics.cold.name, live.broker.s3_policies(bucket, deletion_lag_ms=0))
    assert topics.read() == topics.before
    topic = topics.names[0]
    produce(live.client, topic, [{"content": b"%d" % i} for i in range(25)])
    more = topics.cold.offload(topic)[-2:]
    with new.open_reader() as tier:
        assert keys_in(tier) > made
        assert len(keys_in(tier)) == len(made) + 2 * len(more)
        assert len(topics.scanned(tier, records=records)[topic]) == len(topics.before[topic]) + 25
        assert topics.read() == topics.before

        for name in topics.names:
            live.admin.delete(name)
        wait_for(lambda: not keys_in(tier))


def test_clients_read_on_from_mapfiles(live, topics, zookeeper, offload, tmp_path):
    records, root = f"{zookeeper.endpoint}{ROOT}", tmp_path / "directory"
    root.mkdir()
    result = offload(
        *("relocate", *topics.cold.store.command_line(), "--to", root, "--namespace", topics.cold.name),
        *("--records", records, "--format", "mapfile", "--mapping", tmp_path / "moved.jsonl"),
        *("--yes", "--audit-log", tmp_path / "audit.jsonl", "--json"),
    )
    assert result.code == 0, result.out + result.err
    topics.unload()
    with zookeeper.connected() as client:
        change_records(client, ROOT, result.json["changes"])
    live.admin.set_offload_policies(topics.cold.name, live.broker.filesystem_policies(root))
    with topics.cold.store.open_reader() as tier:
        tier.store.delete(sorted(keys_in(tier)))
    assert topics.read() == topics.before
    with open_tier(root) as tier:
        assert {len(rows) for rows in topics.scanned(tier, records=records).values()} == {
            len(rows) for rows in topics.before.values()
        }
