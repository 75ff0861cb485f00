"""A cold topic: read by Pulsar's clients through a broker, and by us from the bucket that the broker offloaded it to.

300,000 JSON records of 1 KiB, in LZ4 batches of 100, in four ledgers, which BookKeeper has no more. Before each round
the broker forgets the topic and loads it anew, so that it has nothing of it in memory. The peer is the faster of
Pulsar's Java and Python readers. Ours: the Arrow scan, all default columns, its tasks read by a process for each core;
and the Spark source on `local[2]`, written to `noop`. What Spark takes for itself is shown by a source that hands over
batches made before.

All are warm, but for Spark's first query. The service, the broker and either reader share all cores; while ours reads,
the broker is idle.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import pickle
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pulsar
import pyarrow.compute as pc
from live.broker import LivePulsar, PulsarAdmin, produce
from oracle import Oracle
from pyspark.sql import SparkSession, functions
from servers.broker import Broker
from servers.versitygw import Versitygw
from stores import s3_options

from benchmarks.material import json_record
from benchmarks.measure import Result
from benchmarks.spark import PrebuiltSource, consume, prebuild, start
from benchmarks.stores import in_memory_where_it_can_be
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.reading.scan import ReadOptions, ScanTask, read_task
from offload_core.storage.tier import Tier
from pulsar_offload import TierReader, open_tier, scan

MESSAGES = 300_000
MESSAGE_BYTES = 1024
DISTINCT = 10_000
PER_BATCH = 100
LEDGERS = 4
QUEUE = 50_000  # messages that Pulsar's readers take ahead; by default 1,000
WARM_ROUNDS = 4
ROUNDS = 5
FIRST_ROUNDS = 2
ARROW_TARGET = 10.0
SPARK_TARGET = 2.5
BUCKET = "cold"
NAMESPACE = "bench/cold"
TOPIC = f"persistent://{NAMESPACE}/topic"
SPAWN = multiprocessing.get_context("spawn")

Timed = Callable[[], float]
"""Reads the topic once, and checks what it read; seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a reader saw: how many messages, the bytes of their payloads, and the first and last of these."""

    count: int
    payload_bytes: int
    first: bytes
    last: bytes


def run(folder: Path) -> Iterator[Result]:
    """The Arrow scan and Spark warm; then Spark's first query."""
    place = in_memory_where_it_can_be(folder)
    try:
        with ExitStack() as stack:
            server = stack.enter_context(Versitygw().start(place / "s3"))
            server.make_bucket(BUCKET)
            entries = MESSAGES // PER_BATCH // LEDGERS
            broker = Broker(server, java_options=(), max_entries_per_ledger=entries)
            stack.enter_context(broker.start(place / "broker"))
            live = stack.enter_context(LivePulsar.connected(broker, server))
            admin, client = live.admin, live.client
            sent = make_cold_topic(broker, admin, client)
            readers: dict[str, Timed] = {
                "Java": java_reader(stack.enter_context(Oracle(place)), broker, admin, sent),
                "Python": python_reader(client, admin, sent),
            }
            yield from compare(stack, place, s3_options(server), sent, readers)
    finally:
        shutil.rmtree(place)


def make_cold_topic(broker: Broker, admin: PulsarAdmin, client: pulsar.Client) -> Seen:
    """Send the messages, have the broker offload them all and delete BookKeeper's copy; what was sent."""
    admin.make_namespace(NAMESPACE, broker.s3_policies(BUCKET, deletion_lag_ms=0), cluster=broker.cluster)
    rng = random.Random(5)
    records = [json_record(i, MESSAGE_BYTES, rng) for i in range(DISTINCT)]
    produce(
        client,
        TOPIC,
        ({"content": record} for record in itertools.islice(itertools.cycle(records), MESSAGES)),
        compression_type=pulsar.CompressionType.LZ4,
        batching_enabled=True,
        batching_max_messages=PER_BATCH,
        batching_max_publish_delay_ms=10_000,
        batching_max_allowed_size_in_bytes=1 << 20,
    )
    offloaded = admin.offload_all(TOPIC)
    admin.drop_bookkeeper_copies(TOPIC)
    if [ledger.entries for ledger in offloaded] != [MESSAGES // PER_BATCH // LEDGERS] * LEDGERS:
        raise AssertionError(f"the broker made other ledgers: {offloaded}")
    return Seen(
        count=MESSAGES,
        payload_bytes=MESSAGES * MESSAGE_BYTES,
        first=records[0],
        last=records[(MESSAGES - 1) % DISTINCT],
    )


# --- Pulsar's readers --------------------------------------------------------------------------


def java_reader(oracle: Oracle, broker: Broker, admin: PulsarAdmin, sent: Seen) -> Timed:
    """The reader of Pulsar's Java client; its JVM measures itself."""

    def read() -> float:
        forget(admin)
        answer = oracle.ask(
            "time_client_reader", service_url=broker.service_url, topic=TOPIC, count=MESSAGES, queue=QUEUE
        )
        first, last = answer["first"].encode(), answer["last"].encode()
        check(Seen(count=MESSAGES, payload_bytes=answer["bytes"], first=first, last=last), sent)
        return float(answer["seconds"])

    return read


def python_reader(client: pulsar.Client, admin: PulsarAdmin, sent: Seen) -> Timed:
    """The reader of Pulsar's Python client."""

    def read() -> float:
        forget(admin)
        began = time.perf_counter()
        reader = client.create_reader(TOPIC, pulsar.MessageId.earliest, receiver_queue_size=QUEUE)
        first = last = reader.read_next(timeout_millis=60_000).data()
        payload_bytes = len(first)
        for _ in range(MESSAGES - 1):
            last = reader.read_next(timeout_millis=60_000).data()
            payload_bytes += len(last)
        reader.close()
        seconds = time.perf_counter() - began
        check(Seen(count=MESSAGES, payload_bytes=payload_bytes, first=first, last=last), sent)
        return seconds

    return read


def forget(admin: PulsarAdmin, topic: str = TOPIC) -> None:
    """Have the broker drop what it has of the topic in memory, and load it again."""
    admin.unload(topic)
    admin.ledgers(topic)


# --- ours --------------------------------------------------------------------------------------


def arrow_scan(tier: TierReader, pool: ProcessPoolExecutor, sent: Seen) -> Timed:
    """The Arrow scan, `uncommitted`, planned anew each time; its tasks are read by the pool's processes."""

    def read() -> float:
        began = time.perf_counter()
        scanned = scan(tier, TOPIC, min_partitions=LEDGERS, isolation="uncommitted")
        store = pickle.dumps(scanned.tier)
        reading = [pool.submit(read_part, store, task, scanned.options) for task in scanned.tasks]
        parts = [future.result() for future in reading]
        seconds = time.perf_counter() - began
        check(
            Seen(
                count=sum(part.count for part in parts),
                payload_bytes=sum(part.payload_bytes for part in parts),
                first=parts[0].first,
                last=parts[-1].last,
            ),
            sent,
        )
        return seconds

    return read


def read_part(store: bytes, task: ScanTask, how: ReadOptions) -> Seen:
    """Read one task of a scan in a process of the pool; each batch is let go of."""
    count = payload_bytes = 0
    first = None
    for batch in read_task(tier_of_process(store), task, how):
        values = batch.column("value")
        count += len(values)
        payload_bytes += pc.sum(pc.binary_length(values)).as_py()
        first = first or values[0]
        last = values[-1]
    return Seen(count=count, payload_bytes=payload_bytes, first=first.as_py(), last=last.as_py())


@functools.cache
def tier_of_process(store: bytes) -> Tier:
    """The tier as this process opened it."""
    tier: Tier = pickle.loads(store)
    return tier


def spark_query(spark: SparkSession, name: str, source: Mapping[str, str]) -> float:
    """The whole topic by a Spark source; planning is part of the query."""
    began = time.perf_counter()
    consume(spark, name, **source)
    return time.perf_counter() - began


def check_spark(spark: SparkSession, source: Mapping[str, str], sent: Seen) -> None:
    """Have Spark say what the same query sees: `noop` does not."""
    place = functions.struct("__ledgerId", "__entryId", "__batchIndex")
    frame = spark.read.format("pulsar_offload").options(**source).load()
    (row,) = frame.agg(
        functions.count("*"),
        functions.sum(functions.length("value")),
        functions.min_by("value", place),
        functions.max_by("value", place),
    ).collect()
    check(Seen(count=row[0], payload_bytes=row[1], first=bytes(row[2]), last=bytes(row[3])), sent)


def first_query(source: Mapping[str, str], sent: Seen) -> float:
    """The first query of a new JVM, seconds from its session on: Python's workers start, and nothing is compiled."""
    spark = start()
    spark.dataSource.register(PulsarOffloadDataSource)
    seconds = spark_query(spark, "pulsar_offload", source)
    check_spark(spark, source, sent)
    spark.stop()
    return seconds


# --- side by side ------------------------------------------------------------------------------


def compare(
    stack: ExitStack, place: Path, store: Mapping[str, str], sent: Seen, readers: Mapping[str, Timed]
) -> Iterator[Result]:
    """All of them in turn, round by round."""
    source = {f"storage.{name}": value for name, value in store.items()}
    source |= {"path": f"s3://{BUCKET}", "topic": TOPIC, "minPartitions": str(LEDGERS)}
    source["isolation"] = "uncommitted"  # the reading is measured, not the look for transactions
    spark = start()
    stack.callback(spark.stop)
    spark.dataSource.register(PulsarOffloadDataSource)
    spark.dataSource.register(PrebuiltSource)
    check_spark(spark, source, sent)
    ours: dict[str, Timed] = {}
    pool = stack.enter_context(ProcessPoolExecutor(mp_context=SPAWN))
    tier = stack.enter_context(open_tier(f"s3://{BUCKET}", **store))
    ours["arrow"] = arrow_scan(tier, pool, sent)
    rows, _ = prebuild(tier, place / "batches.arrow")
    prebuilt = {"path": str(place / "batches.arrow"), "rows": str(rows), "partitions": str(LEDGERS)}
    ours["spark"] = lambda: spark_query(spark, "pulsar_offload", source)
    ours["prebuilt"] = lambda: spark_query(spark, "prebuilt", prebuilt)

    contestants = {**ours, **readers}
    for _ in range(WARM_ROUNDS):
        for read in contestants.values():
            read()
    rounds = [{name: read() for name, read in contestants.items()} for _ in range(ROUNDS)]
    yield result("Arrow scan", "arrow", rounds, readers, ARROW_TARGET)
    yield result("Spark local[2], warm", "spark", rounds, readers, SPARK_TARGET)
    yield result("Spark local[2], warm, prebuilt batches instead of ours", "prebuilt", rounds, readers)

    rounds = []
    for _ in range(FIRST_ROUNDS):
        with ProcessPoolExecutor(1, mp_context=SPAWN) as process:
            first = process.submit(first_query, source, sent).result()
        rounds.append({"first": first, **{name: read() for name, read in readers.items()}})
    yield result("Spark local[2], first query of a JVM", "first", rounds, readers, SPARK_TARGET)


def result(
    what: str,
    name: str,
    rounds: list[dict[str, float]],
    readers: Mapping[str, Timed],
    target: float | None = None,
) -> Result:
    """Ours of this name against the faster of the readers."""
    rates = {
        each: MESSAGES / statistics.median(seconds[each] for seconds in rounds) / 1e3
        for each in (name, *readers)
    }
    faster = max(readers, key=rates.__getitem__)
    return Result(
        name=f"cold topic of {MESSAGES:,} messages of 1 KiB, LZ4: {what}",
        ours=f"{rates[name]:.0f} k/s",
        peer=", ".join(f"{reader} {rates[reader]:.0f} k/s" for reader in readers),
        ratio=statistics.median(seconds[faster] / seconds[name] for seconds in rounds),
        limit=target,
    )


def check(seen: Seen, sent: Seen) -> None:
    """A fast answer must be the right one."""
    if seen != sent:
        raise AssertionError(f"read {seen}, sent {sent}")
