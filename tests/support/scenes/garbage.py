"""Garbage collections of a tier in memory, with records in a store in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from damage.scenes import LEDGER, PAYLOADS, Scene, in_memory_tier, one_ledger, pip17
from managed_ledgers import Audit
from records import closed_ledger, copied, failed, managed_ledger, new_copy, segment
from tiers import MODIFIED_AT, TOPIC, uuid_of

from offload_core.maintenance.gc import Collection, CollectionSummary, GarbageKind, RemovalOutcome, Scope
from offload_core.metadata.catalogue import Records, TopicName, parse_topic
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.records import ManagedLedgerInfo, OffloadContext, pack_managed_ledger_info
from offload_core.metadata.records.replacements import (
    abandon_replacement,
    begin_replacement,
    switch_replacement,
)
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_hooks.testing import MemoryDriver, MemoryMetadataStore, MemoryTier

LATER = MODIFIED_AT + timedelta(days=3)


def clock(moment: datetime = LATER) -> Callable[[], int]:
    """A clock that stands."""
    return lambda: int(moment.timestamp() * 1000)


@dataclass
class CollectedTier:
    """A tier and a metadata store, to be collected."""

    memory: MemoryTier
    metadata: MemoryMetadataStore
    log: Audit = field(default_factory=Audit)
    summary: CollectionSummary = field(default_factory=CollectionSummary)

    @classmethod
    def of(cls, scene: Scene) -> CollectedTier:
        """The tier and the records of a scene."""
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

    def age(self):
        """Have all objects be as old as at first, also those that were written since."""
        for key, stored in self.memory.objects.items():
            stat = replace(stored.stat, modified_at=MODIFIED_AT)
            self.memory.objects[key] = replace(stored, stat=stat)

    @property
    def records(self) -> ManagedLedgerRecords:
        """The records, to be changed."""
        return ManagedLedgerRecords(self.metadata)

    def put_record(self, topic: str, record: bytes | ManagedLedgerInfo):
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
        """Report the garbage."""
        return list(self.collection(**scope).report(limit=limit))

    def collect(self, *, limit: int | None = None, **scope: Any) -> list[RemovalOutcome]:
        """Delete the garbage."""
        return list(self.collection(**scope).collect(self.log, limit=limit))

    def assert_all_stays(self, **scope: Any):
        """A collection finds no garbage, and deletes nothing."""
        before = self.keys
        assert self.collect(**scope) == []
        assert self.keys == before


class Changing(StoreRecords):
    """Records that change just before they are read for the `turn`th time."""

    def __init__(self, world: CollectedTier, change: Callable[[], object], turn: int):
        super().__init__(world.metadata)
        self._change, self._left = change, turn

    def read(self, topics: Iterable[TopicName]) -> dict[TopicName, ManagedLedgerInfo]:
        """Read them."""
        asked = list(topics)
        self._left -= bool(asked)
        if not self._left:
            self._change()
        return super().read(asked)


def changing(world: CollectedTier, change: Callable[[], object], turn: int):
    """Opens `Changing` records; the third time they are read is the last look, if all that is found is of one topic."""
    return lambda: nullcontext(Changing(world, change, turn))


def kinds(outcomes: list[RemovalOutcome]) -> Mapping[str, str]:
    """Of each thing its kind."""
    return {each.garbage.key: each.garbage.kind.value for each in outcomes}


# --- Tiers with one kind of garbage each, and its kind.


OTHER = "persistent://acme/cold/others"


def orphaned() -> Scene:
    """A ledger's copy, and another one that no record names."""
    scene = pip17()
    scene.add(one_ledger(), 5)
    return scene


def info_of(scene: Scene) -> ManagedLedgerInfo:
    info = scene.records[TOPIC]
    assert isinstance(info, ManagedLedgerInfo)
    return info


def superseded() -> tuple[Scene, GarbageKind]:
    return orphaned(), GarbageKind.SUPERSEDED


def orphan() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    scene.records = {
        TOPIC: managed_ledger(closed_ledger(LEDGER, PAYLOADS, None), *other_ledger(scene.written[0].key.uuid))
    }
    return scene, GarbageKind.ORPHAN


def other_ledger(uuid):
    """A record that names the first copy, so that its cluster is known."""
    return [closed_ledger(LEDGER + 1, PAYLOADS, copied(uuid))]


def orphan_of_a_trimmed_ledger() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    scene.records = {TOPIC: managed_ledger(*other_ledger(scene.written[0].key.uuid))}
    return scene, GarbageKind.ORPHAN


def deleted_topic() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    for key in (scene.key(1), scene.index_key(1)):
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    return scene, GarbageKind.DELETED_TOPIC


def without_index() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    del scene.objects[scene.index_key(1)]
    return scene, GarbageKind.NO_INDEX


def without_data() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    del scene.objects[scene.key(1)]
    return scene, GarbageKind.NO_DATA


def attempt(context: OffloadContext) -> Scene:
    """A complete ledger, and an attempt at another one."""
    scene = orphaned()
    info = info_of(scene)
    scene.records = {TOPIC: managed_ledger(*info.ledgers, closed_ledger(LEDGER + 1, PAYLOADS, context))}
    return scene


def failed_attempt() -> tuple[Scene, GarbageKind]:
    context = copied(uuid_of(5), complete=False)
    return attempt(
        replace(context, driver=context.driver.with_property("status", "failed"))
    ), GarbageKind.FAILED


def unfinished_attempt() -> tuple[Scene, GarbageKind]:
    return attempt(copied(uuid_of(5), complete=False)), GarbageKind.UNFINISHED


def condemned() -> tuple[Scene, GarbageKind]:
    return attempt(copied(uuid_of(5), complete=False, bookkeeper_deleted=True)), GarbageKind.CONDEMNED


def failed_segment() -> tuple[Scene, GarbageKind]:
    return attempt(OffloadContext.of_segments([failed(segment(uuid_of(5), 15))])), GarbageKind.FAILED


def begun(scene: Scene) -> ManagedLedgerInfo:
    """The record, with an attempt at a replacement of its copy."""
    info = info_of(scene)
    driver = info.ledgers[0].context.driver
    assert driver is not None
    return begin_replacement(info, new_copy(uuid_of(5), LEDGER, driver=driver))


def replaced() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    scene.records = {TOPIC: switch_replacement(begun(scene), uuid_of(5), 0)}
    scene.written.reverse()  # the first one is what was replaced
    return scene, GarbageKind.REPLACED


def replacement_given_up() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    scene.records = {TOPIC: abandon_replacement(begun(scene), uuid_of(5))}
    return scene, GarbageKind.FAILED


def replacement_left() -> tuple[Scene, GarbageKind]:
    scene = orphaned()
    scene.records = {TOPIC: begun(scene)}
    return scene, GarbageKind.UNFINISHED


KINDS = [
    superseded, orphan, orphan_of_a_trimmed_ledger, deleted_topic, without_index, without_data, failed_attempt,
    unfinished_attempt, condemned, failed_segment, replaced, replacement_given_up, replacement_left,
]  # fmt: skip
