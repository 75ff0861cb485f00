"""Ledgers of live bookies: read by us, by BookKeeper's own Java client, and their topics by Pulsar's readers.

First one bookie with ledgers of a bookie's and a client's usual entries: 100 B, 1 KiB, 32 KiB, 1 MiB. The peer is
BookKeeper's Java client of version 2 of the protocol, unthrottled, by single reads of 1,000 entries at once, as managed
ledgers read; beside it the same client's batch reads, which it has from 4.17 on. Entries are checked, and no more.

Then a topic of a broker, decoded messages to decoded messages: ours are all default columns, made by a thread for each
core, peers are Pulsar's Java and Python readers. The broker forgets the topic before each round.

All take turns, at the same bookie; the servers share all cores with the readers. Ours has its default limits.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pulsar
from live.broker import LivePulsar, PulsarAdmin, produce
from oracle import Oracle
from servers.bookies import Bookie, make_cluster
from servers.broker import Broker
from servers.versitygw import Versitygw
from servers.zookeeper import ZooKeeper

from benchmarks.broker import forget
from benchmarks.material import json_record
from benchmarks.measure import Result
from benchmarks.stores import in_memory_where_it_can_be
from offload_core.format.messages.message_columns import arrow_schema
from offload_core.format.messages.message_decoder import MessageDecoder
from offload_core.storage.hot.bookkeeper import BookKeeperLedgerStore

LEDGERS = {
    "100 B": (100, 200_000),
    "1 KiB": (1024, 100_000),
    "32 KiB": (32 << 10, 4000),
    "1 MiB": (1 << 20, 120),
}
READ_BYTES = 4 << 20
ROUNDS = 5
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
OWN_CLIENT_TARGET = 2.0
BOOKIE = {"dbStorage_writeCacheMaxSizeMb": 256, "dbStorage_readAheadCacheMaxSizeMb": 512}
BOOKIE_MEMORY = ("-XX:MaxDirectMemorySize=1500m",)

NAMESPACE = "bench/live"
QUEUE = 50_000
ROOT = "/pulsar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A topic, and how much faster than the fastest of Pulsar's readers ours is to be."""

    name: str
    messages: int
    producer: Mapping[str, Any]
    target: float


KINDS = (
    Kind(name="1 KiB, not batched", messages=60_000, producer={"batching_enabled": False}, target=10.0),
    Kind(
        name="1 KiB in LZ4 batches of 100",
        messages=200_000,
        producer={
            "compression_type": pulsar.CompressionType.LZ4,
            "batching_enabled": True,
            "batching_max_messages": 100,
            "batching_max_publish_delay_ms": 10_000,
            "batching_max_allowed_size_in_bytes": 1 << 20,
        },
        target=3.0,
    ),
)


def run(folder: Path) -> Iterator[Result]:
    """Against BookKeeper's client; against Pulsar's readers."""
    place = in_memory_where_it_can_be(folder)
    try:
        with ExitStack() as stack:
            (place / "zookeeper").mkdir(parents=True)
            zookeeper = stack.enter_context(ZooKeeper().start(place / "zookeeper"))
            oracle = stack.enter_context(Oracle(place))
            yield from against_its_own_client(place, zookeeper, oracle)
            yield from against_pulsars_readers(place, zookeeper, oracle)
    finally:
        shutil.rmtree(place)


# --- entries -----------------------------------------------------------------------------------


def against_its_own_client(place: Path, zookeeper: ZooKeeper, oracle: Oracle) -> Iterator[Result]:
    """Ledgers of each size."""
    root = make_cluster(zookeeper)
    uri = f"zk+hierarchical://{zookeeper.host}:{zookeeper.port}{root}"
    bookie = Bookie(zookeeper, root, java_options=BOOKIE_MEMORY, settings=BOOKIE)
    with (
        bookie.start(place / "bookie"),
        closing(BookKeeperLedgerStore(zookeeper.endpoint, ledgers_path=root)) as store,
    ):
        for name, (size, count) in LEDGERS.items():
            ledger_id = write(oracle, uri, size, count)

            def java(batches: bool, ledger_id: int = ledger_id, count: int = count) -> float:
                answer = oracle.ask(
                    "time_ledger",
                    uri=uri,
                    ledger=ledger_id,
                    digest="CRC32C",
                    batches=batches,
                    settings={"useV2WireProtocol": "true"},
                )
                if answer["entries"] != count:
                    raise AssertionError(f"BookKeeper's client read {answer}, there are {count}")
                return float(answer["seconds"])

            cpu: list[float] = []
            readers = {
                "ours": lambda ledger_id=ledger_id, count=count, cpu=cpu: read_entries(
                    store, ledger_id, count, cpu
                ),
                "single reads": lambda java=java: java(False),
                "batch reads": lambda java=java: java(True),
            }
            medians = in_turn(readers)
            rates = {each: f"{count / seconds / 1e3:.0f} k/s" for each, seconds in medians.items()}
            micros = statistics.median(cpu) / count * 1e6
            shown = f"{rates['ours']}, {count * size / medians['ours'] / 1e6:.0f} MB/s, {micros:.2f} µs of CPU each"
            for peer, target in (("single reads", OWN_CLIENT_TARGET), ("batch reads", None)):
                yield Result(
                    name=f"entries of {name}, against BookKeeper's Java client by {peer}",
                    ours=shown,
                    peer=rates[peer],
                    ratio=medians[peer] / medians["ours"],
                    limit=target,
                )


def write(oracle: Oracle, uri: str, size: int, count: int) -> int:
    """A closed ledger of random entries, written some at a time: a client has no limit of its own."""
    rng = random.Random(size)
    ledger_id = oracle.ask(
        "create_ledger", uri=uri, ensemble=1, write_quorum=1, ack_quorum=1, digest="CRC32C"
    )["ledger"]
    at_once = max(1, min(2000, (16 << 20) // size))
    for begin in range(0, count, at_once):
        entries = ((ledger_id, i, rng.randbytes(size)) for i in range(begin, min(count, begin + at_once)))
        path = oracle.save(entries)
        oracle.ask("append_to_ledger", ledger=ledger_id, entries=str(path))
        path.unlink()
    oracle.ask("close_ledger", ledger=ledger_id)
    return int(ledger_id)


def read_entries(store: BookKeeperLedgerStore, ledger_id: int, count: int, cpu: list[float]) -> float:
    """Read a ledger; seconds. The processor's go into `cpu`."""
    reader = store.open(ledger_id)
    began, busy = time.perf_counter(), time.process_time()
    entry_id = 0
    while entry_id < count:
        entry_id = reader.read(entry_id, count - 1, READ_BYTES).stop_entry_id
    seconds = time.perf_counter() - began
    cpu.append(time.process_time() - busy)
    reader.close()
    return seconds


# --- messages ----------------------------------------------------------------------------------


def against_pulsars_readers(place: Path, zookeeper: ZooKeeper, oracle: Oracle) -> Iterator[Result]:
    """Topics of each kind."""
    with ExitStack() as stack:
        server = stack.enter_context(Versitygw().start(place / "s3"))
        broker = Broker(
            server, java_options=(), max_entries_per_ledger=50_000, metadata_url=zookeeper.make_root(ROOT)
        )
        stack.enter_context(broker.start(place / "broker"))
        live = stack.enter_context(LivePulsar.connected(broker, server))
        admin, client = live.admin, live.client
        server.make_bucket("unused")
        admin.make_namespace(NAMESPACE, broker.s3_policies("unused"), cluster=broker.cluster)
        store = BookKeeperLedgerStore(f"{zookeeper.endpoint}{ROOT}")
        stack.callback(store.close)
        rng = random.Random(5)
        records = [json_record(i, 1024, rng) for i in range(10_000)]
        for number, kind in enumerate(KINDS):
            topic = f"persistent://{NAMESPACE}/topic-{number}"
            sent = itertools.islice(itertools.cycle(records), kind.messages)
            produce(client, topic, ({"content": record} for record in sent), **kind.producer)
            admin.unload(topic)
            ledgers = [each.ledger_id for each in admin.ledgers(topic) if each.entries]
            cpu: list[float] = []
            readers = {
                "ours": lambda kind=kind, topic=topic, ledgers=ledgers, cpu=cpu: read_messages(
                    store, topic, ledgers, kind.messages, cpu
                ),
                "Java": lambda kind=kind, topic=topic: by_java(oracle, broker, admin, topic, kind.messages),
                "Python": lambda kind=kind, topic=topic: by_python(client, admin, topic, kind.messages),
            }
            medians = in_turn(readers)
            rates = {each: f"{kind.messages / seconds / 1e3:.0f} k/s" for each, seconds in medians.items()}
            faster = min(("Java", "Python"), key=medians.__getitem__)
            micros = statistics.median(cpu) / kind.messages * 1e6
            yield Result(
                name=f"messages of {kind.name}, against the faster of Pulsar's readers",
                ours=f"{rates['ours']}, {micros:.2f} µs of CPU each",
                peer=f"Java {rates['Java']}, Python {rates['Python']}",
                ratio=medians[faster] / medians["ours"],
                limit=kind.target,
            )


def read_messages(
    store: BookKeeperLedgerStore, topic: str, ledgers: list[int], count: int, cpu: list[float]
) -> float:
    """Read and decode a topic's ledgers, a part of each by every core; seconds. The processor's go into `cpu`."""
    began, busy = time.perf_counter(), time.process_time()
    parts = [(ledger_id, part) for ledger_id in ledgers for part in range(CORES)]
    with ThreadPoolExecutor(CORES) as pool:
        rows = sum(pool.map(lambda each: read_part(store, topic, *each), parts))
    seconds = time.perf_counter() - began
    cpu.append(time.process_time() - busy)
    if rows != count:
        raise AssertionError(f"read {rows} messages, sent {count}")
    return seconds


def read_part(store: BookKeeperLedgerStore, topic: str, ledger_id: int, part: int) -> int:
    """Read and decode some entries of a ledger; the number of messages."""
    decoder = MessageDecoder(
        topic=topic,
        partition=-1,
        ledger_id=ledger_id,
        schema=arrow_schema("messages", None),
        verify_checksums=True,
        max_message_bytes=128 << 20,
    )
    rows = 0
    with closing(store.open(ledger_id)) as reader:
        entries = reader.status().entry_count
        entry_id, stop = entries * part // CORES, entries * (part + 1) // CORES
        while entry_id < stop:
            batch = reader.read(entry_id, stop - 1, READ_BYTES)
            borders = np.frombuffer(batch.offsets, np.int64)
            ids = np.arange(entry_id, batch.stop_entry_id)
            data = np.frombuffer(batch.data, np.uint8)
            for made in decoder.decode(data, None, ids, borders[:-1].copy(), np.diff(borders)):
                rows += made.num_rows
            entry_id = batch.stop_entry_id
    return rows


def by_java(oracle: Oracle, broker: Broker, admin: PulsarAdmin, topic: str, count: int) -> float:
    """Pulsar's Java reader; its JVM measures itself."""
    forget(admin, topic)
    answer = oracle.ask(
        "time_client_reader", service_url=broker.service_url, topic=topic, count=count, queue=QUEUE
    )
    return float(answer["seconds"])


def by_python(client: pulsar.Client, admin: PulsarAdmin, topic: str, count: int) -> float:
    """Pulsar's Python reader."""
    forget(admin, topic)
    began = time.perf_counter()
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=QUEUE)
    for _ in range(count):
        reader.read_next(timeout_millis=60_000).data()
    reader.close()
    return time.perf_counter() - began


def in_turn(readers: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """Median seconds of each; two rounds are not counted, in which bookies and JVMs become warm."""
    for _ in range(2):
        for read in readers.values():
            read()
    rounds = [{name: read() for name, read in readers.items()} for _ in range(ROUNDS)]
    return {name: statistics.median(each[name] for each in rounds) for name in readers}
