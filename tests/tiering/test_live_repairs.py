"""Damaged copies of a running cluster's topic get whole ones in their place, beside its brokers."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest
from scenes.live_topics import BROKERS_DRIVER, NAME, TOPIC, LiveTopic

from offload_core.format.codec.object_format import TOPIC_KEY, ObjectKey
from offload_core.maintenance.live import LiveReplacements
from offload_core.maintenance.repair import Action, HotCopies, Repair
from offload_core.metadata.records.live_changes import own_ledgers
from offload_core.writing.offload import LedgerOffloader

AN_HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def no_power_fails(monkeypatch):
    """The disk would take most of the time; what it keeps is tested with the driver."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def topic(tmp_path):
    """A topic with an offloaded ledger whose data object is damaged in its last entry."""
    topic = LiveTopic(tmp_path, entries=(5, 3))
    topic.check_done()
    return topic


def key_of(ledger):
    return ObjectKey(folder="", uuid=ledger.context.uuid, ledger_id=ledger.ledger_id, is_index=False)


def damage(topic):
    """Damage the first ledger's copy; the ledger."""
    ledger = topic.info().in_order[0]
    path = topic.cold / key_of(ledger).data_key
    data = bytearray(path.read_bytes())
    at = data.index(topic.payloads[ledger.ledger_id][2])
    data[at + len(topic.payloads[ledger.ledger_id][2]) - 1] ^= 1
    path.write_bytes(data)
    return ledger


def repaired(topic, *, why_not=lambda _: None, offload_again=False):
    """Repair as `offload repair --live` does; what was planned, and what was given."""
    live = LiveReplacements(topic.cluster(), [topic.tier()], topic.audit)
    tier = topic.tier()
    work = Repair(
        tier,
        records=live.open_records,
        ours=live.mirror.records,
        why_not_live=why_not,
        hot=HotCopies(environment=live.mirror) if offload_again else None,
        offload_again=offload_again,
        now_ms=lambda: topic.clock() + AN_HOUR_MS,
    )
    planned = list(work.plan())
    for each in planned:
        if each.changes:
            work.do(each, topic.audit)
    return planned, live.give(TOPIC)


def second_copy(topic, ledger):
    """Another whole copy of a ledger in the tier, which no record names."""
    with closing(topic.cluster().mirror.hot.store.open(ledger.ledger_id)) as reader:
        LedgerOffloader(topic.tier(), max_block_bytes=1024).offload(reader, uuid4(), {TOPIC_KEY: NAME})


def check_whole(topic, ledger):
    now = topic.info().ledger(ledger.ledger_id)
    assert topic.cold_entries(now) == topic.payloads[ledger.ledger_id]
    assert now.context.driver == BROKERS_DRIVER
    assert own_ledgers(topic.mirror()) == ()


def test_a_damaged_copy_is_offloaded_again(topic):
    ledger = damage(topic)
    (planned,), given = repaired(topic, offload_again=True)
    assert planned.choice.action is Action.OFFLOAD_AGAIN
    assert (given.used, given.is_seen) == ((ledger.ledger_id,), True)
    check_whole(topic, ledger)


def test_another_whole_copy_takes_its_place_though_entries_of_the_damaged_one_are_lost(topic):
    ledger = damage(topic)
    second_copy(topic, ledger)
    planned, given = repaired(topic)
    assert Action.OTHER_COPY in {each.choice.action for each in planned}
    assert given.used == (ledger.ledger_id,)
    check_whole(topic, ledger)


def test_a_copy_that_lacks_entries_is_given_to_no_record(topic):
    ledger, before = damage(topic), topic.info()
    context = replace(ledger.context, bookkeeper_deleted=True)
    topic.records.update(NAME, lambda info: info.with_ledger(replace(ledger, context=context)))
    planned, given = repaired(topic)
    (saved,) = [each for each in planned if each.choice.action is Action.SALVAGE]
    assert saved.target in topic.objects(), "it is there for other readers"
    assert (given.used, given.damaged) == ((), None)
    assert topic.info().ledger(ledger.ledger_id).context.uuid == before.ledger(ledger.ledger_id).context.uuid


def test_nothing_is_written_that_brokers_could_not_read(topic):
    ledger = damage(topic)
    planned, given = repaired(topic, why_not=lambda _: "a prefix", offload_again=True)
    assert Action.OFFLOAD_AGAIN not in {each.choice.action for each in planned}
    assert given.used == ()
    assert topic.info().ledger(ledger.ledger_id).context.uuid == ledger.context.uuid
