"""A namespace of a running broker whose topics are offloaded to a bucket."""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_admin import PulsarAdmin, TopicLedger
from stores import Store


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
