"""A Pulsar takes over topics whose ledgers this program has streamed: it passes over segments, and loses nothing.

It reads such ledgers from BookKeeper, keeps them there, and offloads them anew. Its records are in a ZooKeeper.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from live.broker import ColdNamespace, LivePulsar, SentTopic, scanned
from live.sent import TOPICS

from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import (
    EntryPosition,
    assign_segment,
    complete_segment,
    pack_stored_record,
    parse_stored_record,
)
from offload_core.storage.clock import system_now_ms

ROOT = "/pulsar"


@pytest.fixture(scope="module")
def live(zookeeper_broker, versitygw):
    with LivePulsar.connected(zookeeper_broker, versitygw) as live:
        yield live


class TakenOver:
    """A topic that was unloaded, and in whose record all closed ledgers are streamed; the broker has it again."""

    def __init__(self, live, zookeeper):
        self._live, self._zookeeper = live, zookeeper
        self.cold: ColdNamespace = live.new_cold_namespace()
        name = self.cold.topic("compression-zstd")
        self.topic: SentTopic = live.send(name, TOPICS["compression-zstd"])
        live.admin.unload(name)
        self.ledger_ids = [each.ledger_id for each in live.admin.ledgers(name)[:-1]]
        assert len(self.ledger_ids) > 1
        live.admin.unload(name)
        self.streamed: list[UUID] = []

    def change(self, change):
        """Change its record while no broker has it."""
        path = f"{ROOT}/managed-ledgers/{managed_ledger_of_topic(parse_topic(self.topic.name))}"
        with self._zookeeper.connected() as client:
            value, stat = client.get(path)
            stored = parse_stored_record(value)
            client.set(path, pack_stored_record(replace(stored, info=change(stored.info))), stat.version)

    def stream(self, info):
        """The record with a complete segment over all closed ledgers but the last, and two over that."""
        with self.cold.store.open() as tier:
            driver = tier_record(tier)
        *most, last = self.ledger_ids
        entries = {each.ledger_id: each.info.entries or 0 for each in info.ledgers}
        cut = entries[last] // 2
        for begin, ends in (
            (EntryPosition(most[0], 0), {each: entries[each] - 1 for each in most}),
            (EntryPosition(last, 0), {last: cut - 1}),
            (EntryPosition(last, cut), {last: entries[last] - 1}),
        ):
            uuid, end = uuid4(), EntryPosition(*list(ends.items())[-1])
            info = assign_segment(info, uuid, begin, driver, system_now_ms(), end=end)
            info = complete_segment(info, uuid, end, ends, 1)  # long ago: the deletion lag is over
            self.streamed.append(uuid)
        return info

    def hot(self):
        """For each ledger whether BookKeeper has it, once the broker has deleted all it may."""
        self._live.admin.drop_bookkeeper_copies(self.topic.name)
        ledgers = {each.ledger_id: each for each in self._live.admin.ledgers(self.topic.name)}
        return [ledgers[each].in_bookkeeper for each in self.ledger_ids]


@pytest.mark.nightly  # a broker and a ZooKeeper of their own
def test_a_pulsar_reads_streamed_ledgers_from_bookkeeper_keeps_them_and_offloads_them_anew(live, zookeeper):
    taken = TakenOver(live, zookeeper)
    taken.change(taken.stream)
    name, bucket = taken.topic.name, taken.cold.store

    assert [each.offloaded for each in live.admin.ledgers(name)[:-1]] == [False] * len(taken.ledger_ids)
    assert all(taken.hot())
    live.assert_serves(taken.topic, [0, len(taken.topic.read) // 2])
    assert all(taken.hot()), "there is no other copy yet"

    anew = {each.ledger_id: each for each in taken.cold.offload(name)}
    assert all(anew[each].offloaded for each in taken.ledger_ids)
    assert not any(taken.hot()), "each has a copy of its own now"
    assert not {each.uuid for each in anew.values()} & set(taken.streamed)
    live.assert_serves(taken.topic, [0, len(taken.topic.read) // 2])
    with bucket.open_reader() as tier:
        keys = {each.key for each in tier.store.list_objects()}
        assert {f"{anew[each].uuid}-ledger-{each}" for each in taken.ledger_ids} <= keys
        assert scanned(tier, name, records=f"{zookeeper.endpoint}{ROOT}") == taken.topic.read


@pytest.mark.nightly  # a broker and a ZooKeeper of their own
def test_with_the_flag_of_older_versions_a_pulsar_deletes_the_only_copy(live, zookeeper):
    """Why no record is written like that any more, and each that is found is put right by the next write."""
    taken = TakenOver(live, zookeeper)

    def as_before(info):
        streamed = taken.stream(info)
        return streamed.with_ledgers(
            replace(each, context=replace(each.context, complete=True))
            for each in streamed.ledgers
            if each.context
        )

    taken.change(as_before)
    assert not any(taken.hot())
