"""The topics that the tests have a broker offload: each a function that sends its messages by the official client."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Self
from urllib.parse import quote, urlsplit

import pulsar
from live.broker import Place, produce
from pulsar.schema import Array, AvroSchema, Double, JsonSchema, Long, Record, String
from servers.process import http_answer

WORDS = ("ledger", "entry", "segment", "block", "index", "Größe", "冷", "")
PARTITIONS = {"partitioned": 3}
"""Topics that are partitioned, and into how many."""


class Order(Record):
    """A record of the topics `json` and `avro`."""

    number = Long()
    item = String()
    price = Double()
    tags = Array(String())


def orders() -> list[dict[str, Any]]:
    """The orders of the topics `json` and `avro`, as their fields."""
    random_ = random.Random(5)
    return [
        {
            "number": number - 5,
            "item": random_.choice(WORDS),
            "price": random_.random(),
            "tags": random_.choices(WORDS, k=number % 4),
        }
        for number in range(60)
    ]


def _messages(seed: str, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Messages of compressible content of these sizes, some null, some with keys, properties and event times."""
    random_ = random.Random(seed)
    for i, size in enumerate(sizes):
        words = " ".join(random_.choices(WORDS, k=size)).encode()
        message: dict[str, Any] = {"content": None if i % 11 == 10 else words[:size]}
        if i % 2:
            message["partition_key"] = f"key-{random_.choice(WORDS)}-{i % 5}"
        if i % 3 == 0:
            message["properties"] = {f"name-{n}": random_.choice(WORDS) for n in range(i % 4)} | {"i": str(i)}
        if i % 5:
            message["event_timestamp"] = 1_600_000_000_000 + i
        if i % 7 == 0:
            message["ordering_key"] = f"order-{i}"
        yield message


def _sizes(seed: str, count: int) -> list[int]:
    """Mostly small ones, with an empty and some large ones among them."""
    random_ = random.Random(seed)
    sizes = [0, 1, 70_000, 300_000]
    sizes += [random_.randrange(2, 3000) for _ in range(count - len(sizes))]
    random_.shuffle(sizes)
    return sizes


def _batched_and_unbatched(
    compression: pulsar.CompressionType, client: pulsar.Client, topic: str
) -> dict[Place, int]:
    seed = compression.name
    sent = produce(
        client,
        topic,
        _messages(seed, _sizes(seed, 60)),
        producer_name=f"batching-{seed}",
        compression_type=compression,
        batching_enabled=True,
        batching_max_messages=7,
        batching_max_publish_delay_ms=10_000,
        batching_max_allowed_size_in_bytes=1 << 20,
    )
    singles = _messages(seed, _sizes(seed, 40))
    if compression is pulsar.CompressionType.ZLib:
        # The client would drop the others (test_client_faults.py).
        singles = (message for message in singles if message["content"])
    return sent | produce(
        client,
        topic,
        singles,
        producer_name=f"single-{seed}",
        compression_type=compression,
        batching_enabled=False,
    )


def _keyed(client: pulsar.Client, topic: str) -> dict[Place, int]:
    """Batches of one key each."""
    messages = [
        {"content": b"%d" % i, "partition_key": f"key-{i % 6}", "properties": {"i": str(i)}}
        for i in range(120)
    ]
    return produce(
        client,
        topic,
        messages,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_messages=20,
        batching_max_publish_delay_ms=10_000,
    )


def _partitioned(client: pulsar.Client, topic: str) -> dict[Place, int]:
    return produce(client, topic, _messages("partitioned", _sizes("partitioned", 90)), batching_enabled=False)


def _records(schema: Any, batched: bool, client: pulsar.Client, topic: str) -> dict[Place, int]:
    messages = [{"content": Order(**order)} for order in orders()]
    options = {"batching_max_messages": 9, "batching_max_publish_delay_ms": 10_000} if batched else {}
    return produce(client, topic, messages, schema=schema, batching_enabled=batched, **options)


TOPICS: dict[str, Callable[[pulsar.Client, str], dict[Place, int]]] = {
    **{
        f"compression-{compression.name.lower()}": partial(_batched_and_unbatched, compression)
        for compression in (
            pulsar.CompressionType.NONE,
            pulsar.CompressionType.LZ4,
            pulsar.CompressionType.ZLib,
            pulsar.CompressionType.ZSTD,
            pulsar.CompressionType.SNAPPY,
        )
    },
    "keyed": _keyed,
    "partitioned": _partitioned,
    "json": partial(_records, JsonSchema(Order), False),
    "avro": partial(_records, AvroSchema(Order), True),
}
"""By the topic's name: sends the messages to a topic; where each one is, and its sequence id."""


# --- What the tests send to a broker in transactions: steps as `Transactions.java` takes them.


Step = dict[str, Any]


def steps() -> Iterator[Step]:
    """Twelve transactions of changing fate, interleaved with one another and with plain messages; then one stays open.

    Batches hold plain and transactional messages.
    """
    draw = random.Random(12)
    running: list[str] = []
    numbers = iter(range(10_000))
    for number in range(12):
        running.append(f"t{number}")
        yield {"messages": [message(running[-1], next(numbers))]}
        for _ in range(5):
            owner = draw.choice(running)
            owners = [draw.choice([None, owner]) for _ in range(draw.choice([1, 1, 3]))]
            yield {"messages": [message(each, next(numbers)) for each in owners]}
        if len(running) > 2:
            ended = running.pop(draw.randrange(len(running)))
            yield {draw.choice(["commit", "abort"]): ended}
    yield {"commit": running.pop()}
    stays_open = running.pop()
    for _ in range(3):
        yield {"messages": [message("late", next(numbers))]}
    yield {"messages": [message(stays_open, next(numbers))]}
    yield {"messages": [message(None, next(numbers))]}
    yield {"commit": "late"}


def message(transaction: str | None, number: int) -> Step:
    return {"value": f"m{number}"} | ({} if transaction is None else {"transaction": transaction})


def ended(planned: Sequence[Step]) -> list[Step]:
    """The same, and commits of all transactions that have no end in it."""
    names = {
        each["transaction"] for step in planned for each in step.get("messages", ()) if "transaction" in each
    }
    ends = {name for step in planned for name in (step.get("commit"), step.get("abort"))}
    return [*planned, *({"commit": name} for name in sorted(names - ends))]


# --- A producer of entries as they are: what no client would send, stored by a running broker for the clients to judge.
#
# Pulsar's binary protocol, as far as it takes: https://pulsar.apache.org/docs/developing-binary-protocol. A command
# is a protobuf message `BaseCommand`, whose field 1 is its type, and which has the command in a field of a number of
# its own.


ANSWERED_WITHIN_S = 60.0

CONNECT, CONNECTED, PRODUCER, SEND, SEND_RECEIPT, PRODUCER_SUCCESS = 2, 3, 5, 6, 7, 17
"""Types of commands, which are also the numbers of their fields."""

_PING, _PONG = 18, 19


class RawProducer:
    """Publishes to one topic; a context manager that drops its connection, as a producer that is killed.

    Args:
        service_url, admin_url: the broker's `pulsar://` and `http://`.
    """

    def __init__(self, service_url: str, admin_url: str, topic: str) -> None:
        lookup = f"/lookup/v2/topic/{quote(topic.replace('://', '/'))}"  # has the broker serve the topic
        status, _, text = http_answer(urlsplit(admin_url).netloc, "GET", lookup)
        assert status == 200, text
        place = urlsplit(service_url)
        assert place.hostname is not None
        assert place.port is not None
        self._socket = socket.create_connection((place.hostname, place.port), timeout=ANSWERED_WITHIN_S)
        self._stream = self._socket.makefile("rb")
        self._sent = 0
        self._ask(CONNECT, _text(1, "tests") + _number(4, 19), CONNECTED)
        self._ask(
            PRODUCER, _text(1, topic) + _number(2, 0) + _number(3, 1) + _text(4, "raw"), PRODUCER_SUCCESS
        )

    def send(self, entries: Sequence[bytes]) -> None:
        """Publish entries, checksum and metadata included, one after another."""
        for entry in entries:
            self._ask(SEND, _number(1, 0) + _number(2, self._sent), SEND_RECEIPT, entry)
            self._sent += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._socket.close()

    def _ask(self, command: int, fields: bytes, answer: int, entry: bytes = b"") -> None:
        self._write(command, fields, entry)
        while (found := self._read()) == _PING:
            self._write(_PONG, b"")
        assert found == answer, f"command {command} was answered by {found}"

    def _write(self, command: int, fields: bytes, entry: bytes = b"") -> None:
        base = _number(1, command) + _bytes(command, fields)
        frame = struct.pack(">I", len(base)) + base + entry
        self._socket.sendall(struct.pack(">I", len(frame)) + frame)

    def _read(self) -> int:
        """The type of the next command, which comes first in it."""
        (length,) = struct.unpack(">I", self._stream.read(4))
        frame = self._stream.read(length)
        assert frame[4] == 0x08
        return frame[5]


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())
