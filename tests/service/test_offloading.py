"""`offload serve` offloads what another process writes: when it is asked to, and by policies."""

import json
import os
import signal
import time
from contextlib import closing

import pytest
from commands import opened_service
from live.clients import PulsarShell
from scenes.transactions import message
from service import Service, offloading, owner
from waiting import wait_for

from offload_core.interfaces.service.served_topics import RecordedTopics
from offload_core.metadata.stores import open_metadata_store
from offload_core.writing.managed_ledger import (
    RolloverPolicy,
    TransactionalTopic,
    open_managed_ledger,
    policies_by_name,
)
from offload_core.writing.policy_store import PolicyStore
from pulsar_offload import open_tier, scan

pytestmark = pytest.mark.long

NAME = "acme/n/persistent/orders"
TOPIC = "/admin/v2/persistent/acme/n/orders"
NAMESPACE = "/admin/v2/namespaces/acme/n"


@pytest.fixture
def service(tmp_path):
    """With a hot tier, an audit log, and a local tier as the broker's."""
    at_once = "upkeep_interval_s = 0.1\nstop_timeout_s = 4"
    settings = offloading(tmp_path, service=at_once, policies="deletion_lag_in_millis = -1")
    with Service(tmp_path, settings) as running:
        yield running


@pytest.fixture
def topic(tmp_path, service):
    """Written here: three entries in two sealed ledgers, one more in an open one."""
    rollover = RolloverPolicy(max_entries=2, min_age_s=0)
    with (
        owner(service.metadata, tmp_path) as environment,
        open_managed_ledger(environment, NAME, rollover=rollover) as topic,
    ):
        for i in range(5):
            topic.add_entry(b"%d" % i)
        yield topic


def status_of_offload(service):
    return service.ask("GET", f"{TOPIC}/offload").json


def ended_offload(service):
    """The status of the topic's offload, once it runs no more."""
    wait_for(lambda: status_of_offload(service)["status"] != "RUNNING")
    return status_of_offload(service)


def complete(topic):
    return [ledger.ledger_id for ledger in topic.read_info().in_order if ledger.has_complete_copy]


def test_it_tells_how_a_topics_transactions_stand(service, tmp_path):
    """As a broker does; of what the sealed ledgers say."""
    stats = "/admin/v3/transactions/transactionBufferStats/acme/n"
    with (
        owner(service.metadata, tmp_path) as environment,
        open_managed_ledger(environment, "acme/n/persistent/a+%2B+b") as plain,
    ):
        followed = TransactionalTopic(environment, plain)
        dropped = followed.begin()
        first = followed.add_entries([message(dropped), message(followed.begin())])
        followed.abort(dropped)
    answer = service.ask("GET", f"{stats}/a%20%2B%20b")
    assert (answer.status, answer.json) == (
        200,
        {"state": "Ready", "maxReadPosition": str(first), "ongoingTxnSize": 1, "totalAbortedTransactions": 1},
    )
    assert service.ask("GET", f"{stats}/none").status == 404


def test_an_offload_that_was_asked_for_runs_and_tells_how_it_ended(service, topic, tmp_path):
    first, second, third = (ledger.ledger_id for ledger in topic.read_info().in_order)
    assert status_of_offload(service) == {"status": "NOT_RUN", "lastError": ""}
    asked = service.ask("PUT", f"{TOPIC}/offload", {"ledgerId": second, "entryId": 0, "partitionIndex": -1})
    assert asked.status == 204
    assert ended_offload(service) == {
        "status": "SUCCESS",
        "lastError": "",
        "firstUnoffloadedMessage": {"ledgerId": second, "entryId": 0, "partitionIndex": -1},
    }
    assert complete(topic) == [first]
    stats = service.ask("GET", f"{TOPIC}/internalStats").json
    assert [each["offloaded"] for each in stats["ledgers"]] == [True, False, False]
    assert (stats["numberOfEntries"], stats["totalSize"]) == (5, 5)
    assert (stats["currentLedgerEntries"], stats["currentLedgerSize"]) == (1, 1)
    assert stats["lastConfirmedEntry"] == f"{third}:0"
    with open_tier(tmp_path / "cold") as tier:
        rows = scan(tier, level="entries").to_table().to_pylist()
    assert [row["value"] for row in rows] == [b"0", b"1"]


def test_a_ledger_that_a_filter_holds_back_is_left_out_and_the_status_says_why(service, tmp_path):
    said = {"managedLedgerOffloadFilter": "transactions", "managedLedgerOffloadFilterMode": "gap"}
    said |= {"managedLedgerOffloadFilterOptions": {"token": "hunter2"}}  # which it does not take
    assert service.ask("POST", f"{NAMESPACE}/offloadPolicies", said).status == 204
    masked = service.ask("GET", f"{NAMESPACE}/offloadPolicies").json
    assert masked == said | {"managedLedgerOffloadFilterOptions": {"token": "********"}}
    assert service.ask("POST", f"{NAMESPACE}/offloadPolicies", masked).status == 204
    with owner(service.metadata, tmp_path) as environment, open_managed_ledger(environment, NAME) as managed:
        topic = TransactionalTopic(environment, managed)
        topic.add_entries([message()])
        managed.roll()
        left_open = topic.begin()
        topic.add_entries([message(left_open)])
        managed.roll()
        first, second = (ledger.ledger_id for ledger in managed.read_info().in_order)
        asking = {"ledgerId": second + 1, "entryId": 0, "partitionIndex": -1}
        for options, status in (({"token": "hunter2"}, "ERROR"), ({}, "SUCCESS")):
            changed = said | {"managedLedgerOffloadFilterOptions": options}
            assert service.ask("POST", f"{NAMESPACE}/offloadPolicies", changed).status == 204
            assert service.ask("PUT", f"{TOPIC}/offload", asking).status == 204
            ended = ended_offload(service)
            assert ended["status"] == status
            assert "hunter2" not in json.dumps(ended)
        why = f"waits for transaction {left_open}, open since entry {second}:0"
        assert ended["waitingLedgers"] == {str(second): why}
        assert ended["firstUnoffloadedMessage"]["ledgerId"] == second
        assert complete(managed) == [first]


def test_thresholds_and_lag_are_kept_without_anybody_asking(service, topic, tmp_path):
    first, second, third = (ledger.ledger_id for ledger in topic.read_info().in_order)
    hot = tmp_path / "hot"
    assert service.ask("PUT", f"{NAMESPACE}/offloadThreshold", 0).status == 204
    wait_for(lambda: complete(topic) == [first, second])
    assert len(list(hot.glob("*.ledger"))) == 3
    assert service.ask("PUT", f"{NAMESPACE}/offloadDeletionLagMs", 0).status == 204
    wait_for(lambda: list(hot.glob("*.ledger")) == [hot / f"{third}.ledger"])
    log = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(each["ledger_id"], each["copy"]) for each in log] == [(first, "hot"), (second, "hot")]
    topic.add_entry(b"5")  # its owner was not disturbed
    topic.roll()
    wait_for(lambda: complete(topic) == [first, second, third])


def test_what_cannot_be_offloaded_is_refused(service, topic):
    asked = {"ledgerId": 1, "entryId": 0}
    assert service.ask("PUT", "/admin/v2/persistent/acme/n/none/offload", asked).status == 404
    assert service.ask("GET", "/admin/v2/persistent/acme/n/none/offload").status == 404
    for wrong in ({}, asked | {"ledgerId": "1"}, asked | {"ledgerId": True}, asked | {"entryId": 2**63}):
        refused = service.ask("PUT", f"{TOPIC}/offload", wrong)
        assert (refused.status, "no message id" in refused.text) == (400, True)
    assert complete(topic) == []


def test_an_offload_that_fails_says_why(service, topic, tmp_path):
    (tmp_path / "cold").write_text("a file where the tier should be")
    service.ask("PUT", f"{TOPIC}/offload", {"ledgerId": 1 << 40, "entryId": 0})
    ended = ended_offload(service)
    assert ended["status"] == "ERROR"
    assert str(tmp_path / "cold") in ended["lastError"]


def test_a_service_without_a_hot_tier_says_so(tmp_path):
    settings = f'[policies]\ndriver = "local"\nextra_configurations.root = "{tmp_path}/cold"\n'
    with Service(tmp_path, settings) as service:
        with owner(service.metadata, tmp_path) as environment:
            open_managed_ledger(environment, NAME).close()
        refused = service.ask("PUT", f"{TOPIC}/offload", {"ledgerId": 1, "entryId": 0})
    assert (refused.status, "no hot tier" in refused.text) == (412, True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_who_ends_the_service_does_not_wait_for_a_block_that_takes_too_long(service, topic, told):
    for _ in range(4):
        topic.add_entry(os.urandom(1 << 19))
    topic.roll()
    slow = {"managedLedgerOffloadRateLimitInBytesPerSecond": 1000, "managedLedgerOffloadThresholdInBytes": 0}
    assert service.ask("POST", f"{NAMESPACE}/offloadPolicies", slow).status == 204
    wait_for(lambda: status_of_offload(service)["status"] == "RUNNING")
    began = time.monotonic()
    service.end(told)
    assert time.monotonic() - began < 10


@pytest.mark.sampled(4)
@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT])
def test_who_ends_the_service_stops_its_offload_which_leaves_nothing_behind(tmp_path, told):
    seldom = "upkeep_interval_s = 3600\nstop_timeout_s = 300"
    slow = "max_block_size_in_bytes = 5242880\nrate_limit_in_bytes_per_second = 1000000"
    with (
        Service(tmp_path, offloading(tmp_path, service=seldom, policies=slow)) as service,
        owner(service.metadata, tmp_path) as environment,
        open_managed_ledger(environment, NAME) as topic,
    ):
        topic.add_entries([bytes(1 << 20)] * 40)  # 40 s at this rate, and 5 s for a block
        topic.roll()
        service.ask("PUT", f"{TOPIC}/offload", {"ledgerId": 1 << 40, "entryId": 0})
        wait_for(lambda: topic.read_info().in_order[0].context)
        service.end(told)
        assert topic.read_info().in_order[0].context is None
        said = [each["event"] for each in service.log]
    assert said.index("ending") < said.index("offload stopped")
    log = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(each["copy"], each["why"]) for each in log] == [("cold", "its offload was stopped")]
    with open_tier(tmp_path / "cold") as tier:
        assert not list(tier.store.list_objects())
        assert not list(tier.store.list_uploads())


def test_a_service_that_cannot_listen_offloads_nothing(service, topic, offload):
    config = service.config.with_name("other.toml")
    at_once = service.config.read_text().replace("[policies]", "[policies]\nthreshold_in_bytes = 0")
    config.write_text(at_once)
    done = offload("serve", "--config", config, "--port", service.port)
    assert done.code == 2
    assert f"cannot listen there: found 127.0.0.1:{service.port}" in done.err
    assert complete(topic) == []


def test_what_offloads_do_is_in_the_metrics_until_the_topic_is_gone(service):
    place = 'namespace="acme/n",topic="persistent://acme/n/orders"'
    with opened_service(service.config) as (environment, _):
        topic = open_managed_ledger(environment, NAME)
        topic.add_entry(b"a")
        topic.roll()
        service.ask("PUT", f"{TOPIC}/offload", {"ledgerId": 1 << 40, "entryId": 0})
        wait_for(lambda: complete(topic))
        metrics = service.ask("GET", "/metrics").text
        reads = f"brk_ledgeroffloader_read_ledger_latency_count{{{place}}} "
        assert float(metrics.partition(reads)[2].partition("\n")[0]) >= 1
        assert f"brk_ledgeroffloader_offload_rate{{{place}}} " in metrics
        topic.delete()
    wait_for(lambda: place not in service.ask("GET", "/metrics").text)


def test_topics_that_are_gone_are_forgotten(tmp_path):
    metadata = f"sqlite:{tmp_path}/m.db"
    open_metadata_store(metadata, {"create": "true"}).close()
    with owner(metadata, tmp_path) as environment:
        records, store = environment.records, environment.records.store
        policies = policies_by_name(PolicyStore(store))
        with closing(RecordedTopics(records, environment, policies)) as topics:
            open_managed_ledger(environment, NAME).close()
            before = topics.for_upkeep()
            store.delete(f"/managed-ledgers/{NAME}", records.read(NAME).version)
            assert topics.for_upkeep() == []
            open_managed_ledger(environment, NAME).close()
            again = topics.for_upkeep()
    assert [each.name for each in again] == [each.name for each in before] == [NAME]
    assert again[0] is not before[0]


@pytest.mark.nightly
@pytest.mark.server
def test_pulsar_admin_offloads_and_waits(distribution, service, topic, tmp_path):
    commands = ("offload-status", "offload -s 0", "offload-status -w")
    asked = [f"topics {command} persistent://acme/n/orders" for command in commands]
    before, begun, ended = PulsarShell(tmp_path, service.url).run(asked)
    assert "has not been run" in before
    assert "Offload triggered" in begun
    assert "Offload was a success" in ended
    assert complete(topic) == [ledger.ledger_id for ledger in topic.read_info().in_order][:2]
