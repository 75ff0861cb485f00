"""A broker's admin REST: namespaces and what they offload to, topics and the ledgers that they are made of.

Whether BookKeeper still has a ledger is asked of the bookie: the broker's `internalStats` shows metadata from
whichever copy it would read.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import queue
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import UUID

import pulsar
import s3
import stamina
from servers.broker import Broker
from servers.process import http_answer
from servers.versitygw import Versitygw
from stores import Store
from waiting import wait_for

from pulsar_offload import TierReader, scan

DONE_WITHIN_S = 120.0


class AdminError(Exception):
    """The broker refused a request, or an offload failed or did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLedger:
    """A ledger of a topic, as the broker describes it.

    Attributes:
        offloaded: whether it is complete in cold storage.
        in_bookkeeper: whether BookKeeper has it too.
        uuid: of the last attempt to offload it.
    """

    ledger_id: int
    entries: int
    offloaded: bool
    in_bookkeeper: bool
    uuid: UUID | None


class PulsarAdmin:
    """The admin REST at `endpoint`. Topics are written `persistent://tenant/namespace/topic`.

    Args:
        endpoint: the broker's URL.
        bookie_endpoint: that of the REST of its only bookie.
    """

    def __init__(self, endpoint: str, bookie_endpoint: str) -> None:
        self._endpoint = endpoint
        self._bookie_endpoint = bookie_endpoint

    def make_namespace(self, namespace: str, offload: Mapping[str, object], *, cluster: str) -> str:
        """Make a namespace `tenant/name`, and the tenant if need be, with these offload policies; its name."""
        tenant = namespace.partition("/")[0]
        if tenant not in self._ask("GET", "/tenants"):
            self._ask("PUT", f"/tenants/{tenant}", {"adminRoles": [], "allowedClusters": [cluster]})
        self._ask("PUT", f"/namespaces/{namespace}", {})
        self.set_offload_policies(namespace, offload)
        return namespace

    def set_offload_policies(self, namespace: str, offload: Mapping[str, object]) -> None:
        """Set where topics are offloaded to and read from once they are loaded the next time."""
        self._ask("POST", f"/namespaces/{namespace}/offloadPolicies", dict(offload))

    def set_persistence(self, namespace: str, quorum: int) -> None:
        """Have each entry of new ledgers on so many bookies, and acknowledged by all of them."""
        self._ask(
            "POST",
            f"/namespaces/{namespace}/persistence",
            {
                "bookkeeperEnsemble": quorum,
                "bookkeeperWriteQuorum": quorum,
                "bookkeeperAckQuorum": quorum,
                "managedLedgerMaxMarkDeleteRate": 0.0,
            },
        )

    def deduplicate(self, namespace: str) -> None:
        """Have a message that a producer sends again kept once, in topics that are loaded from now on."""
        self._ask("POST", f"/namespaces/{namespace}/deduplication", True)

    def make_partitioned_topic(self, topic: str, partitions: int) -> None:
        """Make a partitioned topic, with partitions `topic-partition-0` and so on."""
        self._ask("PUT", f"{_path(topic)}/partitions", partitions)

    def ledgers(self, topic: str) -> list[TopicLedger]:
        """A topic's ledgers in their order; the last one is open. Loads the topic."""
        stats = self._ask("GET", f"{_path(topic)}/internalStats")["ledgers"]
        records = self._ask("GET", f"{_path(topic)}/internal-info")["ledgers"]
        in_bookkeeper = {int(each) for each in _request("GET", f"{self._bookie_endpoint}/api/v1/ledger/list")}
        uuids = {record["ledgerId"]: record.get("offloadedContextUuid") for record in records}
        return [
            TopicLedger(
                ledger_id=ledger["ledgerId"],
                entries=ledger["entries"],
                offloaded=ledger["offloaded"],
                in_bookkeeper=ledger["ledgerId"] in in_bookkeeper,
                uuid=None if uuids[ledger["ledgerId"]] is None else UUID(uuids[ledger["ledgerId"]]),
            )
            for ledger in stats
        ]

    def delete(self, topic: str) -> None:
        """Delete the topic, its subscriptions and producers with it; its name is known no more."""
        self._ask("DELETE", _path(topic), query="force=true")

    def unload(self, topic: str) -> None:
        """Have the broker forget the topic, which closes its ledger and drops its caches and read handles."""
        self._ask("PUT", f"{_path(topic)}/unload")

    def offload_all(self, topic: str) -> list[TopicLedger]:
        """Close the topic's ledger, offload all that are closed, and return these."""
        self.unload(topic)
        open_ledger = self.ledgers(topic)[-1].ledger_id
        self.offload_before(topic, open_ledger)
        return [ledger for ledger in self.ledgers(topic) if ledger.ledger_id != open_ledger]

    def offload_before(self, topic: str, ledger_id: int) -> None:
        """Offload the ledgers before this one, while the topic is used."""
        bound = {"ledgerId": ledger_id, "entryId": 0, "partitionIndex": -1}
        self._ask("PUT", f"{_path(topic)}/offload", bound)  # answered before it has begun
        self._wait_until_done(f"{_path(topic)}/offload", f"{topic} was not offloaded")

    def drop_bookkeeper_copies(self, topic: str) -> None:
        """Have the broker delete the BookKeeper copy of all that is offloaded, by a deletion lag of 0."""
        self._ask("POST", f"{_path(topic)}/trim")  # answered before it has begun
        wait_for(
            lambda: not any(each.offloaded and each.in_bookkeeper for each in self.ledgers(topic)),
            DONE_WITHIN_S,
        )

    def backlog(self, topic: str, subscription: str) -> int:
        """The number of entries not acknowledged, markers included until the broker passed them."""
        stats = self._ask("GET", f"{_path(topic)}/stats", query="getPreciseBacklog=true")
        return stats["subscriptions"][subscription]["msgBacklog"]

    def message_id_at(self, topic: str, time_ms: int) -> tuple[int, int]:
        """Ledger and entry of the first message that was published then or later."""
        found = self._ask("GET", f"{_path(topic)}/messageid/{time_ms}")
        return found["ledgerId"], found["entryId"]

    def schema(self, topic: str, version: int | None = None) -> dict[str, Any]:
        """A version of a topic's schema; None for the newest."""
        name = topic.removeprefix("persistent://")
        return self._ask("GET", f"/schemas/{name}/schema" + ("" if version is None else f"/{version}"))

    def compact(self, topic: str) -> None:
        """Compact the topic, and return when that is done."""
        self._ask("PUT", f"{_path(topic)}/compaction")
        self._wait_until_done(f"{_path(topic)}/compaction", f"{topic} was not compacted")

    def _wait_until_done(self, path: str, failed: str) -> None:
        def ended() -> dict[str, Any] | None:
            status = self._ask("GET", path)
            return None if status["status"] in ("RUNNING", "NOT_RUN") else status

        status = wait_for(ended, DONE_WITHIN_S)
        if status["status"] != "SUCCESS":
            raise AdminError(f"{failed}: {status}")

    def _ask(self, method: str, path: str, body: object = None, query: str = "") -> Any:
        return _request(method, f"{self._endpoint}/admin/v2{path}?{query}", body)


def _path(topic: str) -> str:
    return "/" + topic.replace("://", "/")


def _request(method: str, url: str, body: object = None) -> Any:
    parts = urlsplit(url)
    headers = {} if body is None else {"Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    status, _, text = http_answer(parts.netloc, method, f"{parts.path}?{parts.query}", content, headers)
    if status >= 300:
        raise AdminError(f"{method} {url} was answered by {status}: {text.decode(errors='replace')}")
    return json.loads(text) if text else None


# --- What Pulsar's official client sends to a topic and reads from it, and our rows in the form of what it reads.


RECEIVED_WITHIN_S = 60.0

COLUMNS = (
    "value",
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
    "__partition",
    "__sequenceId",
    "__producerName",
    "__ledgerId",
    "__entryId",
    "__batchIndex",
    "__orderingKey",
    "__schemaVersion",
)
"""The columns that `row_as_read` needs."""

Place = tuple[int, int, int, int]
"""Ledger, entry, batch index, partition."""

Read = dict[str, Any]
"""A message as a consumer reads it, with the sequence id that its producer gave it."""


def produce(
    client: pulsar.Client, topic: str, messages: Iterable[Mapping[str, Any]], **options: Any
) -> dict[Place, int]:
    """Send messages, by a producer with these options; where each one is, and its sequence id.

    A message is what `Producer.send` takes. Those without a `sequence_id` get 1000, 1007, 1014, …
    """
    producer = client.create_producer(topic, block_if_queue_full=True, **options)
    answers: queue.SimpleQueue[tuple[int, pulsar.Result, pulsar.MessageId]] = queue.SimpleQueue()
    count = 0
    for count, message in enumerate(messages, start=1):
        sequence_id = message.get("sequence_id", 1000 + 7 * (count - 1))
        sent = {**message, "sequence_id": sequence_id}
        producer.send_async(
            callback=lambda *answer, sequence_id=sequence_id: answers.put((sequence_id, *answer)), **sent
        )
    producer.flush()
    sent_ids: dict[Place, int] = {}
    for _ in range(count):
        sequence_id, result, message_id = answers.get(timeout=RECEIVED_WITHIN_S)
        assert result == pulsar.Result.Ok, result
        sent_ids[_place(message_id)] = sequence_id
    producer.close()
    return sent_ids


def consume(client: pulsar.Client, topic: str, sent: Mapping[Place, int]) -> list[Read]:
    """Read all messages that were sent, from the first, by an exclusive consumer that acknowledges none."""
    first = pulsar.InitialPosition.Earliest
    with closing(client.subscribe(topic, "tests", initial_position=first)) as consumer:
        messages = [consumer.receive(timeout_millis=int(RECEIVED_WITHIN_S * 1000)) for _ in sent]
        return by_partition([_as_read(message, sent) for message in messages])


def read_values(client: pulsar.Client, topic: str, count: int, **options: Any) -> list[tuple[bytes, bytes]]:
    """Ids and values of `count` messages, by an exclusive consumer with these options."""
    consumer = client.subscribe(topic, "reading", initial_position=pulsar.InitialPosition.Earliest, **options)
    messages = [consumer.receive(timeout_millis=int(RECEIVED_WITHIN_S * 1000)) for _ in range(count)]
    consumer.close()
    return [(message.message_id().serialize(), message.data()) for message in messages]


def read_from(client: pulsar.Client, topic: str, message_id: bytes, sent: Mapping[Place, int]) -> list[Read]:
    """Read the messages of a topic or partition from this one on, by a reader."""
    start = pulsar.MessageId.deserialize(message_id)
    reader = client.create_reader(topic, start, start_message_id_inclusive=True)
    read = []
    while reader.has_message_available():
        read.append(_as_read(reader.read_next(timeout_millis=int(RECEIVED_WITHIN_S * 1000)), sent))
    reader.close()
    return read


def row_as_read(row: Mapping[str, Any]) -> Read:
    """One of our rows (with `COLUMNS`) in the form of a consumed message."""
    return {
        "place": (row["__ledgerId"], row["__entryId"], row["__batchIndex"], row["__partition"]),
        "message_id": bytes(row["__messageId"]),
        "topic": row["__topic"],
        "value": None if row["value"] is None else bytes(row["value"]),
        "key": _text(row["__key"]),
        "ordering_key": _text(row["__orderingKey"]),
        "properties": dict(row["__messageProperties"]),
        "published_ms": _milliseconds(row["__publishTime"]),
        "event_ms": _milliseconds(row["__eventTime"]),
        "producer": row["__producerName"],
        "schema_version": _text(row["__schemaVersion"]),
        "sequence_id": row["__sequenceId"],
    }


def scanned(tier: TierReader, topic: str, **options: Any) -> list[Read]:
    """All messages of a topic by the Arrow scan with these options, in the form of consumed ones."""
    rows = scan(tier, topic, columns=COLUMNS, **options).to_table().to_pylist()
    return by_partition([row_as_read(row) for row in rows])


def messages_by_topic(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Read]]:
    """Rows of a namespace in the form of consumed messages: by the topic's last name, a partitioned one as a whole."""
    found: dict[str, list[Read]] = defaultdict(list)
    for row in rows:
        found[row["__topic"].partition("-partition-")[0].rpartition("/")[2]].append(row_as_read(row))
    return {topic: by_partition(messages) for topic, messages in found.items()}


def by_partition(messages: Sequence[Read]) -> list[Read]:
    """Partition after partition, each in the order that it has here."""
    return sorted(messages, key=lambda message: message["topic"])


def _as_read(message: pulsar.Message, sent: Mapping[Place, int]) -> Read:
    place = _place(message.message_id())
    return {
        "place": place,
        "message_id": message.message_id().serialize(),
        "topic": message.topic_name(),
        "value": None if message.has_null_value() else message.data(),
        "key": message.partition_key(),
        "ordering_key": message.ordering_key(),
        "properties": message.properties(),
        "published_ms": message.publish_timestamp(),
        "event_ms": message.event_timestamp(),
        "producer": message.producer_name(),
        "schema_version": message.schema_version(),
        "sequence_id": sent[place],
    }


def _place(message_id: pulsar.MessageId) -> Place:
    return (message_id.ledger_id(), message_id.entry_id(), message_id.batch_index(), message_id.partition())


def _text(data: Any) -> str:
    """Absent text is empty, as for the client."""
    return "" if data is None else bytes(data).decode()


def _milliseconds(time: Any) -> int:
    return 0 if time is None else round(time.timestamp() * 1000)


# --- A namespace of a running broker whose topics are offloaded to a bucket.


@dataclass(frozen=True, slots=True)
class ColdNamespace:
    """The namespace, and the bucket as our readers open it."""

    name: str
    store: Store
    admin: PulsarAdmin

    def topic(self, name: str) -> str:
        """The full name of a topic in it."""
        return f"persistent://{self.name}/{name}"

    def offload(self, topic: str) -> list[TopicLedger]:
        """Offload the topic as a whole, drop it from BookKeeper, and return its ledgers."""
        ledgers = self.admin.offload_all(topic)
        self.admin.drop_bookkeeper_copies(topic)
        return ledgers


# --- Pulsar's official client where it consumes: in a process of its own, made anew when the client crashes.
#
# The client's C++ library was seen to die by a segmentation fault in `unsubscribe`, once in some thousand calls. It
# would take the whole run of tests with it. Reading a topic can be done again, so a crash costs a second and no test.


class ConsumerProcess:
    """Consumes topics of the broker at this address; the process is started by the first call.

    Use it as a context, which ends the process.
    """

    def __init__(self, service_url: str) -> None:
        self._service_url = service_url
        self._pool: ProcessPoolExecutor | None = None

    def consume(self, topic: str, sent: Mapping[Place, int]) -> list[Read]:
        """See `pulsar_topics.consume`."""
        for attempt in stamina.retry_context(on=BrokenProcessPool, attempts=3, wait_initial=0.1):
            with attempt:
                try:
                    return self._started().submit(_consume, self._service_url, topic, dict(sent)).result()
                except BrokenProcessPool:
                    self._pool = None
                    raise
        raise AssertionError("stamina's loop ends by an answer or an error")

    def __enter__(self) -> ConsumerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            spawned = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(max_workers=1, mp_context=spawned)
        return self._pool


def _consume(service_url: str, topic: str, sent: Mapping[Place, int]) -> list[Read]:
    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    with closing(pulsar.Client(service_url, logger=logger)) as client:
        return consume(client, topic, sent)


# --- A running broker with all that tests do to it: its admin REST, Pulsar's official client, buckets to offload to.


_numbers = itertools.count()

Sending = Callable[[pulsar.Client, str], dict[Place, int]]
"""Sends messages to a topic; where each one is, and its sequence id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTopic:
    """A topic, and what the official client read from it when it was sent.

    Attributes:
        name: `persistent://…`.
        sent: where each message is, and its sequence id.
    """

    name: str
    sent: dict[Place, int]
    read: list[Read]


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePulsar:
    """A running broker and its clients.

    Attributes:
        client: Pulsar's official client, which produces.
        consumers: the same where it consumes.
    """

    broker: Broker
    s3_service: Versitygw
    admin: PulsarAdmin
    client: pulsar.Client
    consumers: ConsumerProcess

    @classmethod
    @contextmanager
    def connected(cls, broker: Broker, s3_service: Versitygw, **more: Any) -> Iterator[Self]:
        """Clients of a broker that runs, and of the S3 service that it offloads to; `more` are fields of a subclass."""
        client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        with ConsumerProcess(broker.service_url) as consumers:
            yield cls(
                broker=broker,
                s3_service=s3_service,
                admin=PulsarAdmin(broker.endpoint, broker.bookie_endpoint),
                client=client,
                consumers=consumers,
                **more,
            )
        client.close()

    def new_store(self) -> tuple[str, Store]:
        """Make an empty bucket; its name, and the tier in it as our readers open it."""
        bucket = s3.new_bucket(self.s3_service)
        return bucket, Store(name="s3", url=f"s3://{bucket}", options=s3.options(self.s3_service))

    def new_namespace(self, policies: Mapping[str, object]) -> str:
        """Make an empty namespace with these offload policies; its name."""
        return self.admin.make_namespace(
            f"tests/cold-{next(_numbers)}", policies, cluster=self.broker.cluster
        )

    def new_cold_namespace(self) -> ColdNamespace:
        """Make a namespace with a bucket of its own; BookKeeper drops offloaded ledgers once the topic is trimmed."""
        bucket, store = self.new_store()
        namespace = self.new_namespace(self.broker.s3_policies(bucket, deletion_lag_ms=0))
        return ColdNamespace(namespace, store, self.admin)

    def send(self, topic: str, sending: Sending) -> SentTopic:
        """Send to a topic, and consume the messages."""
        sent = sending(self.client, topic)
        return SentTopic(name=topic, sent=sent, read=self.consumers.consume(topic, sent))

    def assert_serves(self, topic: SentTopic, starts: Sequence[int]) -> None:
        """Clients get what they got before: a consumer, and readers from these on, each of the topic loaded anew."""
        self.admin.unload(topic.name)
        assert self.consumers.consume(topic.name, topic.sent) == topic.read
        for start in starts:
            self.admin.unload(topic.name)
            message_id = topic.read[start]["message_id"]
            assert read_from(self.client, topic.name, message_id, topic.sent) == topic.read[start:]
