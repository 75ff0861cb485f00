"""A manual offload of a streamed topic: its owner completes the segment, for the service and for the command."""

from contextlib import ExitStack, closing
from types import MappingProxyType

import pytest
from commands import configuration_file, opened_service
from scenes.transactions import NEVER, message
from service import Service, offloading
from waiting import wait_for

from offload_core.interfaces.service import served_topics as admin_topics
from offload_core.interfaces.service.served_topics import RecordedTopics
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.records import EntryPosition, segments_of
from offload_core.writing.managed_ledger import (
    TransactionalTopic,
    UpkeepLoop,
    open_managed_ledger,
    policies_by_name,
)
from offload_hooks.errors import StoreTimeoutError
from pulsar_offload import open_tier, scan

pytestmark = pytest.mark.long

NAME = "acme/n/persistent/orders"
TOPIC = "/admin/v2/persistent/acme/n/orders"
STREAMED = {"managedLedgerOffloadStreaming": True, "maxOffloadSegmentSizeInBytes": 64 << 20}


@pytest.fixture
def service(tmp_path):
    with Service(tmp_path, offloading(tmp_path)) as running:
        yield running


@pytest.fixture
def transactional(service):
    """Open here, and kept by its policies."""
    with ExitStack() as stack:
        environment, policies = stack.enter_context(opened_service(service.config))
        managed = stack.enter_context(open_managed_ledger(environment, NAME))
        topic = TransactionalTopic(environment, managed, NEVER)
        stack.enter_context(UpkeepLoop(lambda: [topic], policies_by_name(policies), interval_s=0.1))
        yield topic


@pytest.fixture
def topic(transactional):
    """The same without its transactions."""
    return transactional.topic


def stream(service, topic, policies=MappingProxyType({})):
    """Switch it on by the service, and wait until its owner has seen that."""
    assert service.ask("POST", f"{TOPIC}/offloadPolicies", {**STREAMED, **policies}).status == 204
    wait_for(lambda: topic.is_streamed)


def test_a_request_to_offload_completes_the_segment(service, topic, tmp_path):
    stream(service, topic)
    shown = service.ask("GET", f"{TOPIC}/offloadPolicies").json
    assert (shown["managedLedgerOffloadStreaming"], shown["maxOffloadSegmentSizeInBytes"]) == (True, 64 << 20)
    payloads = [b"%d" % i for i in range(50)]
    for payload in payloads[:40]:
        topic.add_entry(payload)
    topic.roll()
    topic.add_entries(payloads[40:])
    last = topic.last_position
    asked = {"ledgerId": last.ledger_id, "entryId": last.entry_id, "partitionIndex": -1}
    assert service.ask("PUT", f"{TOPIC}/offload", asked).status == 204
    with open_tier(tmp_path / "cold") as tier:
        rows = scan(tier, level="entries").to_table().to_pylist()
    assert [row["value"] for row in rows] == payloads
    following = asked | {"entryId": last.entry_id + 1}
    told = {"status": "SUCCESS", "lastError": "", "firstUnoffloadedMessage": following}
    assert service.ask("GET", f"{TOPIC}/offload").json == told


def test_the_command_does_as_well(service, topic, offload):
    stream(service, topic)
    topic.add_entries([b"one", b"two"])
    at = topic.last_position.ledger_id
    told = offload("topics", "offload", "acme/n/orders", "--config", service.config)
    assert (told.code, told.out) == (0, f"offloaded up to {at}:2\n")
    (segment,) = segments_of(topic.read_info())
    assert (segment.is_finished, segment.end) == (True, EntryPosition(at, 1))
    topic.add_entry(b"three")
    told = offload("topics", "offload", "acme/n/orders", "--json", "--config", service.config)
    assert told.json == {"first_unoffloaded": f"{at}:3"}


def test_what_an_open_transaction_holds_up_is_said_by_both(service, transactional, offload):
    topic = transactional.topic
    filtered = {"managedLedgerOffloadFilter": "transactions", "managedLedgerOffloadFilterMode": "gap"}
    stream(service, topic, filtered)
    open_one, other = transactional.begin(), transactional.begin()
    transactional.add_entries([message(), message(other)])
    transactional.abort(other)
    transactional.add_entries([message(open_one), message()])
    at = topic.last_position.ledger_id
    told = offload("topics", "offload", "acme/n/orders", "--config", service.config)
    assert told.code == 0
    assert told.out.startswith(f"offloaded up to {at}:3\nwhat follows waits for ")
    told = offload("topics", "offload", "acme/n/orders", "--json", "--config", service.config)
    said = told.json
    assert said["first_unoffloaded"] == f"{at}:3"
    assert said["waits_for"]
    last = {"ledgerId": at, "entryId": 4, "partitionIndex": -1}
    assert service.ask("PUT", f"{TOPIC}/offload", last).status == 204
    status = service.ask("GET", f"{TOPIC}/offload").json
    assert status["waitingLedgers"] == {str(at): f"waits for {said['waits_for']}"}
    transactional.commit(open_one)
    # Its owner follows transactions in a thread of its own, which may not have seen the commit yet.
    wait_for(
        lambda: (
            offload("topics", "offload", "acme/n/orders", "--json", "--config", service.config).json
            == {"first_unoffloaded": f"{at}:6"}
        )
    )


def test_an_owner_that_does_not_answer_is_told_and_stays_told(tmp_path, offload, monkeypatch):
    monkeypatch.setattr(admin_topics, "_COMPLETION_S", 0.3)
    config = configuration_file(tmp_path)
    streaming = "[policies]\nmanagedLedgerOffloadStreaming = true"
    config.write_text(config.read_text().replace("[policies]", streaming))
    with (
        opened_service(config) as (environment, policies),
        open_managed_ledger(environment, NAME),
        closing(RecordedTopics(environment.records, environment, policies_by_name(policies))) as topics,
    ):
        name = parse_topic("acme/n/orders")
        with pytest.raises(StoreTimeoutError, match=NAME):
            topics.begin_offload(name, EntryPosition(0, 0))
        assert topics.offload_status(name).state == "error"
        told = offload("topics", "offload", "acme/n/orders", "--timeout", "0.3", "--config", config)
    assert (told.code, "did not complete its segment in time" in told.err) == (1, True)
