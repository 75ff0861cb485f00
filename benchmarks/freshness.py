"""How fresh a Delta table is that follows a live topic: from a message's acknowledgement until its row is committed.

A broker's topic gets 2,000 messages of 1 KiB a second, in the batches that Pulsar's Python producer makes by default.
Ours is `offload export --follow`, a command of its own, which looks every second and reads the hot half from bookies.
The peer is a process that takes the messages by Pulsar's Python consumer and commits what it has every second.

One after the other, each from a new topic. What comes in the first seconds, while processes start, is not counted. A
row is committed when the file of its version is in the table's log.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pulsar
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from live.broker import LivePulsar
from servers.broker import Broker
from servers.versitygw import Versitygw
from servers.zookeeper import ZooKeeper

from benchmarks.measure import Result
from benchmarks.stores import in_memory_where_it_can_be

PER_SECOND = 2000
MESSAGE_BYTES = 1024
WARM_S = 15
MEASURED_S = 60
EVERY_S = 1.0
DONE_WITHIN_S = 120
NAMESPACE = "bench/fresh"
ROOT = "/pulsar"
SPAWN = multiprocessing.get_context("spawn")
_TICK_S = 0.01


def run(folder: Path) -> Iterator[Result]:
    """Ours, then the peer."""
    place = in_memory_where_it_can_be(folder)
    try:
        with ExitStack() as stack:
            (place / "zookeeper").mkdir(parents=True)
            (place / "cold").mkdir()
            zookeeper = stack.enter_context(ZooKeeper().start(place / "zookeeper"))
            server = stack.enter_context(Versitygw().start(place / "s3"))
            root = zookeeper.make_root(ROOT)
            broker = Broker(server, java_options=(), max_entries_per_ledger=5_000, metadata_url=root)
            stack.enter_context(broker.start(place / "broker"))
            live = stack.enter_context(LivePulsar.connected(broker, server))
            admin, client = live.admin, live.client
            server.make_bucket("unused")
            admin.make_namespace(NAMESPACE, broker.s3_policies("unused"), cluster=broker.cluster)
            records = f"zk://{zookeeper.host}:{zookeeper.port}{ROOT}"
            ours = freshness(
                client, "ours", place / "ours", lambda topic, to: following(broker, records, place, topic, to)
            )
            peer = freshness(client, "peer", place / "peer", lambda topic, to: consuming(broker, topic, to))
            yield Result(
                name=f"a row of a live topic, {PER_SECOND:,} messages/s, from acknowledged to committed, p99",
                ours=_shown(ours),
                peer=f"a consumer {_shown(peer)}",
                ratio=float(np.percentile(peer, 99) / np.percentile(ours, 99)),
            )
    finally:
        shutil.rmtree(place)


def freshness(
    client: pulsar.Client, name: str, table: Path, follow: Callable[[str, Path], Iterator[None]]
) -> np.ndarray:
    """Seconds of each message that was sent after the start, in the order of sending; all must be there once."""
    topic = f"persistent://{NAMESPACE}/{name}"
    with closing(client.create_producer(topic, block_if_queue_full=True)) as producer, follow(topic, table):
        acknowledged = send(producer, (WARM_S + MEASURED_S) * PER_SECOND)
        until = time.monotonic() + DONE_WITHIN_S
        while row_count(table) < len(acknowledged) and time.monotonic() < until:
            time.sleep(EVERY_S)
    committed = committed_rows(table)
    if sorted(committed) != list(range(len(acknowledged))):
        raise AssertionError(f"{len(committed)} rows of {len(acknowledged)} messages")
    seconds = [committed[number] - acknowledged[number] for number in range(len(acknowledged))]
    return np.array(seconds[WARM_S * PER_SECOND :])


def send(producer: pulsar.Producer, count: int) -> list[float]:
    """Send numbered messages at an even rate; when each was acknowledged, in seconds since 1970."""
    acknowledged = [0.0] * count
    left = threading.Semaphore(0)

    def note(result: object, _: object, number: int) -> None:
        if result == pulsar.Result.Ok:
            acknowledged[number] = time.time()
        left.release()

    began, sent = time.monotonic(), 0
    while sent < count:
        due = min(count, int((time.monotonic() - began) * PER_SECOND))
        for number in range(sent, due):
            payload = b"%012d" % number + bytes(MESSAGE_BYTES - 12)
            producer.send_async(payload, lambda result, at, number=number: note(result, at, number))
        sent = due
        time.sleep(_TICK_S)
    producer.flush()
    for _ in range(count):
        left.acquire()
    if 0.0 in acknowledged:
        raise AssertionError(f"message {acknowledged.index(0.0)} was not acknowledged")
    return acknowledged


def added_files(table: Path) -> Iterator[tuple[dict[str, Any], float]]:
    """The files of a table as its log adds them, and when each was committed, in seconds since 1970."""
    for version in sorted((table / "_delta_log").glob("*.json")):
        actions = map(json.loads, version.read_text().splitlines())
        yield from ((each["add"], version.stat().st_mtime) for each in actions if "add" in each)


def row_count(table: Path) -> int:
    """How many rows are committed."""
    return sum(json.loads(added["stats"])["numRecords"] for added, _ in added_files(table))


def committed_rows(table: Path) -> dict[int, float]:
    """The numbers of the messages in a table, and when each was committed, in seconds since 1970."""
    rows: dict[int, float] = {}
    for added, at in added_files(table):
        values = pq.ParquetFile(table / unquote(added["path"])).read(["value"])["value"].to_pylist()
        rows.update((int(each[:12]), at) for each in values)
    return rows


# --- the two -----------------------------------------------------------------------------------


@contextmanager
def following(broker: Broker, records: str, place: Path, topic: str, table: Path) -> Iterator[None]:
    """`offload export --follow`, as its users call it."""
    hot = f"bookkeeper:url={records},admin_url={broker.endpoint}"
    command = [
        str(Path(sys.executable).with_name("offload")),
        "export",
        str(place / "cold"),
        "--topic",
        topic,
    ]
    command += ["--records", records, "--hot", hot, "--to", f"delta:{table}"]
    with subprocess.Popen([*command, "--follow", "--interval", str(EVERY_S)]) as running:
        try:
            yield
            if running.poll() is not None:
                raise AssertionError(f"it has ended with {running.returncode}")
        finally:
            running.send_signal(signal.SIGINT)
            try:
                running.wait(DONE_WITHIN_S)
            except subprocess.TimeoutExpired:
                running.kill()


@contextmanager
def consuming(broker: Broker, topic: str, table: Path) -> Iterator[None]:
    """A process that consumes and commits."""
    ended = SPAWN.Event()
    process = SPAWN.Process(target=consume, args=(broker.service_url, topic, table, ended))
    process.start()
    try:
        yield
    finally:
        ended.set()
        process.join()


def consume(service_url: str, topic: str, table: Path, ended: threading.Event) -> None:
    """Commit what comes every second, and acknowledge it then; until it is to end."""
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with closing(client):
        consumer = client.subscribe(
            topic, "to-delta", initial_position=pulsar.InitialPosition.Earliest, receiver_queue_size=10_000
        )
        while not ended.is_set():
            until, values, times, last = time.monotonic() + EVERY_S, [], [], None
            while (left_s := until - time.monotonic()) > 0:
                try:
                    message = consumer.receive(max(1, int(left_s * 1000)))
                except pulsar.Timeout:
                    break
                values.append(message.data())
                times.append(message.publish_timestamp())
                last = message
            if last is not None:
                columns = {"value": values, "publish_time": pa.array(times, pa.timestamp("ms", "UTC"))}
                write_deltalake(str(table), pa.table(columns), mode="append")
                consumer.acknowledge_cumulative(last)


def _shown(seconds: np.ndarray) -> str:
    p50, p99 = np.percentile(seconds, [50, 99])
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s"
