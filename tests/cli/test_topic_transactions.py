"""`offload topics transactions`: how they stand, beside the process that owns the topic, and a topic that is reset."""

import time

import pytest
from commands import configuration_file, opened_service
from scenes.transactions import NEVER, ONE, PLAIN, abort, message, next_to, of

from offload_core.writing.managed_ledger import TransactionalTopic, open_managed_ledger

TOPIC = "persistent://acme/n/orders"


@pytest.fixture
def config(tmp_path):
    return configuration_file(tmp_path)


@pytest.fixture
def environment(config):
    with opened_service(config) as (environment, _):
        yield environment


@pytest.fixture
def topic(environment):
    with open_managed_ledger(environment, "acme/n/persistent/orders") as topic:
        yield topic


@pytest.fixture
def told(offload, config):
    return lambda *arguments: offload("topics", "transactions", TOPIC, *arguments, "--config", config)


def facts(result):
    """The lines of a table of two columns."""
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    return {line[:20].strip(): line[20:].strip() for line in lines[:5]}


def test_it_tells_of_open_and_aborted_ones_and_since_when(environment, topic, told):
    followed = TransactionalTopic(environment, topic, NEVER)
    held, dropped = followed.begin(), followed.begin()
    hour_ago_ms = int((time.time() - 3600) * 1000)
    first = followed.add_entries([message(dropped), message(held, publish_time_ms=hour_ago_ms)])
    followed.abort(dropped)
    topic.roll()
    shown = told("--json").json
    (opened,) = shown.pop("open")
    assert shown == {
        "state": "Ready",
        "stable_position": str(first),
        "persisted_position": None,
        "aborted": 1,
    }
    assert (opened["transaction"], opened["first_entry"]) == ([*held], str(next_to(first)))
    assert 3600 <= opened["age_s"] < 4000
    result = told()
    assert list(facts(result).values()) == ["Ready", str(first), "none", "1", "1"]
    row = result.out.splitlines()[-1].split()
    assert row[:2] == [f"({held[0]},{held[1]})", str(next_to(first))]
    assert row[3] == "s"


def test_a_topic_without_transactions_says_so(topic, told):
    last = topic.add_entry(b"no entry of Pulsar's")
    topic.roll()
    assert list(facts(told()).values()) == ["NoSnapshot", str(last), "none", "0", "0"]


def test_a_topic_that_had_transactions_before_is_read_once_it_is_reset(topic, told):
    happened = [of(ONE), PLAIN, of((0, 9)), abort(ONE)]
    first = topic.add_entries([event.pack(i) for i, event in enumerate(happened)])
    topic.roll()
    assert facts(told())["state"] == "NoSnapshot"
    stable = str(next_to(first))
    assert list(facts(told("--reset", "--yes")).values()) == ["Ready", stable, stable, "1", "1"]
    assert list(facts(told()).values()) == ["Ready", stable, stable, "1", "1"]


def test_a_snapshot_that_is_damaged_is_an_error_until_it_is_reset(environment, topic, told):
    followed = TransactionalTopic(environment, topic, NEVER)
    followed.commit(followed.begin())
    topic.roll()
    path, store = f"/transaction-buffers/{topic.name}", environment.records.store
    found = store.get(path)
    assert found is not None
    store.put(path, b"?", found[1])
    damaged = told()
    assert (damaged.code, damaged.out) == (1, "")
    assert path in damaged.err
    assert facts(told("--reset", "--yes"))["stable position"] == str(topic.last_position)


def test_a_topic_that_is_not_there_is_not_reset(environment, told):
    assert told("--yes").code == 2
    result = told("--reset", "--yes")
    assert (result.code, told("--reset").code) == (2, 2)
    assert result.err.startswith("offload: there is no record of this managed ledger")
    assert environment.records.store.get("/transaction-buffers/acme/n/persistent/orders") is None
