"""Topics of a running broker are offloaded beside it: clients, the broker and our scans get the same."""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

import pulsar
import pytest
from commands import in_this_process
from crash_points import FAULTS, Hot, Killed, Metadata, PointedLedgers, Points, Turn
from live.broker import AdminError, scanned
from live.sent import TOPICS, ended, steps
from waiting import wait_for

from offload_core.interfaces.service.live_upkeep import live_upkeep
from offload_core.maintenance.live import LiveTopicOffloads, open_live_cluster
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.policies import parse_policies, resolve_policies
from offload_core.metadata.records import EntryPosition, ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import open_store
from offload_core.writing.configuration import load_configuration
from offload_core.writing.managed_ledger import HotLedgers, due_ledgers
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_core.writing.offload_filters import recorded_filters
from offload_hooks.errors import DataLossError, OffloadError
from pulsar_offload import open_tier

pytestmark = pytest.mark.sampled(6)

ALL = resolve_policies(topic=parse_policies({"driver": "aws-s3", "threshold_in_bytes": 0}))


@pytest.fixture(scope="module")
def live(live_by_zookeeper):
    return live_by_zookeeper


@pytest.fixture(scope="module")
def settings(records, live_broker, tmp_path_factory):
    """The file of settings of a process beside the broker."""
    folder = tmp_path_factory.mktemp("beside")
    file = folder / "settings.toml"
    file.write_text(
        f"""
        [metadata]
        url = "sqlite:{folder}/own.db"
        options = {{ create = true }}
        [live]
        url = "{records}"
        admin_url = "{live_broker.endpoint}"
        grace_s = 0
        """
    )
    return file


@pytest.fixture
def cluster(settings):
    with open_live_cluster(load_configuration(settings)) as cluster:
        yield cluster


def offload(cluster, topic, *, by_broker=False):
    """Offload all that may go of a topic; the ledgers that were."""
    offloads = LiveTopicOffloads(cluster, managed_ledger_of_topic(parse_topic(topic)))
    target = due_ledgers(offloads.read_info(), ALL, cluster.mirror.now_ms()).target or EntryPosition(0, 0)
    (offloads.offload_by_broker if by_broker else offloads.offload_prefix)(target)
    return offloads.offload_status.offloaded


@dataclass
class Sending:
    """A producer that sends a number of messages a second until it is stopped.

    Attributes:
        sent: the values, in order. failed: results that are errors.
        silence_s: the longest time between two acknowledgements.
    """

    client: pulsar.Client
    topic: str
    rate: int
    sent: list[bytes] = field(default_factory=list)
    failed: list[object] = field(default_factory=list)
    silence_s: float = 0.0

    def __enter__(self):
        self._stopped = threading.Event()
        self._last = 0.0
        self._thread = threading.Thread(target=self._send)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stopped.set()
        self._thread.join()

    def _send(self):
        with closing(
            self.client.create_producer(self.topic, batching_enabled=False, block_if_queue_full=True)
        ) as producer:
            self._last = time.monotonic()
            while not self._stopped.wait(1 / self.rate):
                value = b"%d" % len(self.sent)
                self.sent.append(value)
                producer.send_async(value, self._acknowledged)
            producer.flush()

    def _acknowledged(self, result, _):
        now = time.monotonic()
        self.silence_s, self._last = max(self.silence_s, now - self._last), now
        if result != pulsar.Result.Ok:
            self.failed.append(result)


def read_all(client, topic, count):
    """The values that a new reader gets from the first message on."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    with closing(reader):
        return [reader.read_next(timeout_millis=60_000).data() for _ in range(count)]


def sent_with_aborted(live, topic):
    """Send messages of all kinds after some of a transaction that is aborted; what is read."""
    aborted = [
        *({"messages": [{"transaction": "gone", "value": f"x{i}"}]} for i in range(45)),
        {"abort": "gone"},
    ]
    live.send_steps(topic, [*aborted, *ended(list(steps()))])
    return live.read(topic)


def cold_ledgers(live, topic):
    return [each.ledger_id for each in live.admin.ledgers(topic) if each.offloaded]


def test_a_topic_is_offloaded_while_it_is_written(live, cluster, record_property):
    """Without deduplication each unload of Pulsar's can have a producer send again what was written already."""
    cold = live.new_cold_namespace()
    live.admin.deduplicate(cold.name)
    topic = cold.topic("written")
    with Sending(live.client, topic, rate=100) as sending:
        wait_for(lambda: len(sending.sent) > 100, 30)
        offloaded = []
        for _ in range(3):
            done = offload(cluster, topic)
            assert done
            offloaded += done
            at = len(sending.sent)
            wait_for(lambda at=at: len(sending.sent) > at + 50, 30)
    record_property("silence_s", sending.silence_s)
    print(f"the longest silence of the producer: {sending.silence_s:.3f} s")
    assert sending.failed == []
    assert set(offloaded) <= set(cold_ledgers(live, topic))
    assert read_all(live.client, topic, len(sending.sent)) == sending.sent
    live.admin.drop_bookkeeper_copies(topic)
    live.admin.unload(topic)
    assert read_all(live.client, topic, len(sending.sent)) == sending.sent


def test_copies_are_moved_to_another_bucket_while_the_topic_is_written(
    live, cluster, settings, records, tmp_path, capsys, monkeypatch, record_property
):
    command = in_this_process(capsys, monkeypatch)
    cold, (_, new) = live.new_cold_namespace(), live.new_store()
    live.admin.deduplicate(cold.name)
    topic = cold.topic("moved")
    to = ["--to", new.url, *(f"--to-option={name}={value}" for name, value in new.options.items())]
    log = ["--yes", "--audit-log", tmp_path / "audit.jsonl", "--json"]
    with Sending(live.client, topic, rate=100) as sending:
        wait_for(lambda: len(sending.sent) > 100, 30)
        offload(cluster, topic)
        live.admin.drop_bookkeeper_copies(topic)
        before, sending.silence_s = cold_ledgers(live, topic), 0.0
        how = ["--topic", topic, "--live", "--config", settings]
        moved = command("relocate", *cold.store.command_line(), *to, *how, *log)
        at = len(sending.sent)
        wait_for(lambda: len(sending.sent) > at + 50, 30)
    assert moved.code == 0, moved.out + moved.err
    (given,) = moved.json["given"]
    assert set(given["ledgers"]) >= set(before)
    record_property("silence_s", sending.silence_s)
    print(f"the longest silence of the producer: {sending.silence_s:.3f} s")
    assert sending.failed == []
    info = cluster.records.require(managed_ledger_of_topic(parse_topic(topic))).info
    drivers = [each.context.driver for each in info.ledgers if each.has_complete_copy]
    assert {each.get("bucket") for each in drivers} == {new.url.removeprefix("s3://")}
    assert not any(name.startswith("pulsar-offload.") for each in drivers for name, _ in each.properties)
    young = [
        "--grace",
        "0",
        "--accept-short-grace",
        "--clock-skew",
        "0",
        "--not-shared",
        "--records",
        records,
    ]
    elsewhere = [argument.replace("--to", "--moved-to") for argument in to]
    collected = command("gc", *cold.store.command_line(), *young, *elsewhere, *log)
    assert collected.code == 0, collected.out + collected.err
    with cold.store.open_reader() as tier:
        assert list(tier.store.list_objects()) == []
    live.admin.unload(topic)
    assert read_all(live.client, topic, len(sending.sent)) == sending.sent


def test_a_damaged_copy_is_offloaded_again_from_bookkeeper(
    live, cluster, settings, tmp_path, capsys, monkeypatch
):
    command = in_this_process(capsys, monkeypatch)
    cold = live.new_cold_namespace()
    topic, values = sent_topic(live, cold, "damaged")
    damaged, *_ = offload(cluster, topic)
    name = managed_ledger_of_topic(parse_topic(topic))
    before = cluster.records.require(name).info.ledger(damaged).context
    with cold.store.open() as tier:
        key = f"{before.uuid}-ledger-{damaged}"
        data = bytearray(tier.read_range(key, 0, tier.stat(key).size_bytes))
        data[len(data) // 2] ^= 1
        metadata = tier.stat(key).user_metadata
        tier.write_index(key, bytes(data), user_metadata=metadata)
    how = ["--live", "--config", settings, "--topic", topic, "--offload-again", "--json"]
    planned = command("repair", *cold.store.command_line(), *how)
    assert [each["action"] for each in planned.json["repairs"]] == ["offload-again"], planned.out
    done = command(
        "repair", *cold.store.command_line(), *how, "--yes", "--audit-log", tmp_path / "audit.jsonl"
    )
    assert done.code == 0, done.out + done.err
    assert [each["ledgers"] for each in done.json["given"]] == [[damaged]]
    after = cluster.records.require(name).info.ledger(damaged).context
    assert after.uuid != before.uuid
    same = {"uuid": before.uuid, "timestamp_ms": before.timestamp_ms}  # its deletion lag begins anew
    assert replace(after, **same) == before
    live.admin.drop_bookkeeper_copies(topic)
    live.admin.unload(topic)
    assert read_all(live.client, topic, len(values)) == values
    (left,) = command("repair", *cold.store.command_line(), *how).json["repairs"]
    assert (left["action"], left["topic"]) == ("leave", None), "the old copy is garbage now"


@pytest.mark.parametrize("kind", ["compression-lz4", pytest.param("keyed", marks=pytest.mark.nightly)])
def test_clients_and_scans_get_the_same_before_and_after(live, cluster, records, kind):
    cold = live.new_cold_namespace()
    topic = cold.topic(kind)
    sent = live.send(topic, TOPICS[kind])
    hot = ("bookkeeper", {"url": records, "admin_url": live.broker.endpoint})
    with open_tier(cold.store.url, hot=hot, **cold.store.options) as tier:
        assert scanned(tier, topic, records=records) == sent.read
        done = offload(cluster, topic)
        assert done
        assert scanned(tier, topic, records=records) == sent.read
        live.assert_serves(sent, [0, len(sent.read) // 2])
        live.admin.drop_bookkeeper_copies(topic)
        live.assert_serves(sent, [0, len(sent.read) // 2])
        assert scanned(tier, topic, records=records) == sent.read


@pytest.mark.parametrize("chosen", [pytest.param("disabled", marks=pytest.mark.nightly), "transactions"])
def test_a_broker_reads_the_mapfiles_that_the_driver_filesystem_wrote(live, settings, tmp_path, chosen):
    namespace = live.new_namespace(live.broker.filesystem_policies(tmp_path, deletion_lag_ms=0))
    topic = f"persistent://{namespace}/mapfiles"
    before = sent_with_aborted(live, topic)
    with open_live_cluster(load_configuration(settings, {"policies": {"filter": chosen}})) as cluster:
        assert offload(cluster, topic)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"data", "index", ".data.crc", ".index.crc"}
    assert live.read(topic) == before
    live.admin.drop_bookkeeper_copies(topic)
    live.admin.unload(topic)
    assert live.read(topic) == before
    live.admin.delete(topic)
    wait_for(lambda: not [path for path in tmp_path.rglob("*") if path.is_file() and "data" in path.name])


def test_the_transaction_filter_leaves_tombstones_that_brokers_read(live, settings, records):
    cold = live.new_cold_namespace()
    topic = cold.topic("transactions")
    before = sent_with_aborted(live, topic)
    configuration = load_configuration(settings, {"policies": {"filter": "transactions"}})
    with open_live_cluster(configuration) as cluster:
        done = offload(cluster, topic)
        assert done
        info = cluster.records.require(managed_ledger_of_topic(parse_topic(topic))).info
    assert live.read(topic) == before
    live.admin.drop_bookkeeper_copies(topic)
    live.admin.unload(topic)
    assert live.read(topic) == before
    filtered = [
        each.context.driver.get("pulsar-offload.filter") for each in info.ledgers if each.has_complete_copy
    ]
    assert all(filtered)


def test_what_a_broker_offloaded_is_rewritten_through_the_filter(
    live, settings, tmp_path, capsys, monkeypatch
):
    command = in_this_process(capsys, monkeypatch)
    cold = live.new_cold_namespace()
    topic = cold.topic("rewritten")
    before = sent_with_aborted(live, topic)
    with open_live_cluster(load_configuration(settings)) as cluster:
        assert offload(cluster, topic, by_broker=True)
        live.admin.drop_bookkeeper_copies(topic)
        through = ["--to", cold.store.url, "--filter", "transactions", "--live", "--config", settings]
        to = [f"--to-option={name}={value}" for name, value in cold.store.options.items()]
        log = ["--yes", "--audit-log", tmp_path / "audit.jsonl", "--json"]
        how = [*cold.store.command_line(), *through, *to, "--topic", topic]
        moved = command("relocate", *how, *log)
        assert moved.code == 1, "the last transaction is open"
        moves = moved.json["topics"][0]["moves"]
        waiting = {move["ledgers"][0]: move["error"] for move in moves if move["error"]}
        info = cluster.records.require(managed_ledger_of_topic(parse_topic(topic))).info
    assert all("is open" in error for error in waiting.values()), waiting
    filters = [record for each in info.ledgers for record in recorded_filters(each)]
    assert sum(each.total_dropped.entries for each in filters) >= 45
    (given,) = moved.json["given"]
    assert set(given["ledgers"]) == set(cold_ledgers(live, topic)) - set(waiting)
    assert len(filters) == len(given["ledgers"]) > 0
    assert given["seen"]
    assert live.read(topic) == before
    live.admin.unload(topic)
    assert live.read(topic) == before
    again = command("relocate", *how, *log).json["topics"][0]["moves"]
    assert {move["ledgers"][0] for move in again} == set(waiting)


def test_a_broker_offloads_and_what_it_wrote_is_verified(live, cluster):
    cold = live.new_cold_namespace()
    topic = cold.topic("by-broker")
    sent_topic(live, cold, "by-broker", 15)
    sent_topic(live, cold, "between", 1)  # so that its own next ledger does not have the next id
    sent_topic(live, cold, "by-broker", 15)
    first, second, *_ = [each.ledger_id for each in live.admin.ledgers(topic)]
    assert second > first + 1
    assert offload(cluster, topic, by_broker=True)
    assert set(offload(cluster, topic, by_broker=True)) <= set(cold_ledgers(live, topic))


@pytest.mark.nightly
def test_a_broker_that_may_not_read_the_bucket_keeps_its_own_copies(live, settings, records):
    """Our settings have other credentials than the namespace, whose are wrong."""
    cold = live.new_cold_namespace()
    bucket = cold.store.url.removeprefix("s3://")
    topic = cold.topic("denied")
    sent = live.send(topic, TOPICS["keyed"])
    ours = live.broker.s3_policies(bucket)
    live.admin.set_offload_policies(cold.name, {**ours, "s3ManagedLedgerOffloadCredentialSecret": "wrong"})
    live.admin.unload(topic)
    with open_live_cluster(load_configuration(settings)) as cluster:
        policies = _Policies(resolve_policies(topic=parse_policies(ours)))
        # the broker keeps the hot copy until it is seen that it reads no other
        cluster = replace(cluster, reload_timeout_s=5, grace_s=3600, policies=policies)
        cluster = replace(cluster, mirror=replace(cluster.mirror, offloads=_to(cluster, cold)))
        with pytest.raises(DataLossError, match="does not read what was offloaded"):
            offload(cluster, topic)
        info = cluster.records.require(managed_ledger_of_topic(parse_topic(topic))).info
        assert not any(ledger.has_complete_copy for ledger in info.ledgers), info
    assert cold_ledgers(live, topic) == []
    live.assert_serves(sent, [0])


@dataclass
class _Policies:
    offload: object

    def resolve(self, _):
        return self


def _to(cluster, cold):
    tier = open_store(cold.store.url, **cold.store.options)
    return RecordedOffloads(cluster.mirror.records, cluster.mirror.hot.store, KnownTiers(tier))


# --- every call goes wrong ---------------------------------------------------------------------


def pointed(cluster, points):
    """The cluster as a process has it whose calls are points; those of the tier are in another test."""
    environment = cluster.mirror
    records = ManagedLedgerRecords(Metadata(environment.records.store, points))
    hot = PointedLedgers(environment.hot.store, points)
    offloads = environment.offloads
    mirror = replace(
        environment,
        records=records,
        hot=HotLedgers(hot),
        offloads=RecordedOffloads(records, hot, offloads.tiers_of),
    )
    return replace(
        cluster,
        records=ManagedLedgerRecords(Metadata(cluster.records.store, points), compression=None),
        mirror=mirror,
        brokers=Hot(cluster.brokers, points),
    )


def sent_topic(live, cold, name, count=45):
    topic = cold.topic(name)
    values = [b"%d" % number for number in range(count)]
    with closing(live.client.create_producer(topic, batching_enabled=False)) as producer:
        for value in values:
            producer.send_async(value, lambda *_: None)
        producer.flush()
    return topic, values


@pytest.mark.nightly
def test_an_offload_may_end_at_each_call_beside_a_real_broker(live, cluster, sample):
    cold = live.new_cold_namespace()
    counted = Points()
    topic, values = sent_topic(live, cold, "counted")
    offload(pointed(cluster, counted), topic)
    last = {name: at for at, name in enumerate(counted.calls, start=1)}
    first = {name: at for at, name in reversed(list(enumerate(counted.calls, start=1)))}
    cases = [(at, fault) for at in sorted({*last.values(), *first.values()}) for fault in FAULTS]
    for at, fault in sample(cases, 12):
        topic, values = sent_topic(live, cold, f"{at}-{fault.replace(' ', '-')}")
        with suppress(OffloadError, Killed):
            offload(pointed(cluster, Points(at=at, fault=fault)), topic)
        assert read_all(live.client, topic, len(values)) == values, (at, fault, counted.calls[at - 1])
        done = offload(cluster, topic)
        cold_now = cold_ledgers(live, topic)
        assert len(cold_now) >= 2, (at, fault, counted.calls[at - 1], done)
        live.admin.drop_bookkeeper_copies(topic)
        live.admin.unload(topic)
        assert read_all(live.client, topic, len(values)) == values, (at, fault, counted.calls[at - 1])


@pytest.mark.nightly
@pytest.mark.parametrize("what", ["load", "roll", "offload"])
def test_a_broker_may_do_its_own_at_each_moment(live, cluster, sample, what):
    cold = live.new_cold_namespace()
    counted = Points()
    topic, _ = sent_topic(live, cold, f"counted-{what}")
    offload(pointed(cluster, counted), topic)
    first = {name: at for at, name in reversed(list(enumerate(counted.calls, start=1)))}
    for at in sample(sorted(first.values()), 6):
        topic, values = sent_topic(live, cold, f"{what}-{at}")

        def happen(topic=topic, values=values):
            if what == "load":
                live.admin.unload(topic)
                live.admin.ledgers(topic)
            elif what == "roll":
                with closing(live.client.create_producer(topic, batching_enabled=False)) as producer:
                    for number in range(25):
                        producer.send(b"more %d" % number)
                        values.append(b"more %d" % number)
            else:
                with suppress(
                    Exception
                ):  # a broker fences itself where its record was changed; it goes on later
                    live.admin.offload_before(topic, live.admin.ledgers(topic)[-1].ledger_id)

        with suppress(OffloadError):
            offload(pointed(cluster, Turn(at, happen)), topic)
        assert read_all(live.client, topic, len(values)) == values, (what, at, counted.calls[at - 1])
        offload(cluster, topic)
        live.admin.drop_bookkeeper_copies(topic)
        live.admin.unload(topic)
        assert read_all(live.client, topic, len(values)) == values, (what, at, counted.calls[at - 1])


@pytest.mark.nightly
def test_brokers_offload_by_size_what_the_service_would(live, cluster):
    """All sealed ledgers count, those that are offloaded among them; the one that is written does not."""
    cold, size_bytes = live.new_cold_namespace(), 2500
    policies = live.broker.s3_policies(cold.store.url.removeprefix("s3://"))
    live.admin.set_offload_policies(
        cold.name, {**policies, "managedLedgerOffloadThresholdInBytes": size_bytes}
    )
    topic, _ = sent_topic(live, cold, "by-size", 130)
    ours = resolve_policies(topic=parse_policies({"driver": "aws-s3", "threshold_in_bytes": size_bytes}))

    def due():
        info = cluster.records.require(managed_ledger_of_topic(parse_topic(topic))).info
        hot = ManagedLedgerInfo(ledgers=tuple(replace(each, context=None) for each in info.ledgers))
        return list(due_ledgers(hot, ours, cluster.mirror.now_ms()).ledger_ids)

    wait_for(lambda: cold_ledgers(live, topic) == due(), 120)
    time.sleep(2)  # a broker that offloads more goes on, from the oldest ledger on
    assert cold_ledgers(live, topic) == due()
    assert 2 <= len(due()) <= 5


def test_the_service_offloads_topics_by_our_thresholds_and_leaves_others_to_brokers(live, settings):
    cold, theirs = live.new_cold_namespace(), live.new_cold_namespace()
    own = live.broker.s3_policies(theirs.store.url.removeprefix("s3://"))
    live.admin.set_offload_policies(theirs.name, {**own, "managedLedgerOffloadThresholdInBytes": 1 << 40})
    (topic, values), (left, _) = (sent_topic(live, each, "kept") for each in (cold, theirs))
    flags = {"policies": {"threshold_in_seconds": 0}, "live": {"interval_s": 0.5}}

    def is_offloaded():
        try:
            return len(cold_ledgers(live, topic)) >= 2
        except AdminError:  # it was about to load the topic when the record was written, and loads it anew
            return False

    with live_upkeep(load_configuration(settings, flags)):
        wait_for(is_offloaded, 180)
    assert read_all(live.client, topic, len(values)) == values
    assert cold_ledgers(live, left) == []


def test_the_command_offloads_a_live_topic(live, settings, capsys, monkeypatch):
    offload = in_this_process(capsys, monkeypatch)
    cold = live.new_cold_namespace()
    for name, how, count in (("beside", [], 2), ("by-broker", ["--by-broker"], 2)):
        topic, values = sent_topic(live, cold, name)
        done = offload("topics", "offload", topic, "--live", *how, "--config", settings, "--json")
        assert done.code == 0, done.err
        assert done.json["offloaded"] == cold_ledgers(live, topic)
        assert len(done.json["offloaded"]) == count
        drawn = offload("topics", "layout", topic, "--live", "--config", settings, "--json").json
        assert [each["ledger_id"] for each in drawn if each["object"]] == done.json["offloaded"]
        assert sum(each["end_entry_id"] + 1 - each["first_entry_id"] for each in drawn) == len(values)
