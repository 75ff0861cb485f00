"""What Pulsar's clients get of a topic in every way that there is, as a value: the same again after a rewriting."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulsar
from oracle import Oracle
from pulsar_admin import PulsarAdmin
from servers.broker import Broker

RECEIVED_WITHIN_MS = 60_000
ACKNOWLEDGED_WITHIN_S = 60.0

KINDS = {
    "exclusive": pulsar.ConsumerType.Exclusive,
    "shared": pulsar.ConsumerType.Shared,
    "failover": pulsar.ConsumerType.Failover,
    "key-shared": pulsar.ConsumerType.KeyShared,
}
"""Kinds of subscriptions."""

Row = dict[str, Any]

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Clients:
    """The Python and the Java client of a broker, and its admin REST."""

    broker: Broker
    admin: PulsarAdmin
    python: pulsar.Client
    oracle: Oracle

    def new_namespace(self, policies: Mapping[str, object]) -> str:
        """Make an empty namespace with these offload policies; its name."""
        return self.admin.make_namespace(
            f"tests/transactions-{next(_numbers)}", policies, cluster=self.broker.cluster
        )

    def send(self, topic: str, steps: Sequence[Row]) -> dict[str, tuple[int, int]]:
        """Send in transactions, as of `Transactions.java`; the ids by name."""
        answer = self.oracle.ask(
            "send_transactions", service_url=self.broker.service_url, topic=topic, steps=list(steps)
        )
        ids: dict[str, list[int]] = answer["ids"]
        return {name: (most, least) for name, (most, least) in ids.items()}

    def read(self, topic: str) -> list[Row]:
        """What the Java client's reader gets from the first message to the last that it is told to be there."""
        answer = self.oracle.ask("read_transactions", service_url=self.broker.service_url, topic=topic)
        read: list[Row] = answer["read"]
        return read

    def consume(self, topic: str, kind: str, name: str, count: int) -> list[Row]:
        """So many messages by a new subscription of this kind, from the first on; all are acknowledged."""
        consumer = self.python.subscribe(
            topic, name, consumer_type=KINDS[kind], initial_position=pulsar.InitialPosition.Earliest
        )
        try:
            received = [consumer.receive(RECEIVED_WITHIN_MS) for _ in range(count)]
            for message in received:
                consumer.acknowledge(message)
        finally:
            consumer.close()
        return [_row(message) for message in received]

    def sought(self, topic: str, name: str, times_ms: Sequence[int]) -> list[Row]:
        """The first message after each seek to a time."""
        consumer = self.python.subscribe(topic, name, initial_position=pulsar.InitialPosition.Earliest)
        found = []
        try:
            for time_ms in times_ms:
                consumer.seek(time_ms)
                found.append(_row(consumer.receive(RECEIVED_WITHIN_MS)))
        finally:
            consumer.close()
        return found

    def is_done(self, topic: str, subscription: str) -> bool:
        """Whether the subscription's backlog becomes 0 within a minute."""
        deadline = time.monotonic() + ACKNOWLEDGED_WITHIN_S
        while self.admin.backlog(topic, subscription):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def views(self, topic: str, subscriptions: str) -> dict[str, Any]:
        """All that is got of a topic: by a reader, by seeks, and by subscriptions of each kind, acknowledged.

        Names of subscriptions begin with `subscriptions`.
        """
        read = self.read(topic)
        consumed = {kind: self.consume(topic, kind, f"{subscriptions}-{kind}", len(read)) for kind in KINDS}
        times = sorted({row["published_ms"] for row in consumed["exclusive"]})
        places = (0, 1, len(times) // 3, len(times) // 2, len(times) - 1)
        sought = [times[0] - 10_000, *(times[place] for place in places)]
        return {
            "read": read,
            **consumed,
            "sought": self.sought(topic, f"{subscriptions}-seek", sought),
            "found": [self.admin.message_id_at(topic, time_ms) for time_ms in sought],
        }


def _row(message: pulsar.Message) -> Row:
    message_id = message.message_id()
    return {
        "ledger": message_id.ledger_id(),
        "entry": message_id.entry_id(),
        "batch_index": message_id.batch_index(),
        "value": message.data().decode(),
        "published_ms": message.publish_timestamp(),
    }
