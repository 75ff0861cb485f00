"""`offload own`: what policies say of topics that no other process has open is done by a process of its own."""

import signal
import time
from contextlib import closing

import pytest
from managed_ledgers import NAME, Clock, environment_of, policies_to
from prometheus_client import CollectorRegistry, generate_latest
from scenes.transactions import message
from service import Service, offloading, owner
from waiting import wait_for

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.interfaces.service.owned_topics import OwnedTopics, StreamingMetrics
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import LedgerRecord, ManagedLedgerInfo, segments_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import (
    StreamingStatus,
    TransactionalTopic,
    UpkeepRound,
    open_managed_ledger,
    owner_of,
    process_of,
    topic_offloads,
)
from offload_hooks.errors import DataLossError, StoreUnavailableError
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import open_tier, scan

KEPT = policies_to(retention=RetentionPolicies(retentionTimeInMinutes=-1, retentionSizeInMB=-1))
NOTHING_IS_KEPT = policies_to(retention=RetentionPolicies(retentionTimeInMinutes=0, retentionSizeInMB=0))


@pytest.fixture
def records():
    return ManagedLedgerRecords(MemoryMetadataStore())


@pytest.fixture
def environment(records, tmp_path):
    with closing(FileLedgerStore(tmp_path / "hot", sync="never")) as hot:
        yield environment_of(records, hot, None, now_ms=Clock())


@pytest.fixture
def process(environment, records):
    """Makes the topics that another process of this name owns; the owners that topics have are those it takes from."""
    made = []

    def make(name="own", take=()):
        marks = {each: owner_of(records.read(each).info) for each in take}
        made.append(OwnedTopics(environment, name, marks))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def topic(environment):
    """A topic with two sealed ledgers that no process has open."""
    with open_managed_ledger(environment, NAME) as topic:
        topic.add_entry(b"one")
        topic.roll()
        topic.add_entry(b"two")
    return NAME


def keep(owned, environment, policies=KEPT):
    """A round of the topic."""
    kept = owned.get(NAME) or topic_offloads(environment, NAME)
    return owned.keep(kept, policies, environment.now_ms())


def mark_in(records):
    return owner_of(records.read(NAME).info)


def test_a_topic_without_an_owner_is_opened_and_then_kept_as_its_owner(process, environment, records, topic):
    owned = process()
    assert keep(owned, environment, NOTHING_IS_KEPT) == UpkeepRound()
    assert owned.get(NAME).name == NAME
    assert mark_in(records).startswith("own/")
    done = keep(owned, environment, NOTHING_IS_KEPT)
    assert (len(done.trimmed), done.failures) == (2, {})
    assert records.read(NAME).info.ledgers == ()
    owned.close()
    assert mark_in(records) is None
    keep(owned, environment)
    assert (mark_in(records), owned.get(NAME)) == (None, None), "it is closed"


def test_one_that_another_has_open_is_kept_beside_it(process, environment, records, topic):
    owned = process()
    with open_managed_ledger(environment, NAME) as other:
        other.add_entry(b"three")
        for _ in range(2):
            done = keep(owned, environment, NOTHING_IS_KEPT)
            assert (done.trimmed, done.failures, owned.get(NAME)) == ((), {}, None)
        other.add_entry(b"four")
    keep(owned, environment)
    assert len(keep(owned, environment, NOTHING_IS_KEPT).trimmed) == 3


def test_it_is_let_go_when_another_opens_it_and_taken_again_after_that(process, environment, records, topic):
    owned = process()
    keep(owned, environment)
    with open_managed_ledger(environment, NAME) as other:
        position = other.add_entry(b"three")
        assert keep(owned, environment).failures == {}
        assert owned.get(NAME) is None
        for _ in range(2):
            keep(owned, environment, NOTHING_IS_KEPT)
            assert other.add_entry(b"more") > position
    keep(owned, environment)
    assert len(keep(owned, environment, NOTHING_IS_KEPT).trimmed) == 3
    assert owned.get(NAME) is not None


def test_a_round_that_was_begun_before_it_was_let_go_does_nothing(process, environment, topic):
    owned = process()
    keep(owned, environment)
    before = owned.get(NAME)
    with open_managed_ledger(environment, NAME):
        keep(owned, environment)
        assert owned.keep(before, NOTHING_IS_KEPT, environment.now_ms()) == UpkeepRound()


def test_what_a_killed_process_of_its_name_left_open_is_taken_with_all_that_was_acknowledged(
    process, environment, records
):
    killed = open_managed_ledger(environment, NAME, process="own")
    acknowledged = killed.add_entry(b"one")
    owned = process()
    keep(owned, environment)
    assert owned.get(NAME).last_position == acknowledged
    assert mark_in(records).startswith("own/")


@pytest.mark.parametrize("name", [None, "other"])
def test_another_that_was_killed_counts_as_an_owner_until_its_topic_is_to_be_taken(
    process, environment, records, name
):
    killed = open_managed_ledger(environment, NAME, process=name)
    acknowledged = killed.add_entry(b"one")
    mark = mark_in(records)
    keep(process(), environment)
    assert mark_in(records) == mark
    owned = process(take=[NAME])
    keep(owned, environment)
    assert owned.get(NAME).last_position == acknowledged
    with open_managed_ledger(environment, NAME):  # it is taken from that owner, and from no other
        keep(owned, environment)
        keep(owned, environment)
        assert owned.get(NAME) is None


def test_a_topic_to_take_is_left_to_another_that_opened_it_since(process, environment):
    open_managed_ledger(environment, NAME).add_entry(b"one")
    owned = process(take=[NAME])
    with open_managed_ledger(environment, NAME) as other:
        keep(owned, environment)
        assert owned.get(NAME) is None
        other.add_entry(b"two")


def test_of_two_processes_of_a_name_the_one_that_took_it_last_has_it(process, environment, records, topic):
    older, newer = process(), process()
    keep(older, environment)
    keep(newer, environment)
    for _ in range(3):
        assert keep(older, environment).failures == {}
        assert keep(newer, environment).failures == {}
        assert (older.get(NAME), newer.get(NAME) is None) == (None, False)
    newer.close()
    keep(older, environment)
    assert older.get(NAME) is not None


def test_two_of_different_names_do_not_take_it_from_each_other(process, environment, topic):
    first, second = process("a"), process("b")
    for each in (first, second, first, second):
        keep(each, environment)
    assert (first.get(NAME) is None, second.get(NAME)) == (False, None)


@pytest.mark.parametrize(
    "ledgers", [(), (LedgerRecord(info=LedgerInfo(ledger_id=8)),)], ids=["empty", "open"]
)
def test_the_record_of_a_broker_is_not_touched(process, environment, records, ledgers):
    """Its ledgers are in BookKeeper: written to, its broker would have to load the topic anew."""
    before = records.write(NAME, ManagedLedgerInfo(ledgers=ledgers), None)
    owned = process()
    for _ in range(2):
        failures = keep(owned, environment).failures
        assert ["not in this hot tier" in str(each) for each in failures.values()] == [True] * len(ledgers)
        assert owned.get(NAME) is None
    assert records.read(NAME).version == before.version


def test_one_whose_hot_copy_is_gone_is_not_touched_either(process, environment, records, topic):
    environment.hot.store.delete(records.read(NAME).info.ledgers[0].ledger_id)
    before = records.read(NAME).version
    for _ in range(2):
        assert list(keep(process(take=[NAME]), environment).failures) == ["opening"]
    assert records.read(NAME).version == before


def test_a_topic_that_is_deleted_is_let_go(process, environment, records, topic):
    owned = process()
    keep(owned, environment)
    records.store.delete(f"/managed-ledgers/{NAME}", records.read(NAME).version)
    owned.keep_only([])
    assert owned.get(NAME) is None
    assert keep(owned, environment).failures, "it is gone"


def test_one_that_cannot_be_opened_is_kept_beside_its_owner_and_tried_again(
    process, environment, records, monkeypatch
):
    with open_managed_ledger(environment, NAME) as managed:
        followed = TransactionalTopic(environment, managed)
        followed.add_entries([message(followed.begin())])
    owned = process()

    def fail(*_, **__):
        raise StoreUnavailableError("the hot tier is away")

    with monkeypatch.context() as away:
        away.setattr(environment.hot.store, "open", fail)
        done = keep(owned, environment)
        assert type(done.failures["opening"]) is StoreUnavailableError
        assert done.skipped, "its other steps are made"
        assert mark_in(records) is None
    assert keep(owned, environment).failures == {}
    assert owned.get(NAME) is not None


def test_its_streaming_is_in_the_metrics():
    registry, failed = CollectorRegistry(), DataLossError("gone")
    status = StreamingStatus(
        completed=3, waiting_since_ms=5_000, buffered_bytes=7, failures_in_a_row=2, last_error=failed
    )
    idle = StreamingStatus(waiting_since_ms=None)
    topics = [("persistent://acme/n/orders", status), ("persistent://acme/n/idle", idle)]
    StreamingMetrics(registry, lambda: topics, now_ms=lambda: 6_500)
    shown = generate_latest(registry).decode()
    for topic, values in (("orders", ("3.0", "1.5", "7.0", "2.0")), ("idle", ("0.0",) * 4)):
        place = f'{{namespace="acme/n",topic="persistent://acme/n/{topic}"}}'
        for name, value in zip(
            ("segments_total", "waiting_seconds", "buffered_bytes", "failures"), values, strict=True
        ):
            assert f"pulsar_offload_streaming_{name}{place} {value}\n" in shown


# --- as a command ------------------------------------------------------------------------------

TOPIC = "persistent/acme/n/orders"
SERVED = "acme/n/persistent/orders"
AT_ONCE = "upkeep_interval_s = 0.1\nstop_timeout_s = 4"
STREAMED = """
managedLedgerOffloadStreaming = true
maxOffloadSegmentRolloverTimeInSeconds = 1
deletion_lag_in_millis = 0
"""


def own(folder, policies="", *flags):
    settings = offloading(folder, service=AT_ONCE, policies=policies)
    return Service(folder, settings, command=("own", *flags))


def info_of(environment):
    known = environment.records.read(SERVED)
    return None if known is None else known.info


def is_owned(environment):
    mark = owner_of(info_of(environment))
    return mark is not None and process_of(mark) == "offload-own"


@pytest.mark.long
def test_a_topic_is_streamed_by_its_policies_between_its_appends(tmp_path):
    """Nothing runs in the processes that append but their appends."""
    with own(tmp_path, STREAMED) as service, owner(service.metadata, tmp_path) as environment:
        for i in range(2):
            with open_managed_ledger(environment, SERVED) as topic:
                topic.add_entries([b"%d" % i, b"more"])
            wait_for(lambda: is_owned(environment))
            wait_for(lambda: not list(environment.hot.of(SERVED)))  # offloaded, and its hot copy deleted
        segments = segments_of(info_of(environment))
        assert len(segments) >= 2
        place = '{namespace="acme/n",topic="persistent://acme/n/orders"}'
        metrics = service.ask("GET", "/metrics").text
        assert f"pulsar_offload_streaming_failures{place} 0.0" in metrics
        assert f"pulsar_offload_streaming_segments_total{place} " in metrics
        assert service.ask("GET", "/admin/v2/brokers/health").text == "ok"
        service.end(signal.SIGTERM)
        assert owner_of(info_of(environment)) is None, "it was closed"
    with open_tier(tmp_path / "cold") as tier:
        rows = scan(tier, level="entries").to_table().to_pylist()
    assert [row["value"] for row in rows] == [b"0", b"more", b"1", b"more"]


@pytest.mark.long
def test_who_ends_it_amid_an_offload_finds_no_lease_no_owner_and_no_object(tmp_path):
    """As Kubernetes ends a pod: by SIGTERM, and in less than the 30 s that it gives by default."""
    slow = (
        "threshold_in_bytes = 0\nmax_block_size_in_bytes = 5242880\nrate_limit_in_bytes_per_second = 4000000"
    )
    with own(tmp_path, slow) as service, owner(service.metadata, tmp_path) as environment:
        with open_managed_ledger(environment, SERVED) as topic:
            topic.add_entries([bytes(1 << 20)] * 40)  # 10 s at this rate, and 1.3 s for a block
        wait_for(lambda: is_owned(environment) and info_of(environment).in_order[0].context)
        began = time.monotonic()
        service.end(signal.SIGTERM)
        assert time.monotonic() - began < 20
        assert info_of(environment).in_order[0].context is None, "the attempt, and its lease, are given up"
        assert owner_of(info_of(environment)) is None
    with open_tier(tmp_path / "cold") as tier:
        assert not list(tier.store.list_objects())
        assert not list(tier.store.list_uploads())


@pytest.mark.long
def test_after_a_kill_the_next_one_goes_on(tmp_path):
    with own(tmp_path) as service, owner(service.metadata, tmp_path) as environment:
        with open_managed_ledger(environment, SERVED) as topic:
            topic.add_entry(b"one")
        wait_for(lambda: is_owned(environment))
        service.end(signal.SIGKILL)
        left = owner_of(info_of(environment))
        assert left is not None
        with own(tmp_path):
            wait_for(lambda: owner_of(info_of(environment)) != left)
            assert is_owned(environment)


@pytest.mark.long
def test_what_is_asked_for_is_offloaded_by_the_owner(tmp_path):
    with own(tmp_path) as service, owner(service.metadata, tmp_path) as environment:
        with open_managed_ledger(environment, SERVED) as topic:
            topic.add_entry(b"one")
        wait_for(lambda: is_owned(environment))
        at = {"ledgerId": 1 << 40, "entryId": 0}
        assert service.ask("PUT", f"/admin/v2/{TOPIC}/offload", at).status == 204
        wait_for(lambda: service.ask("GET", f"/admin/v2/{TOPIC}/offload").json["status"] == "SUCCESS")
        assert all(each.has_complete_copy for each in info_of(environment).ledgers)


def test_a_topic_to_take_that_is_not_there_is_wrong_use(tmp_path, offload):
    service = own(tmp_path)
    done = offload("own", "--config", service.config, "--port", service.port, "--take", "acme/n/none")
    assert (done.code, "acme/n/persistent/none" in done.err) == (2, True)


def test_without_a_hot_tier_there_is_nothing_to_own(tmp_path, offload):
    done = offload(
        "own", "--metadata", f"sqlite:{tmp_path}/m.db", "--metadata-option", "create=true", "--port", 0
    )
    assert (done.code, "no hot tier is configured" in done.err) == (2, True)
