"""What a garbage collection makes of a tier in memory and records in a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from damage.scenes import Scene, in_memory_tier
from managed_ledgers import Audit
from tiers import MODIFIED_AT

from offload_core.catalogue import Records, TopicName, parse_topic
from offload_core.catalogue.record_source import StoreRecords
from offload_core.catalogue.topics import managed_ledger_of_topic
from offload_core.gc import Collection, CollectionSummary, RemovalOutcome, Scope
from offload_core.metadata import ManagedLedgerInfo, ManagedLedgerRecords, pack_managed_ledger_info
from offload_core.tier import Tier
from offload_hooks.testing import MemoryDriver, MemoryMetadataStore, MemoryTier

LATER = MODIFIED_AT + timedelta(days=3)


def clock(moment: datetime = LATER) -> Callable[[], int]:
    """A clock that stands."""
    return lambda: int(moment.timestamp() * 1000)


@dataclass
class World:
    """A tier and a metadata store, to be collected."""

    memory: MemoryTier
    metadata: MemoryMetadataStore
    log: Audit = field(default_factory=Audit)
    summary: CollectionSummary = field(default_factory=CollectionSummary)

    @classmethod
    def of(cls, scene: Scene) -> World:
        """What a scene has."""
        world = cls(memory=in_memory_tier(scene.objects), metadata=MemoryMetadataStore())
        for topic, record in (scene.records or {}).items():
            world.put_record(topic, record)
        return world

    @property
    def tier(self) -> Tier:
        """The tier."""
        return Tier(MemoryDriver(self.memory))

    @property
    def keys(self) -> set[str]:
        """All keys in the tier."""
        return set(self.memory.objects)

    def age(self) -> None:
        """Have all objects be as old as at first, also those that were written since."""
        for key, stored in self.memory.objects.items():
            stat = replace(stored.stat, modified_at=MODIFIED_AT)
            self.memory.objects[key] = replace(stored, stat=stat)

    @property
    def records(self) -> ManagedLedgerRecords:
        """The records, to be changed."""
        return ManagedLedgerRecords(self.metadata)

    def put_record(self, topic: str, record: bytes | ManagedLedgerInfo) -> None:
        """A topic's record, whatever there was."""
        path = f"/managed-ledgers/{managed_ledger_of_topic(parse_topic(topic))}"
        known = self.metadata.get(path)
        data = record if isinstance(record, bytes) else pack_managed_ledger_info(record)
        self.metadata.put(path, data, None if known is None else known[1])

    def open_records(self) -> AbstractContextManager[Records]:
        """The records, as a collection takes them."""
        return nullcontext(StoreRecords(self.metadata))

    def collection(self, tier: Tier | None = None, records: Any = None, **scope: Any) -> Collection:
        """A collection of it, three days later."""
        scope = {"now_ms": clock(), **scope}
        found = Collection(tier or self.tier, records or self.open_records, Scope(**scope))
        self.summary = found.summary
        return found

    def report(self, *, limit: int | None = None, **scope: Any) -> list[RemovalOutcome]:
        """What is garbage."""
        return list(self.collection(**scope).report(limit=limit))

    def collect(self, *, limit: int | None = None, **scope: Any) -> list[RemovalOutcome]:
        """What is garbage, deleted."""
        return list(self.collection(**scope).collect(self.log, limit=limit))


class Changing(StoreRecords):
    """Records that change just before they are read for the `turn`th time."""

    def __init__(self, world: World, change: Callable[[], object], turn: int) -> None:
        super().__init__(world.metadata)
        self._change, self._left = change, turn

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        """Read them."""
        asked = list(topics)
        self._left -= bool(asked)
        if not self._left:
            self._change()
        return super().read(asked)


def changing(
    world: World, change: Callable[[], object], turn: int
) -> Callable[[], AbstractContextManager[Records]]:
    """Opens `Changing` records; the third time they are read is the last look, if all that is found is of one topic."""
    return lambda: nullcontext(Changing(world, change, turn))


def kinds(outcomes: list[RemovalOutcome]) -> Mapping[str, str]:
    """Of each thing its kind."""
    return {each.garbage.key: each.garbage.kind.value for each in outcomes}
