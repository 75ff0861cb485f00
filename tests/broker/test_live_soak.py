"""A stream follows a live topic while what is around it breaks: each message is there once, in order, and no others.

A broker gets 2,000 messages a second, in batches, one by one, in chunks and in transactions. It rolls over every few
seconds, offloads each ledger when it is closed, and deletes BookKeeper's copy soon after. Bookies and executors are
killed in turn. `OFFLOAD_LIVE_SOAK_S` is how long it takes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pulsar
import pyarrow.parquet as pq
import pytest
import soak_stream
from live.clients import TransactionalPulsar
from servers.bookies import Bookie
from servers.broker import Broker
from servers.process import Child
from waiting import wait_for

from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store

SOAK_S = float(os.environ.get("OFFLOAD_LIVE_SOAK_S", 10 * 60))
BATCHED_PER_S, SINGLE_PER_S = 1800, 170
TRANSACTIONAL = 30
"""Messages of one call, in transactions; there is about one call a second."""
CHUNKED_BYTES = 6 << 20
CHUNKED_EVERY_S = 10.0
ENTRIES_PER_LEDGER = 1000
QUORUM = 2
TURN_S = 12.0
DOWN_S = 6.0
SENT_WITHIN_MS = 600_000
"""A client that was refused while bookies were away may take minutes to send again."""
SESSION_MS = 4_000
"""Of a bookie. It ends while a killed one is down, so that no old registration is taken for the new one's. A shorter
one is lost on a slow machine, which leaves no bookie beside the one that is killed."""
CAUGHT_UP_WITHIN_S = 300.0


class Sent:
    """What was acknowledged, by name, and what was sent in a transaction that was aborted. For many threads."""

    def __init__(self):
        self.acknowledged = Counter[bytes]()
        self.aborted: set[bytes] = set()
        self.failed: list[str] = []
        self.ended = threading.Event()
        self._lock = threading.Lock()

    def note(self, name, result):
        """The answer to a message."""
        with self._lock:
            if result == pulsar.Result.Ok:
                self.acknowledged[name] += 1
            else:
                self.failed.append(f"{name!r}: {result}")

    def by_client(self, client, topic, kind, per_s, size, **options):
        """Send by a producer of its own, at this rate, until the end."""
        with closing(
            client.create_producer(
                topic, block_if_queue_full=True, send_timeout_millis=SENT_WITHIN_MS, **options
            )
        ) as producer:
            began, count = time.monotonic(), 0
            while not self.ended.wait(0.01):
                for number in range(count, int((time.monotonic() - began) * per_s)):
                    name = b"%b%010d" % (kind, number)
                    producer.send_async(
                        name + bytes(size), lambda result, _, name=name: self.note(name, result)
                    )
                    count = number + 1
            producer.flush()

    def in_transactions(self, live, topic):
        """Send in transactions, of which each third is aborted, until the end."""
        numbers = iter(range(10**9))
        while not self.ended.wait(1):
            owners = [f"t{number % 3}" for number in range(TRANSACTIONAL)]
            named = [(owner, b"t%010d" % next(numbers)) for owner in owners]
            steps = [
                *({"messages": [{"value": name.decode(), "transaction": owner}]} for owner, name in named),
                {"commit": "t0"},
                {"abort": "t1"},
                {"commit": "t2"},
            ]
            try:
                live.send_steps(topic, steps)
            except Exception as error:
                self.failed.append(f"transactions: {error}")
                return
            for owner, name in named:
                if owner == "t1":
                    self.aborted.add(name)
                else:
                    self.note(name, pulsar.Result.Ok)


def executors_of(job):
    """The processes of a job's executors."""
    found = []
    for each in Path("/proc").iterdir():
        try:
            if each.name.isdigit() and os.getsid(int(each.name)) == job.pid:
                command = (each / "cmdline").read_bytes()
                if b"CoarseGrainedExecutorBackend" in command and b"java" in command.split(b"\0")[0]:
                    found.append(int(each.name))
        except (OSError, ProcessLookupError):
            continue
    return found


def names_in(folder):
    """The names of all rows, in the order of the batches."""
    files = sorted((folder / "rows").glob("*.parquet"))
    return [name for file in files for name in pq.read_table(file, columns=["name"])["name"].to_pylist()]


def count_in(folder):
    return sum(pq.read_metadata(file).num_rows for file in (folder / "rows").glob("*.parquet"))


def read_by_client(client, topic):
    """What a reader of Pulsar's gets, from the first message to the last."""
    names = []
    with closing(
        client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
    ) as reader:
        while reader.has_message_available():
            names.append(reader.read_next(60_000).data()[: soak_stream.NAME_BYTES])
    return names


@pytest.fixture
def live(start_server, zookeeper, versitygw, oracle, tmp_path):
    """A broker of the test's own, and two bookies beside the one that it has itself."""
    root = zookeeper.make_root("/soak")
    broker = Broker(
        versitygw, transactions=True, max_entries_per_ledger=ENTRIES_PER_LEDGER, metadata_url=root
    )
    start_server(broker)
    with TransactionalPulsar.connected(broker, versitygw, oracle=oracle) as live:
        yield live


@pytest.fixture
def bookies(live, start_server, zookeeper):
    settings = {
        "metadataServiceUri": f"metadata-store:zk:{zookeeper.host}:{zookeeper.port}/soak",
        "zkTimeout": SESSION_MS,
    }
    drivers = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
    properties = {
        "bookkeeper.metadata.bookie.drivers": f"{drivers}BookieDriver",
        "bookkeeper.metadata.client.drivers": f"{drivers}ClientDriver",
    }
    return [
        start_server(Bookie(zookeeper, "/soak/ledgers", settings=settings, properties=properties))
        for _ in range(2)
    ]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(SOAK_S * 2 + 1200)
def test_each_message_is_there_once_and_in_order(live, bookies, zookeeper, java, tmp_path):
    bucket, store = live.new_store()
    offloads = live.broker.s3_policies(bucket, deletion_lag_ms=2_000)
    at_once = {"managedLedgerOffloadThresholdInBytes": 0}
    namespace = live.new_namespace(offloads | at_once)
    for each in (namespace, "pulsar/system"):
        live.admin.set_persistence(each, QUORUM)
    live.admin.deduplicate(
        namespace
    )  # a producer that is connected anew sends again what was not acknowledged
    topic = f"persistent://{namespace}/followed"
    records = f"{zookeeper.endpoint}/soak"
    hot = {"hot": "bookkeeper", "hot.url": records, "hot.admin_url": live.broker.endpoint}
    options = {**store.spark_options(), **hot, "records": records, "topic": topic}
    options |= {"startingOffsets": "earliest", "refreshIntervalMs": "500"}
    (tmp_path / "options.json").write_text(json.dumps(options))

    sent = Sent()
    batched = {"compression_type": pulsar.CompressionType.LZ4, "batching_max_messages": 100}
    threads = [
        threading.Thread(target=sent.by_client, args=(live.client, topic, *args), kwargs=more)
        for args, more in (
            ((b"b", BATCHED_PER_S, 300), {"batching_enabled": True, **batched}),
            ((b"s", SINGLE_PER_S, 300), {"batching_enabled": False}),
            (
                (b"c", 1 / CHUNKED_EVERY_S, CHUNKED_BYTES),
                {"batching_enabled": False, "chunking_enabled": True},
            ),
        )
    ]
    threads.append(threading.Thread(target=sent.in_transactions, args=(live, topic)))
    for each in threads:
        each.start()
    try:
        wait_for(lambda: len(sent.acknowledged) > 1000)
        job = Child([sys.executable, soak_stream.__file__, str(tmp_path)], tmp_path / "job.log")
        try:
            kills = break_things(job, bookies)
            sent.ended.set()
            for each in threads:
                each.join()
            assert sent.failed == []
            expected = read_by_client(live.client, topic)
            job.wait_until(lambda: count_in(tmp_path) >= len(expected), CAUGHT_UP_WITHIN_S)
            (tmp_path / "stop").touch()
            wait_for(lambda: not job.is_running)
        finally:
            job.stop()
    finally:
        sent.ended.set()
    names = names_in(tmp_path)
    differs = next((i for i, (a, b) in enumerate(zip(names, expected, strict=False)) if a != b), None)
    assert differs is None, (differs, names[differs : differs + 5], expected[differs : differs + 5])
    assert len(names) == len(expected)
    assert not sent.aborted.intersection(names)
    assert Counter(names) == sent.acknowledged
    assert {name[:1] for name in names} == {b"b", b"s", b"c", b"t"}
    with closing(open_metadata_store(records)) as metadata:
        known = ManagedLedgerRecords(metadata).require(managed_ledger_of_topic(parse_topic(topic))).info
    offloaded = sum(each.has_complete_copy for each in known.ledgers)
    deleted = sum(not each.has_hot_copy for each in known.ledgers)
    ledgers = f"{len(known.ledgers)} ledgers, {offloaded} offloaded, {deleted} deleted"
    print(f"{len(names):,} rows; {ledgers}; {dict(kills)}")
    assert min(kills["executors"], kills["bookies"], offloaded, deleted) > 0


def break_things(job, bookies):
    """Kill an executor and a bookie in turn, until time is over; how many of each."""
    kills = Counter[str]()
    until = time.monotonic() + SOAK_S
    while time.monotonic() < until:
        time.sleep(TURN_S)
        assert job.is_running, job.log_tail()
        if kills["executors"] <= kills["bookies"] and (executors := executors_of(job)):
            os.kill(executors[0], signal.SIGKILL)
            kills["executors"] += 1
            continue
        bookie = bookies[kills["bookies"] % len(bookies)]
        bookie.kill()
        time.sleep(DOWN_S)
        bookie.restart()
        kills["bookies"] += 1
    return kills
