"""A topic with transactions whose record, snapshot and ledgers outlive processes, for crash matrices."""

from __future__ import annotations

from buffer_model import Model
from crash_points import Points
from managed_ledgers import NAME, environment_of
from transactional import START, message

from offload_core.managed_ledger import (
    Environment,
    RolloverPolicy,
    SnapshotPolicy,
    TransactionalTopic,
    open_managed_ledger,
)
from offload_core.metadata import EntryPosition
from offload_core.transactions import BufferSnapshot, SnapshotStore
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore


class World:
    """A topic whose record, snapshot and ledgers outlive processes."""

    def __init__(self) -> None:
        self.metadata = MemoryMetadataStore()
        self.ledgers = MemoryLedgers()

    def environment(self, points: Points) -> Environment:
        return environment_of(self.metadata, MemoryLedgerStore(self.ledgers), None, points, cache_bytes=0)

    def open(self, points: Points) -> TransactionalTopic:
        environment = self.environment(points)
        topic = open_managed_ledger(environment, NAME, rollover=RolloverPolicy(max_entries=5, min_age_s=0))
        return TransactionalTopic(environment, topic, SnapshotPolicy(max_entries=4, interval_s=1 << 40))

    def live(self, points: Points) -> None:
        """What happens to the topic."""
        topic = self.open(points)
        topic.add_entries([message()])
        held, dropped, kept = topic.begin(), topic.begin(), topic.begin()
        topic.add_entries([message(), message(dropped)])
        topic.add_entries([message(kept), message(dropped)])
        topic.commit(kept)
        topic.abort(dropped)
        topic.add_entries([message(held), message()])
        topic.topic.roll()
        topic.snapshot()
        topic.add_entries([message(dropped), message()])
        topic.add_entries([message(), message(), message()])
        topic.status()

    def end(self, points: Points) -> None:
        """End what was left open."""
        topic = self.open(points)
        for place, transaction in enumerate(topic.status().open_transactions):
            (topic.commit if place % 2 else topic.abort)(transaction)
        topic.snapshot()
        topic.topic.close()

    def check(self, where: object) -> None:
        """Open the topic anew, and compare."""
        topic = self.open(Points())
        model = Model.of(topic.topic.read_entries(START, 1000))
        model.check(topic, where)
        if SnapshotStore(self.metadata).read(NAME) is None:
            assert not any(model.transactions), where
        else:
            model.check_snapshot(self.snapshot(), where)

    def snapshot(self) -> BufferSnapshot:
        """The one that is persisted."""
        snapshot = SnapshotStore(self.metadata).read(NAME)
        assert snapshot is not None
        return snapshot

    def entries(self) -> list[tuple[EntryPosition, memoryview]]:
        """All of them, read by a new owner."""
        return list(self.open(Points()).topic.read_entries(START, 1 << 20, 1 << 30))
