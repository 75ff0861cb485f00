"""How far a topic is offloaded, and what is asked of an admin REST, without Airflow."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pages import World
from records import CLOSED_AT_MS, closed, copied, managed_ledger, still_open
from tiers import uuid_of

from airflow_provider_pulsar_offload.progress import is_offloaded_until, parse_position, parse_time_ms
from airflow_provider_pulsar_offload.requests import (
    ask_for_offload,
    first_kept,
    topic_paths,
    wait_for_offload,
)
from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo
from offload_core.storage.pulsar_admin import AdminPlugin
from offload_hooks.errors import MetadataError, ObjectNotFoundError, OptionError, UnknownTopicError

TOPIC = "acme/n/orders"


def closed_at(ledger_id, minutes, *, cold):
    ledger = closed(ledger_id, 10, copied(uuid_of(ledger_id)) if cold else None)
    return replace(ledger, info=replace(ledger.info, timestamp_ms=CLOSED_AT_MS + minutes * 60_000))


def test_a_time_has_come_when_what_is_offloaded_was_closed_later():
    first, second = closed_at(1, 1, cold=True), closed_at(2, 2, cold=True)
    for info, minutes in (
        (managed_ledger(first, second), 2),
        (managed_ledger(first, second, still_open(3)), 2),
        (managed_ledger(first, closed_at(2, 2, cold=False), closed_at(3, 3, cold=True)), 1),
        (managed_ledger(first, still_open(2)), 1),
    ):
        at = CLOSED_AT_MS + minutes * 60_000
        assert is_offloaded_until(info, at)
        assert not is_offloaded_until(info, at + 1)
    for info in (
        ManagedLedgerInfo(),
        managed_ledger(still_open(1)),
        managed_ledger(closed_at(1, 1, cold=False)),
    ):
        assert not is_offloaded_until(info, 1)


def test_positions_and_times_are_read_and_others_refused():
    assert parse_position("17:4093") == EntryPosition(17, 4093)
    moment = datetime(2026, 11, 22, 8, tzinfo=UTC)
    assert parse_time_ms(moment) == parse_time_ms("2026-11-22 09:00:00+01:00") == moment.timestamp() * 1000
    for wrong in ("", "17", "17:", "a:1", "1:-1"):
        with pytest.raises(OptionError, match="position"):
            parse_position(wrong)
    for wrong_time in (None, "yesterday", "2026-11-22T08:00:00", datetime(2026, 1, 1)):
        with pytest.raises(OptionError, match="not a time"):
            parse_time_ms(wrong_time)


def test_the_newest_ledgers_stay_hot_up_to_a_size():
    ledgers = [{"ledgerId": number, "size": 100} for number in (3, 5, 8)] + [{"ledgerId": 9, "size": 0}]
    stats = {"ledgers": ledgers, "currentLedgerSize": 50}
    assert [first_kept(stats, kept) for kept in (0, 149, 150, 249, 250, 349, 350, 1000)] == [
        9, 9, 8, 8, 5, 5, None, None
    ]  # fmt: skip
    assert first_kept({"ledgers": ledgers[:1]}, 0) is None
    with pytest.raises(MetadataError):
        first_kept({}, 0)


@pytest.fixture
def world(tmp_path_factory, request):
    made = World(tmp_path_factory.mktemp("world"), request.getfixturevalue)
    yield made
    made.close()


@pytest.fixture
def client(world):
    with closing(AdminPlugin(world.service)) as plugin:
        yield plugin.client


def test_a_topic_is_offloaded_by_the_service(world, client):
    limits = {"timeout_s": 60.0, "poll_interval_s": 0.05}
    (path,) = topic_paths(client, TOPIC)
    stop = ask_for_offload(client, path, 0, **limits)
    wait_for_offload(client, path, **limits)
    known = world.environment.records.read("acme/n/persistent/orders")
    *before, last = known.info.in_order
    assert stop == last.ledger_id
    assert all(ledger.has_complete_copy for ledger in before)
    assert ask_for_offload(client, path, 1 << 40, **limits) is None


def test_a_topic_that_there_is_not_is_said_so(client):
    (path,) = topic_paths(client, "acme/n/none")
    with pytest.raises(UnknownTopicError):
        ask_for_offload(client, path, 0, timeout_s=1, poll_interval_s=1)
    with pytest.raises(ObjectNotFoundError):
        client.put(f"{path}/offload", {"ledgerId": 1, "entryId": 0, "partitionIndex": -1})
