"""A running broker with all that tests do to it: its admin REST, Pulsar's official client, buckets to offload to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pulsar
import s3
from cold_topics import ColdNamespace
from consumer_process import ConsumerProcess
from pulsar_admin import PulsarAdmin
from pulsar_topics import Place, Read, read_from
from servers.broker import Broker
from servers.versitygw import Versitygw
from stores import Store

_numbers = itertools.count()

Sending = Callable[[pulsar.Client, str], dict[Place, int]]
"""Sends messages to a topic; where each one is, and its sequence id."""


def new_store(service: Versitygw) -> tuple[str, Store]:
    """Make an empty bucket; its name, and the tier in it as our readers open it."""
    bucket = s3.new_bucket(service)
    return bucket, Store(name="s3", url=f"s3://{bucket}", options=s3.options(service))


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
    def connected(cls, broker: Broker, s3_service: Versitygw) -> Iterator[LivePulsar]:
        """Clients of a broker that runs, and of the S3 service that it offloads to."""
        client = pulsar.Client(broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        with ConsumerProcess(broker.service_url) as consumers:
            yield cls(
                broker=broker,
                s3_service=s3_service,
                admin=PulsarAdmin(broker.endpoint, broker.bookie_endpoint),
                client=client,
                consumers=consumers,
            )
        client.close()

    def new_store(self) -> tuple[str, Store]:
        """Make an empty bucket; its name, and the tier in it as our readers open it."""
        return new_store(self.s3_service)

    def new_namespace(self, policies: Mapping[str, object]) -> str:
        """Make an empty namespace with these offload policies; its name."""
        return self.admin.make_namespace(
            f"tests/cold-{next(_numbers)}", policies, cluster=self.broker.cluster
        )

    def new_cold_namespace(self) -> ColdNamespace:
        """Make a namespace with a bucket of its own; BookKeeper drops what is offloaded once it is trimmed."""
        bucket, store = self.new_store()
        namespace = self.new_namespace(self.broker.s3_policies(bucket, deletion_lag_ms=0))
        return ColdNamespace(namespace, store, self.admin)

    def send(self, topic: str, sending: Sending) -> SentTopic:
        """Send to a topic, and consume what was sent."""
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
