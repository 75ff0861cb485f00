"""What Pulsar's clients get of a topic in every way that there is, as a value: the same again after a rewriting."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulsar
from oracle import Oracle
from pulsar_admin import PulsarAdmin

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


@dataclass(frozen=True, slots=True)
class Clients:
    """The Python and the Java client of the broker at `service_url`, and its admin REST."""

    python: pulsar.Client
    oracle: Oracle
    service_url: str
    admin: PulsarAdmin

    def send(self, topic: str, steps: Sequence[Row]) -> dict[str, tuple[int, int]]:
        """Send in transactions, as of `Transactions.java`; the ids by name."""
        ids = self.oracle.ask(
            "send_transactions", service_url=self.service_url, topic=topic, steps=list(steps)
        )
        return {name: tuple(each) for name, each in ids["ids"].items()}

    def read(self, topic: str) -> list[Row]:
        """What the Java client's reader gets from the first message to the end, `hasMessageAvailable` at each step."""
        answer = self.oracle.ask("read_transactions", service_url=self.service_url, topic=topic)
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

    def settled_backlog(self, topic: str, subscription: str, expected: int) -> int:
        """The subscription's backlog once it is what is expected, or after a minute."""
        deadline = time.monotonic() + ACKNOWLEDGED_WITHIN_S
        while (backlog := self.admin.backlog(topic, subscription)) != expected:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        return backlog


def _row(message: pulsar.Message) -> Row:
    message_id = message.message_id()
    return {
        "ledger": message_id.ledger_id(),
        "entry": message_id.entry_id(),
        "batch_index": message_id.batch_index(),
        "value": message.data().decode(),
        "published_ms": message.publish_timestamp(),
    }
